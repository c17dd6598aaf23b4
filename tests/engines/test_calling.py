"""What is checked of a call before the program runs, on every engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from support import assert_same
from torch import Tensor, nn

import flambeau
from flambeau.engines.calling import same_value
from flambeau.engines.signature_json import signature_from_json, signature_to_json
from flambeau.ir.arrays import GradientError


def eager(function: Any, *args: Any, **kwargs: Any) -> Any:
    return flambeau.load(flambeau.compile(function, args, kwargs, output_type="torch"), engine="eager")


class Config(NamedTuple):
    scale: float
    mode: str


def configured(x: Tensor, n: int, config: Config, flags: list[Any], *, bias: Tensor | None = None) -> Tensor:
    y = x * n * config.scale if config.mode == "mul" else x + n
    return y + 1 if flags[0] else y


X = torch.arange(3.0)
CALL = (X, 3, Config(0.5, "mul"), [True, 2, None])


def test_values_that_the_program_is_specialised_to_are_compared() -> None:
    run = eager(configured, *CALL, bias=None)
    assert_same(run(*CALL, bias=None), configured(*CALL))
    for args, kwargs, message in [
        ((X, 4, *CALL[2:]), {"bias": None}, "compiled for 3, and was called with 4"),
        ((X, 3.0, *CALL[2:]), {"bias": None}, "compiled for 3, and was called with 3.0"),
        ((X, True, *CALL[2:]), {"bias": None}, "compiled for 3, and was called with True"),
        ((X, torch.tensor(3), *CALL[2:]), {"bias": None}, "compiled for 3, and was called with a tensor int64"),
        ((X, 3, Config(0.25, "mul"), CALL[3]), {"bias": None}, "compiled for 0.5, and was called with 0.25"),
        ((X, 3, Config(0.5, "add"), CALL[3]), {"bias": None}, "compiled for 'mul', and was called with 'add'"),
        ((*CALL[:3], [1, 2, None]), {"bias": None}, "compiled for True, and was called with 1"),
        ((*CALL[:3], [True, 2, 0]), {"bias": None}, "compiled for None, and was called with 0"),
        (CALL, {"bias": X}, "compiled for None, and was called with a tensor 3xfloat32"),
    ]:
        with pytest.raises(ValueError, match=rf"^argument '\w+': the program was {message}"):
            run(*args, **kwargs)
    assert_same(run(X, np.int64(3), *CALL[2:], bias=None), configured(*CALL))


def test_the_name_of_a_value_is_that_of_the_argument() -> None:
    class Named(nn.Module):
        def forward(self, x: Tensor, power: int) -> Tensor:
            return x**power

    run = eager(Named(), X, 2)
    with pytest.raises(ValueError, match="argument 'power': the program was compiled for 2, and was called with 3"):
        run(X, 3)
    with pytest.raises(TypeError, match=r"the program takes \(x, power\)"):
        run(X, 2, X)


def test_which_values_are_the_same() -> None:
    nan = float("nan")
    for a, b in [(nan, float("nan")), (1, 1), ("a", "a"), (None, None), (0.1, 0.1), (2j, 2j), (1, np.int32(1))]:
        assert same_value(a, b)
    for a, b in [(1, 1.0), (1, True), (0, False), (0.0, -0.0), ("a", "b"), (None, 0), (1, torch.tensor(1)), (nan, 1.0)]:
        assert not same_value(a, b)


def test_numbers_that_are_inputs_are_not_compared() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, n: int) -> Tensor:
            return x * n

    module = flambeau.compile(
        Scaled(), (X, 3), dynamic_shapes={"x": None, "n": torch.export.Dim.DYNAMIC}, output_type="torch"
    )
    assert_same(flambeau.load(module, engine="eager")(X, 5), X * 5)


@pytest.mark.engine
def test_saved_signatures_compare_too(tmp_path: Path) -> None:
    inf = float("-inf")
    cases = [3, True, None, "x", 0.1, float("nan"), inf, -0.0, torch.float16, torch.device("cpu")]
    signature = flambeau.compile(lambda x, *rest: x + 1, (X, *cases[:-2]), output_type="raw").signatures["main"]
    again = signature_from_json(json.loads(json.dumps(signature_to_json("main", signature), allow_nan=False)))
    assert len(again.fixed) == len(cases) - 2
    for ours, theirs in zip(again.fixed, signature.fixed, strict=True):
        assert (ours.leaf, ours.name) == (theirs.leaf, theirs.name)
        assert same_value(ours.value, theirs.value)

    run = flambeau.load(flambeau.compile(lambda x, n: x * n, (X, 3)), profile="quick", device="local-sync")
    run.save(tmp_path / "model.vmfb")
    loaded = flambeau.load(tmp_path / "model.vmfb")
    assert_same(loaded(X, 3), X * 3)
    with pytest.raises(ValueError, match="compiled for 3, and was called with 4"):
        loaded(X, 4)


@pytest.mark.engine
def test_a_module_read_from_mlir_takes_tensors_alone(tmp_path: Path) -> None:
    """Its text has no place for a value that it was specialised to, so that none can be passed."""
    module = flambeau.compile(lambda x, n: x * n, (X, 3), output_type="torch")
    module.save(tmp_path / "model.mlir")
    run = flambeau.load(tmp_path / "model.mlir", profile="quick", device="local-sync")
    assert_same(run(X), X * 3)
    with pytest.raises(TypeError, match=r"takes \(\w+\): called with 2 positional arguments"):
        run(X, 4)


def test_nn_programs_compare_their_values() -> None:
    import flambeau.nn as nn_frontend

    class Times(nn_frontend.Module):
        def forward(self, x: Any, n: int) -> Any:
            return x * n

    run = flambeau.load(flambeau.trace(Times(), np.ones(3, np.float32), 3), engine="eager")
    assert run(np.ones(3, np.float32), 3).tolist() == [3, 3, 3]
    with pytest.raises(ValueError, match="'n': the program was compiled for 3, and was called with 4"):
        run(np.ones(3, np.float32), 4)


# Gradients


def test_an_argument_that_requires_a_gradient_raises() -> None:
    linear = nn.Linear(3, 3)
    run = eager(linear, X)
    with torch.no_grad():
        expected = linear(X)
    assert_same(run(X), expected)
    tracked = X.clone().requires_grad_()
    with pytest.raises(GradientError, match=r"argument 'input' requires a gradient.*no_grad.*detach"):
        run(tracked)
    assert_same(run(tracked.detach()), expected)
    with torch.no_grad():
        assert_same(run(tracked), expected)
    assert_same(eager(lambda x: x.argmax(), X)(tracked), X.argmax())


# Numpy arrays


@pytest.mark.parametrize("dtype", [">f4", ">i4", ">f8", ">c8", ">i2", "<f4"])
def test_arrays_of_either_byte_order_are_read_rightly(dtype: str) -> None:
    array = np.arange(4).astype(dtype)
    native = array.astype(array.dtype.newbyteorder("="))
    module = flambeau.compile(lambda x: x + 1, (torch.from_numpy(native),), output_type="torch")
    assert flambeau.load(module, engine="eager")(array).tolist() == (native + 1).tolist()


def test_arrays_of_other_byte_orders_are_written_rightly() -> None:
    run = eager(lambda x: x.mul_(2), torch.ones(3))
    array = np.arange(3).astype(">f4")
    run(array)
    assert array.tolist() == [0, 2, 4]


@pytest.mark.engine
def test_iree_reads_arrays_as_they_lie_in_memory() -> None:
    run = flambeau.load(flambeau.compile(lambda x: x * 2, (torch.ones(2, 3),)), profile="quick", device="local-sync")
    base = np.arange(12, dtype=np.float32).reshape(4, 3)
    frozen = base[:2].copy()
    frozen.flags.writeable = False
    for array in (base[::2], base[::-2], base.T[:2, :3].astype(">f4"), frozen, base[:2].astype(">f4")):
        assert run(array).tolist() == (array * 2).tolist()


def test_arrays_that_are_no_tensors_are_refused() -> None:
    run = eager(lambda x: x + 1, torch.ones(3))
    with pytest.raises(TypeError, match="programs know no masks"):
        run(np.ma.masked_array(np.ones(3, np.float32), [True, False, False]))
    with pytest.raises(TypeError, match="argument 'args_0': expected a tensor 3xfloat32"):
        run(np.zeros(3, [("a", np.float32)]))
    for array in (np.arange(6, dtype=np.float32)[::-2], np.broadcast_to(np.float32(1), 3)):
        assert run(array).tolist() == (array + 1).tolist()


# Names


def test_names_of_ops_to_keep_that_no_op_has_are_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no op 'aten\.gelo'; did you mean 'aten\.gelu'"):
        flambeau.compile(nn.GELU(), (X,), keep=["aten.gelo"])
    with pytest.raises(TypeError, match=r"keep=\['aten\.gelu'\]"):
        flambeau.compile(nn.GELU(), (X,), keep="aten.gelu")
    module = flambeau.compile(nn.GELU(), (X,), keep=["aten.gelu"], output_type="torch")
    assert "aten.gelu" in str(module)
