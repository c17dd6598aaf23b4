"""Activations and their gradients, against eager PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from edge_values import EDGES, every
from support import check, check_all

import flambeau


def test_activations_match_eager() -> None:
    x = torch.linspace(-6, 6, 37)
    every(
        [
            F.relu, F.relu6, F.gelu, lambda v: F.gelu(v, approximate="tanh"), F.silu, F.mish, F.elu, F.celu, F.selu,
            F.softplus, F.logsigmoid, F.hardtanh, F.hardsigmoid, F.hardswish, F.hardshrink, F.softshrink, F.softsign,
            F.tanhshrink, F.leaky_relu, lambda v: F.threshold(v, 0.1, 20.0), lambda v: F.prelu(v, torch.tensor([0.2])),
        ],
        x,
    )  # fmt: skip


def test_relu_and_clamp_let_nan_through() -> None:
    every([F.relu, lambda x: x.clamp(-1, 1), lambda x: x.clamp(min=0), lambda x: x.clamp(max=2.0), F.relu6], EDGES)


def test_gradients_of_thresholds_promote_their_operands() -> None:
    half, single = torch.tensor([1.0, 2.0, -3.0, 0.5]).half(), torch.tensor([0.1, -0.2, 0.3, float("nan")])
    ops = (torch.ops.aten.hardshrink_backward, torch.ops.aten.softshrink_backward)
    check_all([(lambda g, x, op=op: op(g, x, 0.2), pair) for op in ops for pair in ((half, single), (single, half))])
    check(lambda g, x: torch.ops.aten.threshold_backward(g, x, 0.2), single, half)
    with pytest.raises(flambeau.CompileError, match="traces another dtype"):
        check(lambda g, x: torch.ops.aten.threshold_backward(g, x, 0.2), half, single)
