"""Calling executables as the Python callables that they were compiled from."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

from flambeau.engines import Engine, Executable, get_engine
from flambeau.engines.iree.executable import IreeExecutable
from flambeau.ir import dtypes
from flambeau.ir.module import Argument, Signature, TensorSpec

pytestmark = pytest.mark.engine

VECTOR = TensorSpec((4,), dtypes.float32)


def test_engine_and_executable_follow_their_protocols(executable: IreeExecutable) -> None:
    engine = get_engine("iree")
    assert isinstance(engine, Engine)
    assert engine.name == "iree"
    assert get_engine(engine) is engine
    assert isinstance(executable, Executable)
    assert executable.profile == "quick"
    assert executable.timings["compile"] > 0
    with pytest.raises(ValueError, match=r"no engine 'gcc'; known engines: .*iree"):
        get_engine("gcc")
    with pytest.raises(ValueError, match="needs a `compile` method"):
        get_engine(3)  # type: ignore[arg-type]


def test_flat_arguments_by_position_and_name(executable: IreeExecutable) -> None:
    add = executable.function("add")
    x, y = torch.arange(4.0), torch.ones(4)
    assert torch.equal(add(x, y), x + y)
    assert torch.equal(add(x, y=y), x + y)
    assert torch.equal(add(y=x, x=y), x + y)
    z = add(x.numpy(), y.numpy())
    assert isinstance(z, np.ndarray)
    assert np.array_equal(z, [1, 2, 3, 4])
    for args, kwargs, message in [
        ((x,), {}, r"takes \(x, y\): missing y"),
        ((x, y, y), {}, r"takes \(x, y\): called with 3 positional arguments"),
        ((x,), {"z": y}, "missing y; unexpected z"),
        ((x, y), {"y": y}, "unexpected y"),
    ]:
        with pytest.raises(TypeError, match=message):
            add(*args, **kwargs)


def test_trees_of_arguments(executable: IreeExecutable) -> None:
    sub = executable.function("sub")
    x, y = torch.arange(4.0), torch.ones(4)
    # The tree is ([y], {"b": unused, "a": x}, scale=unused), and dicts may come in any order.
    assert torch.equal(sub([y], {"b": 1, "a": x}, scale=2), x - y)
    assert torch.equal(sub([y], OrderedDict(a=x, b=None), scale=2), x - y)
    with pytest.raises(TypeError) as caught:
        sub((y,), {"b": 1, "a": x}, scale=2)
    assert "takes ([y], {'b': *, 'a': x}, scale=*) but was called with ((*,), {'b': *, 'a': *}, scale=*)" in str(
        caught.value
    )
    with pytest.raises(TypeError, match=r"called with \(\[\*\], {'b': \*, 'c': \*}, scale=\*\)"):
        sub([y], {"b": 1, "c": x}, scale=2)
    with pytest.raises(TypeError, match=r"called with .*, rate="):
        sub([y], {"b": 1, "a": x}, rate=2)
    with pytest.raises(TypeError, match="argument 'y': expected a tensor 4xfloat32, got list"):
        sub([[y]], {"b": 1, "a": x}, scale=2)


def test_trees_of_results_and_state(executable: IreeExecutable) -> None:
    accumulate = executable.function("accumulate")
    total = executable.weights["total"]
    total.zero_()
    first = accumulate(torch.ones(4))
    assert first["pair"][0] == 7
    second = accumulate(torch.full((4,), 2.0))
    assert set(second) == {"sum", "pair"}
    assert isinstance(second["pair"], tuple)
    assert torch.equal(second["sum"], torch.full((4,), 3.0))
    assert torch.equal(second["pair"][1][0], torch.full((4,), 3.0))
    assert torch.equal(first["sum"], torch.ones(4))
    assert torch.equal(total, torch.full((4,), 3.0))
    assert executable.weights["total"] is total
    # State is the program's own, so it is the argument that says what the caller works with.
    third = accumulate(np.ones(4, np.float32))
    assert isinstance(third["sum"], np.ndarray)
    assert torch.equal(total, torch.full((4,), 4.0))


def test_mutated_arguments_are_written_in_place(executable: IreeExecutable) -> None:
    swap = executable.function("swap")
    base = torch.zeros(4, 2)
    x, y = base[:, 1], torch.nn.Parameter(torch.arange(4.0))
    with torch.no_grad():
        assert swap(x, y) == []
    assert torch.equal(base, torch.tensor([[0.0, 0], [0, 1], [0, 2], [0, 3]]))
    assert torch.equal(y.detach(), torch.zeros(4))
    assert y.requires_grad
    a, b = np.ones(4, np.float32), np.zeros(4, np.float32)
    swap(a, b)
    assert (a.tolist(), b.tolist()) == ([0.0] * 4, [1.0] * 4)


def test_scalar_arguments(executable: IreeExecutable) -> None:
    scalars = executable.function("scalars")
    assert scalars(1, 3, True) == [2, 1.5, False]
    assert scalars(np.int32(1), np.float32(3), np.bool_(False)) == [2, 1.5, True]
    for args, error, message in [
        ((1.5, 1.0, True), TypeError, r"argument 'i': expected a Python int, got 1.5 \(float\)"),
        ((1, "1", True), TypeError, r"argument 'f': expected a Python float, got '1' \(str\)"),
        ((1, 1.0, 1), TypeError, r"argument 'b': expected a Python bool, got 1 \(int\)"),
        ((torch.tensor(1), 1.0, True), TypeError, "argument 'i': expected a Python int, got int64"),
        ((2**63, 1.0, True), ValueError, "argument 'i': 9223372036854775808 does not fit in 64 bits"),
    ]:
        with pytest.raises(error, match=message):
            scalars(*args)


def test_wrong_tensors_are_named_with_both_types(executable: IreeExecutable) -> None:
    add, ok = executable.function("add"), torch.ones(4)
    for bad, error, given in [
        (torch.ones(5), ValueError, "5xfloat32"),
        (torch.ones(1, 4), ValueError, "1x4xfloat32"),
        (torch.tensor(1.0), ValueError, "float32"),
        (torch.ones(4, dtype=torch.int64), TypeError, "4xint64"),
        (np.ones(4), TypeError, "4xfloat64"),
        (np.array(["a"] * 4), TypeError, r"\(4,\) <U1"),
        (1.0, TypeError, r"1.0 \(float\)"),
        (None, TypeError, "NoneType"),
    ]:
        with pytest.raises(error, match=rf"^argument 'y': expected a tensor 4xfloat32, got {given}$"):
            add(ok, bad)


def test_bits_of_types_that_numpy_lacks(executable: IreeExecutable) -> None:
    bits = torch.tensor([[1.5], [-2.0]], dtype=torch.bfloat16).view(torch.uint16).numpy()
    y = executable.function("double_bfloat16")(bits)
    assert y.astype(np.float32).tolist() == [[3.0], [-4.0]]


def test_function_without_arguments_answers_like_the_weights(executable: IreeExecutable) -> None:
    y = executable.function("constant")()
    assert torch.equal(y, torch.tensor([1.0, 2.0, 3.0]))
    y.zero_()
    assert executable.function("constant")()[2] == 3.0


def test_signature_must_feed_every_argument(weighted: bytes, vectors: Callable[..., Signature]) -> None:
    stray = replace(vectors("x", "y"), inputs=(0,))
    with pytest.raises(ValueError, match="argument 'y' of 'main' is neither an input nor a weight"):
        IreeExecutable(weighted, {}, {"main": stray})
    missing = Signature((Argument("b", VECTOR, state="buf"),), (VECTOR,), ())
    with pytest.raises(ValueError, match="is the weight 'buf', which is missing"):
        IreeExecutable(weighted, {}, {"main": missing})


Pair = namedtuple("Pair", ["left", "right"])


def test_named_tuples_are_trees_too(executable: IreeExecutable, vectors: Callable[..., Signature]) -> None:
    _, tree = pytree.tree_flatten(((Pair(0, 0),), {}))
    run = IreeExecutable(
        executable.vmfb, executable.weights, {"add": vectors("x", "y", in_spec=tree)}, device="local-sync"
    )
    assert torch.equal(run(Pair(torch.ones(4), torch.arange(4.0))), torch.arange(4.0) + 1)
    with pytest.raises(TypeError, match=r"takes \(Pair\(x, y\)\) but was called with \(\(\*, \*\)\)"):
        run((torch.ones(4), torch.ones(4)))
