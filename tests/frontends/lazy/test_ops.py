"""What lazy tensors hold is what PyTorch's hold, whatever is done with them: S51."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

from flambeau import lazy

Device = torch.device | str
Case = Callable[[Any], Any]


def in_place(d: Device) -> Any:
    x = torch.arange(6.0, device=d).reshape(2, 3)
    x.add_(1).mul_(2)
    x[0] = 5
    x[:, 1] += 1
    x[1, 2] = -1
    return x


def writes_through_views(d: Device) -> Any:
    x = torch.zeros(4, 4, device=d)
    v = x.view(2, 8)
    w = v[1]
    w.add_(3)
    x.t()[0].fill_(7)
    a, b = x.split(2)
    b.mul_(2)
    c = x.diagonal()
    c.add_(1)
    x.unsqueeze(0).squeeze(0).permute(1, 0)[1].sub_(4)
    x.unbind(1)[2].zero_()
    return x, v, w, a, b, c


def views_see_writes(d: Device) -> Any:
    x = torch.arange(8.0, device=d)
    y = x[2:6]
    z = y[::2]
    x.add_(1)
    r = z.clone()
    z.zero_()
    return x, y, z, r


def strided_views(d: Device) -> Any:
    x = torch.arange(6.0, device=d)
    x.as_strided((2, 2), (2, 1)).add_(10)
    windows = x[1:].as_strided((3, 2), (1, 2))
    x.mul_(2)
    row = x.view(1, 6)[0]
    row.unsqueeze_(0).add_(1)
    square = x.reshape(2, 3).clone()
    square.t_()[0] = -1
    return (
        x,
        windows,
        row,
        square,
        torch.stft(x, 4, center=False, return_complex=True, window=torch.ones(4).to(d)).abs(),
    )


def conjugates(d: Device) -> Any:
    x = torch.complex(torch.arange(3.0, device=d), torch.ones(3, device=d))
    x.conj().mul_(torch.complex(torch.tensor(0.0), torch.tensor(1.0)).to(d))
    return torch.view_as_real(x), x.conj().imag, torch.fft.rfft(torch.arange(4.0, device=d)).abs()


def out_variants(d: Device) -> Any:
    x = torch.arange(4.0, device=d)
    filled, grown = torch.empty(4, device=d), torch.empty(0, device=d)
    torch.add(x, 1, out=filled)
    torch.mul(x, x, out=grown)
    torch.sum(x, 0, out=filled[1])
    values, places = torch.empty(0, device=d), torch.empty(0, dtype=torch.long, device=d)
    torch.max(x.reshape(2, 2), 1, out=(values, places))
    return filled, grown, values, places


def dtypes(d: Device) -> Any:
    x = torch.arange(4, device=d)
    y = x.to(torch.float16) + 1.5
    x += 2
    half = torch.ones(2, dtype=torch.float16, device=d)
    half.add_(torch.full((2,), 0.1, device=d))
    return x, y, x / 2, x.double(), (x > 2) & (x < 5), half, x * 2.5, x * True


def indices(d: Device) -> Any:
    x = torch.arange(12.0, device=d).reshape(3, 4)
    i = torch.tensor([0, 2], device=d)
    x[i] = 0
    x[x > 8] = -1
    return x, x[i, 1], x[None, ..., ::2], x.index_select(0, i), x.scatter(0, i[None], 3.0), x[torch.tensor(1, device=d)]


def contents(d: Device) -> Any:
    x = torch.arange(3.0, device=d)
    total = sum(v.item() for v in x)
    total += 1 if x.sum() > 2 else 0
    parts = float(x[1]), int(x[2]), bool(x[0]), len(x), [10, 11, 12][x[1].long()], f"{x[1]:.1f}" == "1.0"
    return total, x.tolist(), x.cpu().numpy().tolist(), parts, x.equal(x), torch.allclose(x, x + 1)


def factories(d: Device) -> Any:
    like = torch.ones(2, device=d)
    return (
        torch.zeros(2, device=d), torch.ones(2, 3, device=d, dtype=torch.int), torch.full((2,), 3.5, device=d),
        torch.arange(2, 9, 3, device=d), torch.linspace(0, 1, 5, device=d), torch.eye(3, device=d),
        torch.tensor([[1, 2]], device=d), torch.as_tensor([1.5], device=d), torch.zeros_like(like),
        torch.tril(torch.ones(3, 3, device=d)), torch.empty(2, 2, device=d).fill_(1),
        torch.scalar_tensor(2.0, device=d),
        torch.tril_indices(3, 3, device=d), like.new_full((2,), 3.0), like.new_zeros(3), like.new_tensor([1.0, 2.0]),
        torch.hann_window(4, device=d), torch.tensor([torch.ones((), device=d), 2.0]),
    )  # fmt: skip


def gradients(d: Device) -> Any:
    x = torch.arange(6.0, device=d).reshape(2, 3).requires_grad_()
    w = torch.ones(3, 3, device=d, requires_grad=True)
    z = (x @ w).relu() * 1
    z[0].mul_(3)
    z.sum().backward()
    v = torch.arange(3.0, device=d).requires_grad_()
    (g,) = torch.autograd.grad((v**3).sum(), v, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), v)
    return x.grad, w.grad, g.detach(), h


def mixed_with_eager(d: Device) -> Any:
    x, e = torch.ones(3, device=d), torch.arange(3.0)
    y = x + e
    e.add_(100)  # what was recorded before is what counts
    into = torch.zeros(3)
    into.copy_(y)
    into.add_(x)
    return y, x * torch.tensor(2.0), into


def without_history(d: Device) -> Any:
    x = torch.ones(3, device=d, requires_grad=True)
    y = x.detach()
    with torch.no_grad():
        y.add_(1)
        x.data.mul_(3)
    z = torch.ones(3, device=d)
    z.data = torch.zeros(2, device=d).double()
    return x.detach(), y, z, z.dtype == torch.double, list(z.shape)


def batch_norm(d: Device) -> Any:
    m = nn.BatchNorm2d(3).to(d)
    x = torch.arange(24.0, device=d).reshape(2, 3, 2, 2) / 10
    y = m(x)
    m.eval()
    z = m(x)
    free = nn.BatchNorm2d(3, track_running_stats=False).to(d)(x)
    return y.detach(), z.detach(), free.detach(), m.running_mean, m.running_var, m.num_batches_tracked


def lists_of_tensors(d: Device) -> Any:
    ps = [torch.ones(2, device=d), torch.ones(3, device=d)]
    torch._foreach_add_(ps, 2.0)
    torch._foreach_mul_(ps, [2.0, 3.0])
    norms = torch._foreach_norm(ps)
    torch._foreach_addcdiv_(ps, ps, ps, value=0.5)
    return ps, norms


def clipping(d: Device) -> Any:
    p = torch.ones(3, device=d, requires_grad=True)
    (p * 3).sum().backward()
    n = nn.utils.clip_grad_norm_([p], 1.0)
    nn.utils.clip_grad_value_([p], 0.2)
    return p.grad, n


def several_results(d: Device) -> Any:
    x = torch.arange(4.0, device=d).reshape(2, 2)
    return torch.topk(x, 1), torch.sort(x.flatten()), torch.chunk(x, 2), x.max(1), torch.cat([x, x * 2], 1), x.std(0)


def layers(d: Device) -> Any:
    x = torch.arange(32.0, device=d).reshape(1, 2, 4, 4) / 10
    rows = x.reshape(4, 8)
    return (
        F.conv2d(x, torch.ones(3, 2, 3, 3, device=d) / 10, padding=1), F.max_pool2d(x, 2), F.avg_pool2d(x, 2),
        F.layer_norm(rows, (8,)), F.softmax(rows, 1), F.gelu(rows), F.interpolate(x, scale_factor=2),
        F.cross_entropy(rows, torch.tensor([0, 1, 3, 2], device=d)), F.scaled_dot_product_attention(x, x, x),
    )  # fmt: skip


def inference(d: Device) -> Any:
    with torch.inference_mode():
        m = nn.Linear(2, 2).to(d)
        for p in m.parameters():
            p.fill_(1.0)
        return m(torch.ones(1, 2, device=d)).reshape(2, 1).relu_()


CASES: list[Case] = [
    in_place, writes_through_views, views_see_writes, strided_views, conjugates, out_variants, dtypes, indices,
    contents, factories, gradients, mixed_with_eager, without_history, batch_norm, lists_of_tensors, clipping,
    several_results, layers, inference,
]  # fmt: skip


def plain(value: Any) -> Any:
    return pytree.tree_map(lambda v: v.detach().cpu() if isinstance(v, torch.Tensor) else v, value)


def expect_same(case: Case, device: Any) -> None:
    expected = plain(case("cpu"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no op runs in PyTorch
        found = plain(case(device))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, check_stride=False)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_same_as_pytorch(case: Case, device: torch.device) -> None:
    expect_same(case, device)
    assert lazy.report().fallbacks == {}


@pytest.mark.engine
@pytest.mark.parametrize(
    "case", [in_place, writes_through_views, out_variants, gradients, mixed_with_eager, batch_norm]
)
def test_same_as_pytorch_with_xla(case: Case, device: torch.device) -> None:
    lazy.use_engine("xla")
    expect_same(case, device)
    assert lazy.report().fallbacks == {}


def test_nothing_runs_before_somebody_asks(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    y = (x + 1) * 3
    assert lazy.report().graphs == []
    assert y.tolist() == [6.0, 6.0]
    assert lazy.report().compiles == 1


def test_what_nobody_holds_is_not_computed(device: torch.device) -> None:
    x = torch.ones(2).to(device)
    for _ in range(3):
        x.cos().sin()
    y = x + 1
    lazy.step()
    assert lazy.report().graphs[-1].ops == 1
    assert y.tolist() == [2.0, 2.0]


def test_print_shows_contents(device: torch.device) -> None:
    x = torch.tensor([1.0, 2.5], device=device)
    assert repr(x + 1) == "tensor([2.0000, 3.5000], device='lazy:1')"
    assert "requires_grad=True" in str(nn.Parameter(x))
    assert "Parameter containing" in str(nn.Parameter(x))
    assert "grad_fn=<MulBackward0>" in repr(x.requires_grad_() * 2)


def test_views_of_a_tensor_are_views_to_autograd(device: torch.device) -> None:
    w = torch.ones(3, device=device, requires_grad=True)
    y = w * w
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_copies_are_apart(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    x.cpu().add_(5)
    y = x.clone()
    y.add_(1)
    assert x.tolist() == [1.0, 1.0]
    assert y.tolist() == [2.0, 2.0]
