"""PyTorch's own samples of its ops, on lazy tensors and in eager PyTorch: S51."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch._lazy
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from flambeau import lazy

SHARDS, SAMPLES = 8, 2
OTHERWISE = {
    "resize_": "a lazy tensor keeps its shape",
    "resize_as_": "a lazy tensor keeps its shape",
    "tensor_split": "PyTorch wants its sections on the CPU",
    "_batch_norm_with_update": "its last result is scratch memory of the kernel",
    "jiterator_unary": "it is for GPUs",
    "torch._scaled_mm": "assert_close does not compare 8-bit floats with a tolerance",
}
"""Ops that are not compared, and why."""
UNSPECIFIED = ("empty", "eig", "svd", "qr", "lobpcg", "lowrank", "fractional")
"""Parts of the names of ops whose results are not determined: uninitialised, or up to a sign or a choice."""
RANDOM = (
    "bernoulli", "cauchy", "dropout", "exponential", "geometric", "multinomial", "normal", "rand", "rrelu", "uniform",
)  # fmt: skip
"""Ops whose results are compared in shape alone. Their samples set PyTorch's generator back behind them."""
CASES = [op for i, op in enumerate(op_db) if i % SHARDS == 0 and torch.float32 in op.dtypes]


def moved(value: Any, device: Any) -> Any:
    """Copy all tensors in a structure to a device."""
    return pytree.tree_map(
        lambda v: v.detach().clone().to(device) if isinstance(v, torch.Tensor)
        else torch.device(device) if isinstance(v, torch.device) or v == "cpu" else v,
        value,
    )  # fmt: skip


def compare(op: Any, sample: Any, function: Any, device: torch.device) -> bool:
    """Call a function on both; False where PyTorch itself does not take the sample."""
    ours = moved((sample.input, sample.args, sample.kwargs), device)
    theirs = moved((sample.input, sample.args, sample.kwargs), "cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        before = torch.get_rng_state()
        try:
            expected = function(theirs[0], *theirs[1], **theirs[2])
        except (RuntimeError, TypeError, ValueError):
            return False
        draws = not torch.equal(torch.get_rng_state(), before)
        found = moved(function(ours[0], *ours[1], **ours[2]), "cpu")
    if draws or any(part in op.name for part in RANDOM):
        assert [v.shape for v in leaves(found)] == [v.shape for v in leaves(expected)]
        return True
    for a, b in zip(leaves(found), leaves(moved(expected, "cpu")), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3, equal_nan=True, check_stride=False)
    return True


def leaves(value: Any) -> list[torch.Tensor]:
    return [v for v in pytree.tree_leaves(value) if isinstance(v, torch.Tensor)]


@pytest.mark.parametrize("op", CASES, ids=lambda op: f"{op.name}.{op.variant_test_name}".rstrip("."))
def test_same_as_pytorch(op: Any, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch._lazy.mark_step", lambda *_: lazy.step())  # Samples mark a step on a device `lazy`.
    if op.name in OTHERWISE or any(part in op.name for part in UNSPECIFIED):
        pytest.skip(OTHERWISE.get(op.name, "its results are not determined"))
    dense = (
        s
        for s in op.sample_inputs("cpu", torch.float32)
        if all(_is_dense(v) for v in leaves((s.input, s.args, s.kwargs)))
    )
    functions = [op.op, *([op.inplace_variant] if op.inplace_variant else [])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        taken = [compare(op, s, f, device) for _, s in zip(range(SAMPLES), dense, strict=False) for f in functions]
    assert any(taken) or not taken, "PyTorch itself takes no sample"
    allowed = (
        "nonzero",
        "unique",
        "bincount",
        "lstsq",
        "repeat_interleave",
        "masked_select",
        "polygamma_",
        "ctc",
        "sparse",
    )
    assert [name for name in lazy.report().fallbacks if not any(part in name for part in allowed)] == []


def _is_dense(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided
