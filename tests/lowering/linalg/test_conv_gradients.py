"""`aten.convolution_backward`, of all kinds of convolutions, for each choice of gradients."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from support import check_all
from torch import Tensor

ASKED = [mask for mask in itertools.product((False, True), repeat=3) if any(mask)]

# sizes, channels in and out, kernel, stride, padding, dilation, groups, output_padding (None: not transposed)
KINDS: dict[str, tuple[Any, ...]] = {
    "1d": ((11,), 2, 3, (3,), (1,), (0,), (1,), 1, None),
    "1d, strided, with a rest": ((12,), 2, 4, (3,), (2,), (1,), (2,), 2, None),
    "2d, padded": ((6, 7), 2, 3, (3, 2), (1, 1), (1, 0), (1, 1), 1, None),
    "2d, strided, dilated, grouped": ((9, 8), 4, 6, (2, 3), (2, 3), (1, 2), (2, 1), 2, None),
    "2d, depthwise": ((6, 6), 3, 3, (3, 3), (1, 2), (1, 1), (1, 1), 3, None),
    "2d, of single points": ((5, 4), 3, 2, (1, 1), (2, 1), (0, 0), (1, 1), 1, None),
    "3d": ((4, 5, 5), 2, 2, (2, 3, 2), (1, 2, 1), (0, 1, 1), (1, 1, 2), 1, None),
    "3d, grouped": ((4, 4, 4), 2, 4, (2, 2, 2), (2, 1, 1), (1, 0, 0), (1, 1, 1), 2, None),
    "1d, transposed": ((6,), 2, 4, (3,), (2,), (1,), (1,), 2, (1,)),
    "2d, transposed": ((5, 4), 2, 3, (3, 2), (2, 1), (1, 0), (1, 2), 1, (1, 1)),
    "2d, transposed, grouped": ((4, 4), 4, 4, (2, 2), (2, 2), (0, 1), (1, 1), 2, (0, 0)),
    "3d, transposed": ((3, 3, 4), 2, 2, (2, 2, 2), (2, 1, 2), (0, 1, 0), (1, 1, 1), 1, (1, 0, 0)),
}


def gradients(kind: str, mask: tuple[bool, ...]) -> Any:
    """Make a function of the gradient, the input and the weight, and arguments for it."""
    sizes, inputs, outputs, kernel, stride, padding, dilation, groups, extra = KINDS[kind]
    transposed = extra is not None
    x = torch.randn(2, inputs, *sizes)
    pair = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    weight = torch.randn(*pair, *kernel)
    settings = ([outputs], stride, padding, dilation, transposed, extra or [0] * len(sizes), groups)
    shape = torch.convolution(x, weight, None, *settings[1:]).shape

    def function(g: Tensor, x: Tensor, w: Tensor) -> list[Tensor]:
        found = torch.ops.aten.convolution_backward(g, x, w, *settings, mask)
        return [gradient for gradient, is_asked in zip(found, mask, strict=True) if is_asked]

    return function, (torch.randn(*shape), x, weight)


@pytest.mark.engine
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients_of_convolutions(dynamic: bool) -> None:
    """S34: every output mask, in 1d, 2d and 3d."""
    masks = ASKED if not dynamic else [(True, True, True)]
    check_all([gradients(k, m) for k in KINDS for m in masks], dynamic=dynamic, rtol=1e-4, atol=1e-3)
