"""What TorchBuilder builds against PyTorch's meta kernels."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from xdsl.ir import Block, SSAValue

from flambeau.dialects.torch.types import FLOAT, INT, TensorType, list_of, vtensor
from flambeau.infer.builder import TorchBuilder
from flambeau.infer.rules import InferenceError
from flambeau.ir import dtypes


def meta(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def infer(name: str, *args: Any, **kwargs: Any) -> list[tuple[tuple[int | None, ...], torch.dtype]]:
    """Infer the results' types by TorchBuilder."""
    tensors: list[torch.Tensor] = []
    block = Block()

    def convert(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            dtype = dtypes.from_torch(value.dtype)
            assert dtype is not None
            tensors.append(value)
            return block.insert_arg(vtensor(tuple(value.shape), dtype.torch_type), len(block.args))
        if isinstance(value, list):
            return [convert(v) for v in value]
        return dtypes.from_torch(value) if isinstance(value, torch.dtype) else value

    converted = [convert(a) for a in args]
    builder = TorchBuilder(block)
    results = builder.call(name, *converted, **{k: convert(v) for k, v in kwargs.items()})
    results = results if isinstance(results, tuple) else (results,)
    return [_answer(r) for r in results]


def _answer(value: SSAValue) -> tuple[tuple[int | None, ...], torch.dtype]:
    assert isinstance(value.type, TensorType)
    assert value.type.shape is not None
    assert value.type.dtype is not None
    return value.type.shape, value.type.dtype.torch


def truth(name: str, *args: Any, **kwargs: Any) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Infer the results' types by PyTorch's meta kernel."""
    _, base, *overload = name.split(".", 2)
    op = getattr(getattr(torch.ops.aten, base), overload[0] if overload else "default")
    results = op(*args, **kwargs)
    results = results if isinstance(results, (tuple, list)) else (results,)
    return [(tuple(r.shape), r.dtype) for r in results]


def _real(value: Any) -> Any:
    if isinstance(value, list):
        return [_real(v) for v in value]
    return torch.ones(value.shape, dtype=value.dtype) if isinstance(value, torch.Tensor) else value


def agree(name: str, *args: Any, **kwargs: Any) -> bool:
    """Compare the two; False where PyTorch refuses the arguments."""
    try:
        # Meta kernels are laxer than the real ones: what the CPU refuses does not count.
        truth(name, *(_real(a) for a in args), **kwargs)
        expected = truth(name, *args, **kwargs)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
        return False
    assert infer(name, *args, **kwargs) == expected, (name, args)
    return True


X = (2, 3, 4)
CASES: list[tuple[str, tuple[Any, ...]]] = [
    *[(f"aten.{op}", (meta(X, d), dims, keep)) for op in ("sum.dim_IntList", "mean.dim", "amax", "amin")
      for d in (torch.float32, torch.float16, torch.int64) for dims in ([1], [0, -1], []) for keep in (False, True)],
    *[(f"aten.{op}.dim", (meta(X, d), dim, keep)) for op in ("max", "min", "all", "any")
      for d in (torch.float32, torch.uint8, torch.bool) for dim in (0, -1) for keep in (False, True)],
    *[(f"aten.{op}", (meta(X),
    dim, keep)) for op in ("argmax", "argmin") for dim in (None, 1) for keep in (False, True)],
    *[(f"aten.{op}.int", (meta(X), 1)) for op in ("softmax", "log_softmax")],
    *[(f"aten.{op}", (meta(X, d),
    1)) for op in ("cumsum", "cumprod") for d in (torch.float32, torch.int32, torch.bool)],
    *[("aten.view", (meta(X), s)) for s in ([6, 4], [-1], [2, -1, 2], [24, 1])],
    *[("aten.flatten.using_ints", (meta(X), a, b)) for a, b in ((0, -1), (1, 2), (0, 0))],
    *[("aten.unsqueeze", (meta(X), d)) for d in (0, 3, -1)],
    *[("aten.squeeze.dim", (meta((2, 1, 3)), d)) for d in (0, 1, -1)], ("aten.squeeze", (meta((1, 2, 1)),)),
    *[("aten.transpose.int", (meta(X), 0, -1))], ("aten.t", (meta((2, 3)),)), ("aten.permute", (meta(X), [2, 0, -2])),
    ("aten.expand", (meta((1, 3, 1)), [5, -1, 4])), ("aten.expand", (meta((3,)), [2, 3])),
    *[("aten.slice.Tensor", (meta(X), 2, a, b, c)) for a, b, c in ((0, 2, 1), (-3, None, 2), (None, 100, 1),
    (3, 1, 1))],
    *[("aten.select.int", (meta(X), d, i)) for d, i in ((0, 1), (-1, -4))],
    ("aten.repeat", (meta((2, 3)), [2, 1, 4])), ("aten.cat", ([meta((2, 3)), meta((4, 3))], 0)),
    ("aten.cat", ([meta((2, 3)), meta((2, 1), torch.float64)], -1)), ("aten.stack", ([meta((2, 3)), meta((2, 3))], -1)),
    ("aten.matmul", (meta((2, 3)), meta((3, 4)))), ("aten.matmul", (meta((5, 1, 2, 3)), meta((7, 3, 4)))),
    ("aten.matmul", (meta((3,)), meta((3, 4)))), ("aten.matmul", (meta((2, 3)), meta((3,)))),
    ("aten.linear", (meta((5, 2, 3)), meta((4, 3)), meta((4,)))), ("aten.addmm", (meta((4,)), meta((2, 3)),
    meta((3, 4)))),
    *[("aten.full", ([2, 3], v)) for v in (1, 1.5, True)], ("aten.zeros", ([2, 0],)),
    *[("aten.arange.start_step", (a, b, c)) for a, b, c in ((0, 5, 2), (5, 0, -2), (0.5, 3.0, 0.5))],
    *[("aten.var.correction", (meta(X), [1]))], ("aten.logsumexp", (meta(X), [0], True)),
    ("aten.where.self", (meta((2, 1), torch.bool), meta((3,)), meta((), torch.float64))),
    ("aten.clamp", (meta((2,), torch.int64), 1, 2.5)), ("aten.to.dtype", (meta((2,)), torch.int8)),
    *[("aten.clamp.Tensor", (meta((2, 1), d), meta((3,)), meta((),
    torch.float64))) for d in (torch.int64, torch.float16)],
    *[("aten.pow.Scalar", (n, meta((2,), d))) for n in (2, 2.5) for d in (torch.int32, torch.float16)],
    ("aten.layer_norm", (meta(X), [4])), ("aten.linalg_vector_norm", (meta(X), 2, [1], True)),
]  # fmt: skip


@pytest.mark.parametrize("name, args", CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)])
def test_other_ops(name: str, args: tuple[Any, ...]) -> None:
    refused = name == "aten.mean.dim" and args[0].dtype is torch.int64
    assert agree(name, *args) is not refused


@pytest.mark.parametrize("mode", [None, "floor", "trunc"])
def test_division_with_a_rounding_mode(mode: str | None) -> None:
    for d, e in itertools.product((torch.int64, torch.float16, torch.float32), repeat=2):
        assert agree("aten.div.Tensor_mode", meta((2, 1), d), meta((3,), e), rounding_mode=mode)
        assert agree("aten.div.Scalar_mode", meta((2, 1), d), 2, rounding_mode=mode)


def test_rounding_to_decimals() -> None:
    assert agree("aten.round.decimals", meta((2,)), decimals=2)


def test_unknown_sizes_stay_unknown() -> None:
    block = Block(arg_types=[vtensor((None, 4), dtypes.float32.torch_type), vtensor((1, 4), dtypes.float32.torch_type)])
    t = TorchBuilder(block)
    x, y = block.args
    assert t.add(x, y).type == vtensor((None, 4), dtypes.float32.torch_type)
    assert t.view(x, [-1]).type == vtensor((None,), dtypes.float32.torch_type)
    assert t.sum(x, [0]).type == vtensor((4,), dtypes.float32.torch_type)


def test_operands_that_do_not_fit_are_refused_with_a_reason() -> None:
    block = Block(arg_types=[vtensor((2, 3), dtypes.float32.torch_type), vtensor((4,), dtypes.float32.torch_type)])
    t = TorchBuilder(block)
    with pytest.raises(InferenceError, match="do not broadcast: 3 and 4"):
        t.add(*block.args)
    with pytest.raises(InferenceError, match="contracting dimension: 3 and 4"):
        t.matmul(*block.args)
    with pytest.raises(TypeError, match="no overload"):
        t.relu("text")


def test_lists_and_numbers_are_typed() -> None:
    part = vtensor((None, 2), dtypes.float32.torch_type)
    block = Block(arg_types=[vtensor((None, 4), dtypes.float32.torch_type)])
    t = TorchBuilder(block)
    (x,) = block.args
    assert t.call("aten.chunk", x, 2, 1).type == list_of(part)
    assert t.call("aten.split.sizes", x, [1, 3], 1).type == list_of(vtensor((None, None), dtypes.float32.torch_type))
    assert t.call("aten.size", x).type == list_of(INT)
    assert t.call("aten.mul.float_int", 1.5, t.call("aten.size.int", x, 0)).type == FLOAT
    with pytest.raises(InferenceError, match="how many parts"):
        t.call("aten.chunk", x, 2, 0)
    with pytest.raises(InferenceError, match="squeeze drops it"):
        t.squeeze(x)
