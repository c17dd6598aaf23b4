"""Running IREE artefacts: what goes in comes out with the right numbers, types and memory."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest
import torch

from flambeau.engines import EngineError, RunError
from flambeau.engines.iree import buffers
from flambeau.engines.iree.buffers import from_buffer_view, to_buffer_view
from flambeau.engines.iree.runtime import Program
from flambeau.ir import dtypes
from flambeau.ir.arrays import span_of
from flambeau.ir.module import ScalarSpec, TensorSpec

pytestmark = pytest.mark.engine

DTYPES = (
    dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16, dtypes.int8, dtypes.int16, dtypes.int32,
    dtypes.int64, dtypes.uint8, dtypes.uint16, dtypes.bool_, dtypes.complex64, dtypes.complex128,
)  # fmt: skip
VECTOR = TensorSpec((4,), dtypes.float32)


def sample(dtype: dtypes.DType, *shape: int) -> torch.Tensor:
    values = torch.arange(int(np.prod(shape))).reshape(shape)
    if dtype.is_complex:
        return torch.complex(values.double(), -values.double()).to(dtype.torch)
    # 100 + 100 wraps in int8 and does not in uint8.
    return values % 2 == 0 if dtype.is_bool else (values * 25 % 125).to(dtype.torch)


def doubled(x: torch.Tensor) -> torch.Tensor:
    if x.dtype in (torch.uint16, torch.bool):  # which PyTorch does not add as IREE does
        return ~x if x.dtype == torch.bool else (x.long() * 2).to(x.dtype)
    return x + x


# Numbers in and out


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_torch_dtypes_go_in_and_out(program: Program, dtype: dtypes.DType) -> None:
    x = sample(dtype, 2, 33)
    (y,) = program.call(f"double_{dtype.name}", [x], [TensorSpec((2, None), dtype)])
    assert y.dtype == dtype.torch
    assert torch.equal(y, doubled(x))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.numpy is not None], ids=str)
def test_numpy_dtypes_go_in_and_out(program: Program, dtype: dtypes.DType) -> None:
    x = sample(dtype, 2, 5).numpy()
    (y,) = program.call(f"double_{dtype.name}", [x], [TensorSpec((2, None), dtype)])
    assert isinstance(y, np.ndarray)
    assert y.dtype == dtype.numpy
    assert np.array_equal(y, ~x if dtype.is_bool else x + x)
    y[...] = 0  # results belong to the caller


def test_bfloat16_without_torch_is_that_of_ml_dtypes(program: Program) -> None:
    import ml_dtypes

    x = np.array([[1.5, -2.0], [0.25, 3.0]], ml_dtypes.bfloat16)
    (y,) = program.call("double_bfloat16", [x], [TensorSpec((2, None), dtypes.bfloat16)])
    assert y.dtype == ml_dtypes.bfloat16
    assert np.array_equal(y.astype(np.float32), [[3.0, -4.0], [0.5, 6.0]])


def test_zero_dimensions(program: Program) -> None:
    spec = [TensorSpec((), dtypes.float32)]
    (y,) = program.call("zero_d", [torch.tensor(3.0)], spec)
    assert y.shape == ()
    assert y.item() == 9.0
    (z,) = program.call("zero_d", [np.array(-2.0, np.float32)], spec)
    assert z.shape == ()
    assert z == 4.0


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.bfloat16, dtypes.bool_, dtypes.complex64], ids=str)
def test_no_elements(program: Program, dtype: dtypes.DType) -> None:
    spec = [TensorSpec((2, None), dtype)]
    (y,) = program.call(f"double_{dtype.name}", [torch.empty(2, 0, dtype=dtype.torch)], spec)
    assert y.shape == (2, 0)
    assert y.dtype == dtype.torch
    if dtype.numpy is not None:
        (z,) = program.call(f"double_{dtype.name}", [np.empty((2, 0), dtype.numpy)], spec)
        assert (z.shape, z.dtype) == ((2, 0), dtype.numpy)


def test_dynamic_dimensions(program: Program) -> None:
    for n in (1, 7, 64):
        x = torch.randn(2, n)
        (y,) = program.call("double_float32", [x], [TensorSpec((2, None), dtypes.float32)])
        assert torch.equal(y, 2 * x)


def test_strided_misaligned_and_lazy_inputs(program: Program) -> None:
    base = torch.randn(9, 5)
    inputs = [
        base.t()[1:3],
        base.flatten()[1:9].reshape(2, 4),
        base[:2].expand(2, 5),
        base[0].expand(2, 5),
        base.t()[:2, :1],
        base[:2].requires_grad_(),
        torch.nn.Parameter(base[3:5].clone()),
        torch._neg_view(base[:2].clone()),
    ]
    for x in inputs:
        (y,) = program.call("double_float32", [x], [TensorSpec((2, None), dtypes.float32)])
        assert torch.equal(y, (2 * x).detach())
        assert not y.requires_grad
    z = torch.tensor([[1 + 2j], [3 - 1j]], dtype=torch.complex64).conj()
    (y,) = program.call("double_complex64", [z], [TensorSpec((2, None), dtypes.complex64)])
    assert torch.equal(y, (2 * z).resolve_conj())


def test_strided_misaligned_and_read_only_arrays(program: Program) -> None:
    base = np.arange(45, dtype=np.float32).reshape(9, 5)
    frozen = base[:2].copy()
    frozen.flags.writeable = False
    for x in (base.T[1:3], base.reshape(-1)[1:9].reshape(2, 4), base[::4][:2], frozen):
        (y,) = program.call("double_float32", [x], [TensorSpec((2, None), dtypes.float32)])
        assert np.array_equal(y, 2 * x)


def test_python_numbers(program: Program) -> None:
    kinds = [ScalarSpec("int"), ScalarSpec("float"), ScalarSpec("bool")]
    big = 2**40
    assert program.call("scalars", [big, 0.1, True], kinds) == [big + 1, 0.05, False]
    assert program.call("scalars", [np.int8(-1), np.float32(1.5), np.bool_(True)], kinds) == [0, 0.75, False]
    with pytest.raises(TypeError, match="tensors and numbers, not a str"):
        program.call("scalars", ["1", 1.0, True], kinds)
    assert [type(r) for r in program.call("scalars", [-2, 3.0, False], kinds)] == [int, float, bool]


# Memory


def test_large_arguments_and_results_are_not_copied(program: Program) -> None:
    x = torch.randn(64, 64)
    view, owner = to_buffer_view(program._device, x)
    assert owner.data_ptr() == x.data_ptr()
    assert span_of(from_buffer_view(program._device, view, dtypes.float32, as_torch=True))[0] == x.data_ptr()
    # IREE's numpy arrays do not keep their memory, so there it is copied.
    array = from_buffer_view(program._device, view, dtypes.float32, as_torch=False)
    assert span_of(array)[0] != x.data_ptr()
    assert (array == x.numpy()).all()


def test_results_share_no_memory(program: Program) -> None:
    x = torch.randn(8, 8)
    before = x.clone()
    y, z = program.call("same", [x], [TensorSpec((None, None), dtypes.float32)] * 2)
    y.zero_()
    assert torch.equal(z, before)
    z.zero_()
    assert torch.equal(x, before)


def test_results_do_not_share_the_copy_of_an_argument(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    def spy(device: Any, array: Any) -> Any:
        view, owner = to_buffer_view(device, array)
        used.append(span_of(owner)[0])
        return view, owner

    monkeypatch.setattr(buffers, "to_buffer_view", spy)
    for x in (np.ones(17, np.float32)[1:].reshape(4, 4), torch.ones(17)[1:].reshape(4, 4)):
        results = program.call("same", [x], [TensorSpec((None, None), dtypes.float32)] * 2)
        assert len({*used, span_of(x)[0], *(span_of(r)[0] for r in results)}) == len(used) + 3
        used.clear()


def test_results_outlive_everything(weighted: bytes) -> None:
    program = Program(weighted, {"w": torch.ones(4), "layer.b": torch.zeros(3, dtype=torch.bfloat16)})
    results = [program.call("plus_weight", [torch.full((4,), float(i))], [VECTOR])[0] for i in range(20)]
    arrays = [program.call("plus_weight", [np.full(4, i, np.float32)], [VECTOR])[0] for i in range(20)]
    del program
    gc.collect()
    assert [r[0].item() for r in results] == [i + 1.0 for i in range(20)]
    assert [float(a[3]) for a in arrays] == [i + 1.0 for i in range(20)]


def test_weights_are_read_where_they_are(weighted: bytes) -> None:
    w = torch.nn.Parameter(torch.zeros(64))
    program = Program(weighted, {"w": w[:4], "layer.b": torch.zeros(3, dtype=torch.bfloat16)}, "local-sync")
    x = torch.arange(4.0)
    assert torch.equal(program.call("plus_weight", [x], [VECTOR])[0], x)
    with torch.no_grad():
        w[:4] = 10
    assert torch.equal(program.call("plus_weight", [x], [VECTOR])[0], x + 10)


@pytest.mark.parametrize(
    "w",
    [torch.arange(8.0)[::2], torch.arange(5.0)[1:], np.arange(8, dtype=np.float32)[::2], np.arange(5, dtype="f4")[1:]],
    ids=["strided", "misaligned", "strided array", "misaligned array"],
)
def test_weights_of_any_layout(weighted: bytes, w: Any) -> None:
    b = torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16)
    program = Program(weighted, {"w": w, "layer.b": b, "unused": torch.zeros(0)})
    assert np.array_equal(program.call("plus_weight", [torch.zeros(4)], [VECTOR])[0], w)
    (y,) = program.call("weight", [], [TensorSpec((3,), dtypes.bfloat16)])
    assert torch.equal(y, b)
    y.zero_()
    assert b[0] == 1.0


def test_weights_that_cannot_be_read(weighted: bytes) -> None:
    b = torch.zeros(3, dtype=torch.bfloat16)
    with pytest.raises(EngineError, match="no parameter found in index with key 'w'"):
        Program(weighted, {"layer.b": b})
    with pytest.raises(EngineError, match="weight 'w': it is on device 'meta'"):
        Program(weighted, {"w": torch.zeros(4, device="meta"), "layer.b": b})
    with pytest.raises(EngineError, match="`w` range out of bounds"):
        Program(weighted, {"w": torch.zeros(3), "layer.b": b})
    with pytest.raises(EngineError, match="not an artefact"):
        Program(b"nothing", {})


def test_calls_from_many_threads(weighted: bytes) -> None:
    program = Program(weighted, {"w": torch.ones(4), "layer.b": torch.zeros(3, dtype=torch.bfloat16)})
    wrong = []

    def work(i: int) -> None:
        x = torch.full((4,), float(i))
        wrong.extend(k for k in range(50) if not torch.equal(program.call("plus_weight", [x], [VECTOR])[0], x + 1))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# Failures while running


def test_failed_assertion_is_a_run_error_with_its_text(program: Program) -> None:
    spec = [TensorSpec((None,), dtypes.float32)]
    assert torch.equal(program.call("needs_four", [torch.ones(4)], spec)[0], torch.ones(4))
    with pytest.raises(RunError) as caught:
        program.call("needs_four", [torch.ones(5)], spec)
    assert str(caught.value) == "expected 4 elements; while running: [x]"


def test_unknown_function_and_device(program: Program, weighted: bytes) -> None:
    with pytest.raises(ValueError, match="no function 'nope'; it has double_float32"):
        program.call("nope", [], [])
    with pytest.raises(ValueError, match="no device 'gpu'; known devices: local-task, local-sync"):
        Program(weighted, {}, "gpu")
    with pytest.raises(RunError, match="expected 1 arguments but passed 0"):
        program.call("zero_d", [], [TensorSpec((), dtypes.float32)])
