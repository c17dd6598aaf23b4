"""What a TorchScript program asks of a tensor besides its contents: the answer is right, or the question is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from support import assert_same
from torch import Tensor, nn

import flambeau
from flambeau import torchscript


def device_type(x: Tensor) -> Tensor:
    return x + 1 if x.device.type == "cpu" else x - 1


def device_equal(x: Tensor) -> Tensor:
    return x + 1 if x.device == torch.device("cpu") else x - 1


def device_differs(x: Tensor) -> Tensor:
    return x + 1 if x.device != torch.device("cuda:0") else x - 1


def device_index(x: Tensor) -> Tensor:
    return x + 1 if x.device.index is None else x - 1


def index_of_another(x: Tensor) -> Tensor:
    index = torch.device("cuda:3").index
    return x + (0 if index is None else index)


def device_name(x: Tensor) -> Tensor:
    return x + 1 if str(x.device) == "cpu" else x - 1


def same_device(x: Tensor) -> Tensor:
    y = torch.ones(3, device=x.device)
    return x + y if y.device == x.device else x - 1


def on_device(x: Tensor) -> tuple[bool, bool, bool, bool, int]:
    return x.is_cuda, x.is_cpu, x.is_mps, x.is_xpu, x.get_device()


def kinds(x: Tensor) -> tuple[bool, bool, bool, bool, bool]:
    return x.is_sparse, x.is_quantized, x.is_mkldnn, x.is_meta, x.is_vulkan


def dtypes_and_sizes(x: Tensor) -> tuple[bool, bool, bool, bool, int, int, int, int]:
    n, size = x.ndim, x.itemsize
    return x.is_floating_point(), x.is_complex(), x.is_signed(), x.is_conj(), n, x.numel(), size, x.element_size()


def bytes_of(x: Tensor) -> tuple[int, int]:
    return x.nbytes, x.to(torch.uint8).nbytes


def dtype_compared(x: Tensor) -> Tensor:
    return x + 1 if x.dtype == torch.float32 and x.dtype != torch.float64 else x - 1


def layout_compared(x: Tensor) -> Tensor:
    return x + 1 if x.layout == torch.strided else x - 1


def gradient(x: Tensor) -> tuple[bool, bool, Tensor]:
    y = x * 2
    return x.requires_grad, y.requires_grad, y - 1 if y.requires_grad else y + 1


PROGRAMS: list[Callable[..., Any]] = [
    device_type, device_equal, device_differs, device_index, index_of_another, device_name, same_device, on_device,
    kinds, dtypes_and_sizes, bytes_of, dtype_compared, layout_compared, gradient,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_answer_is_that_of_pytorch(program: Callable[..., Any]) -> None:
    x = torch.tensor([1.0, -2.0, 0.5])
    module = torchscript.compile(program, (x,), "torch")
    assert_same(flambeau.load(module, engine="eager")(x), torch.jit.script(program)(x))
    # Nothing is left for a lowering to answer.
    assert "torch.operator" not in str(module)
    flambeau.compile(module)


def test_the_answer_depends_on_the_dtype() -> None:
    for x in (torch.tensor([True]), torch.tensor([3], dtype=torch.uint8), torch.tensor([0.5, 1]).half()):
        module = torchscript.compile(dtypes_and_sizes, (x,), "torch")
        assert_same(flambeau.load(module, engine="eager")(x), torch.jit.script(dtypes_and_sizes)(x))


def test_a_program_computes_no_gradients() -> None:
    def program(x: Tensor) -> Tensor:
        return x - 1 if torch.is_grad_enabled() else x + 1

    x = torch.ones(3)
    module = torchscript.compile(program, (x,), "torch")
    with torch.no_grad():
        assert_same(flambeau.load(module, engine="eager")(x), torch.jit.script(program)(x))


def is_pinned(x: Tensor) -> Tensor:
    return x + 1 if x.is_pinned() else x - 1


def is_contiguous(x: Tensor) -> Tensor:
    return x + 1 if x.is_contiguous() else x - 1


def stride(x: Tensor) -> Tensor:
    return x + 1 if x.stride()[0] == 1 else x - 1


def is_conj(x: Tensor) -> Tensor:
    y = torch.complex(x, x).conj()
    return x + 1 if y.is_conj() else x - 1


@pytest.mark.parametrize("program", [is_pinned, is_contiguous, stride, is_conj], ids=lambda p: p.__name__)
def test_what_nobody_can_know_is_refused(program: Callable[..., Any]) -> None:
    with pytest.raises(flambeau.CompileError, match=f"aten.{program.__name__}"):
        torchscript.compile(program, (torch.ones(3),), "linalg-on-tensors")


class Weight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if self.weight.requires_grad else x - 1


def test_whether_a_weight_requires_a_gradient_is_refused() -> None:
    with pytest.raises(flambeau.CompileError, match="whether a weight requires a gradient"):
        torchscript.compile(Weight(), (torch.ones(3),), "linalg-on-tensors")
