"""Programs that write in place run as they do in eager PyTorch, and nobody else sees the difference."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import pytest
import torch
from fx_support import Counter, load, matrix, ops_of, runs_like_eager, same_call
from support import Together, assert_same
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import flambeau


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


# Writes: in-place ops, and writes through views


def relu_(x: Tensor) -> Tensor:
    return x.clone().relu_()


def add_(x: Tensor) -> Tensor:
    y = x * 1
    y.add_(x, alpha=2)
    y += 1
    return y


def operators(x: Tensor) -> Tensor:
    y = x.clone()
    y -= 1
    y *= x
    y /= 2
    return y


def copy_(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y.copy_(x[0])
    return y


def zero_and_fill_(x: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x.clone(), x.clone()
    a.zero_()
    b.fill_(3.5)
    return a, b


def clamp_(x: Tensor) -> Tensor:
    return x.clone().clamp_(-1, 2)


def masked_fill_(x: Tensor) -> Tensor:
    return x.clone().masked_fill_(x > 2, -7.0)


def index_put_(x: Tensor) -> Tensor:
    y = x.clone()
    y.index_put_((torch.tensor([0, 2]), torch.tensor([1, 3])), torch.tensor([10.0, 20.0]))
    return y


def chained(x: Tensor) -> Tensor:
    return x.clone().mul_(2).add_(1).neg_().sigmoid_()


def copy_of_another_dtype_(x: Tensor) -> Tensor:
    y = torch.zeros(3, 4, dtype=torch.int64)
    y.copy_(x)
    return y


def write_a_column(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 0] = 1
    return y


def write_by_mask(x: Tensor) -> Tensor:
    y = x.clone()
    y[y > 2] = 0
    return y


def write_by_indices(x: Tensor) -> Tensor:
    y = x.clone()
    y[torch.tensor([0, 2])] = y[1].clone()
    return y


def write_a_block(x: Tensor) -> Tensor:
    y = x.clone()
    y[1:, 1:3] = x[:2, :2]
    return y


def write_every_other(x: Tensor) -> Tensor:
    y = x.clone()
    y[::2, 1::2] += 100
    return y


def write_from_the_end(x: Tensor) -> Tensor:
    y = x.clone()
    y[-1, -2:] = 9
    return y


def write_through_select(x: Tensor) -> Tensor:
    y = x.clone()
    y[1].mul_(10)
    return y


def write_through_view(x: Tensor) -> Tensor:
    y = x.clone()
    y.view(2, 6)[0].add_(1)
    y.view(-1)[3:7] = 0
    return y


def write_through_transpose(x: Tensor) -> Tensor:
    y = x.clone()
    y.t()[1].zero_()
    y.transpose(0, 1)[2, :2] = 5
    return y


def write_through_permute_and_unsqueeze(x: Tensor) -> Tensor:
    y = x.clone()
    y.unsqueeze(1).permute(2, 1, 0)[0].fill_(4)
    y.unsqueeze(0).squeeze(0)[2].fill_(6)
    return y


def write_through_split(x: Tensor) -> Tensor:
    y = x.clone()
    a, b = y.split([1, 3], dim=1)
    a.fill_(1)
    b.mul_(-1)
    return y


def write_through_chunk(x: Tensor) -> Tensor:
    y = x.clone()
    for i, part in enumerate(y.chunk(2, dim=1)):
        part.add_(10 * i)
    return y


def write_through_split_of_the_last_dim(x: Tensor) -> Tensor:
    y = x.clone()
    a, b = y.split(2, dim=-1)
    a.add_(b)
    return y


def write_through_unbind(x: Tensor) -> Tensor:
    y = x.clone()
    for i, row in enumerate(y.unbind(0)):
        row.add_(i)
    return y


def write_through_diagonal(x: Tensor) -> Tensor:
    y = x.clone()
    y.diagonal().fill_(8)
    y.diagonal(1).add_(1)
    return y


def write_through_nested_views(x: Tensor) -> Tensor:
    y = x.clone()
    y.t()[1:].reshape(3, 3)[:, 1:][0].add_(50)
    y[1:].t()[2:, 0].zero_()
    return y


def write_through_expanded_source(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 1:].copy_(x[0, 1:].expand(3, 3))
    return y


def views_see_later_writes(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    row, before = y[1], y[1] + 0
    y.add_(1)
    return row * 2, before


def writes_see_earlier_reads(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x.clone()
    z = y + 1
    y.zero_()
    return y, z


def write_in_a_loop(x: Tensor) -> Tensor:
    out = torch.empty(3, 4)
    for i in range(3):
        out[i] = x[i].cumsum(0) if i else x[i]
    return out


def write_through_reshapes_of_a_transpose(x: Tensor) -> tuple[Tensor, Tensor]:
    """Both are views, which the sizes alone do not tell."""
    y = torch.einsum("ij,kj->kij", x, x)
    z = y.reshape(*y.shape[:-1], 1, -1)[..., 1:].reshape(y.shape[0], y.shape[1], -1)[..., :2]
    z *= x[0, 0]
    return z + 1, y


WRITES = [
    write_through_reshapes_of_a_transpose,
    relu_, add_, operators, copy_, zero_and_fill_, clamp_, masked_fill_, index_put_, chained, copy_of_another_dtype_,
    write_a_column, write_by_mask, write_by_indices, write_a_block,
    write_every_other, write_from_the_end,
    write_through_select, write_through_view, write_through_transpose, write_through_permute_and_unsqueeze,
    write_through_split, write_through_chunk,
    write_through_split_of_the_last_dim, write_through_unbind,
    write_through_diagonal, write_through_nested_views, write_through_expanded_source, views_see_later_writes,
    writes_see_earlier_reads, write_in_a_loop,
]  # fmt: skip


@pytest.mark.engine
@pytest.mark.parametrize("x", [torch.tensor(True), torch.full((3,), 100, dtype=torch.int8)], ids=["bool", "int8"])
def test_sums_in_place_are_of_the_dtype_of_the_tensor(x: Tensor) -> None:
    runs_like_eager(lambda x: (x.clone().cumsum_(0), x.clone().cumprod_(0)), x)


STATIC = Together({f.__name__: partial(flambeau.compile, f, (matrix(),)) for f in WRITES})


@pytest.mark.engine
@pytest.mark.parametrize("function", WRITES, ids=lambda f: f.__name__)
def test_writes(function: Callable[[Tensor], Any]) -> None:
    same_call(STATIC[function.__name__], function, matrix())


DYNAMIC_WRITES = [
    relu_, add_, clamp_, masked_fill_, write_a_column, write_by_mask, write_every_other, write_through_select,
    write_through_transpose, views_see_later_writes,
]  # fmt: skip


OPEN = ({0: Dim.DYNAMIC, 1: Dim.DYNAMIC},)
DYNAMIC = Together({f.__name__: partial(flambeau.compile, f, (matrix(),), dynamic_shapes=OPEN) for f in DYNAMIC_WRITES})


@pytest.mark.engine
@pytest.mark.parametrize("function", DYNAMIC_WRITES, ids=lambda f: f.__name__)
def test_writes_with_dynamic_sizes(function: Callable[[Tensor], Any]) -> None:
    run = DYNAMIC[function.__name__]
    for shape in ((3, 4), (5, 7)):
        x = torch.randn(shape) * 3
        assert_same(pytree.tree_leaves(run(x)), pytree.tree_leaves(function(x)))


def less_than_itself(x: Tensor) -> Tensor:
    x.view(1, -1).lt_(x)
    return x * 2


def minus_its_diagonal(x: Tensor) -> Tensor:
    y = x.expand(3, 3).clone()
    return y.sub_(y.diagonal())


# Eager PyTorch leaves it to its loops what they read of a part that they have written.
@pytest.mark.parametrize(
    ("function", "expected"), [(less_than_itself, torch.zeros(3)), (minus_its_diagonal, torch.zeros(3, 3))]
)
@pytest.mark.parametrize("stage", ["raw", "torch"])
def test_an_operand_that_shares_memory_with_what_is_written_is_read_before(
    function: Callable[[Tensor], Tensor], expected: Tensor, stage: str
) -> None:
    x = torch.tensor([2.0, 0.0, 0.5, 0.0, -1.0, 0.0])[::2]
    module = flambeau.compile(function, (x.clone(),), output_type=stage)
    assert_same(flambeau.load(module, engine="eager")(x), expected)


def test_programs_without_writes_have_values_only() -> None:
    module = flambeau.compile(lambda x: x.t().relu()[1:], (matrix(),), output_type="raw")
    assert "!torch.tensor" not in str(module)
    assert ops_of(module) == ["torch.aten.t", "torch.aten.relu", "torch.aten.slice.Tensor"]


def test_only_the_written_alias_set_is_mutable() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.clone().relu_(), x.sigmoid()

    raw = str(flambeau.compile(program, (matrix(),), output_type="raw"))
    assert "torch.aten.relu_ %" in raw
    assert "!torch.tensor<[3,4],f32> -> !torch.tensor<[3,4],f32>" in raw
    sigmoid = next(line for line in raw.splitlines() if "aten.sigmoid" in line)
    assert "!torch.tensor" not in sigmoid
    torch_text = str(flambeau.compile(program, (matrix(),), output_type="torch"))
    assert "!torch.tensor" not in torch_text
    assert "relu_" not in torch_text


# What the caller sees: aliases, mutated inputs and buffers


@pytest.mark.engine
def test_results_that_are_one_tensor() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x + 1
        return y, y, y.view(-1)

    runs_like_eager(program, matrix())


@pytest.mark.engine
def test_an_argument_that_is_returned() -> None:
    runs_like_eager(lambda x: (x, x.t(), x + 1), matrix())


@pytest.mark.engine
def test_writes_into_an_argument_reach_the_caller() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        return x * 2

    module = runs_like_eager(program, matrix(), torch.ones(3, 4))
    (mutation,) = module.signatures["main"].mutations
    assert module.signatures["main"].arguments[mutation.argument].name.startswith("arg")


@pytest.mark.engine
def test_writes_through_a_view_of_an_argument_reach_the_caller() -> None:
    def program(x: Tensor) -> Tensor:
        x[:, 0] = 1
        x.t()[2].mul_(3)
        return x.sum()

    runs_like_eager(program, matrix())


@pytest.mark.engine
def test_a_written_argument_that_is_returned() -> None:
    runs_like_eager(lambda x: x.mul_(2), matrix())


@pytest.mark.engine
def test_a_program_that_only_writes() -> None:
    def program(x: Tensor) -> None:
        x.zero_()

    runs_like_eager(program, matrix())


@pytest.mark.engine
def test_buffers_are_written_back() -> None:
    module = runs_like_eager(Counter(), matrix(), calls=3)
    signature = module.signatures["main"]
    assert {a.state for a in signature.arguments} == {None, "calls", "total"}
    assert {signature.arguments[m.argument].state for m in signature.mutations} == {"calls", "total"}


class SlotCache(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(3, 4), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.cache[1:] = self.cache[:-1].clone()
        self.cache[0] = x
        return self.cache.sum(0)


@pytest.mark.engine
def test_a_buffer_is_written_through_views() -> None:
    model = SlotCache()
    eager = deepcopy(model)
    run = load(flambeau.compile(model, (torch.ones(4),)))
    for i in range(4):
        x = torch.full((4,), float(i + 1))
        assert_same(run(x), eager(x))
    assert_same(model.cache, torch.tensor([[4.0], [3.0], [2.0]]).expand(3, 4))


@pytest.mark.engine
def test_batch_norm_updates_its_statistics() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4, momentum=0.3)).train()
    runs_like_eager(model, torch.randn(6, 4), calls=2)
    assert model[0].num_batches_tracked.item() == 2


@pytest.mark.engine
def test_instance_norm_updates_its_statistics() -> None:
    model = nn.Sequential(nn.InstanceNorm1d(4, momentum=0.3, affine=True, track_running_stats=True)).train()
    runs_like_eager(model, torch.randn(3, 4, 5), calls=2)


@pytest.mark.engine
@pytest.mark.parametrize("training", [False, True])
def test_native_norms_update_what_they_are_given(training: bool) -> None:
    class Norms(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in "abcd":
                self.register_buffer(name, torch.rand(4) + 0.5)

        def forward(self, x: Tensor) -> tuple[Any, ...]:
            aten = torch.ops.aten
            legit = aten._native_batch_norm_legit(x, None, None, self.a, self.b, training, 0.2, 1e-5)
            return *legit[:3], aten.native_batch_norm(x, None, None, self.c, self.d, training, 0.2, 1e-5)[0]

    runs_like_eager(Norms(), torch.randn(3, 4, 5), calls=2)


# Constants, of which PyTorch has a new fake tensor for each op, or one for several


def strides_of_a_constant(x: Tensor) -> tuple[Tensor, Tensor]:
    constant = torch.tensor([1.0, -2.0, 0.5, 4.0])
    before = constant * x
    with torch.no_grad():
        part = constant.as_strided((2,), (1,))
        torch.add(part, -1, out=part)
    return before, constant


@pytest.mark.parametrize("output_type", ["raw", "torch"])
def test_a_constant_written_through_strides_is_new_in_each_call(output_type: str) -> None:
    x = torch.ones(4)
    run = flambeau.load(flambeau.compile(strides_of_a_constant, (x,), output_type=output_type), engine="eager")
    for _ in range(3):
        assert_same(run(x), strides_of_a_constant(x))


class ByAnotherType(nn.Module):
    """Writes a plain tensor by way of `type_as`, which gives the tensor itself back."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = [torch.ones(4)]

    def forward(self, x: Tensor) -> Tensor:
        self.kept[0].type_as(x).ravel().contiguous().mul_(3)
        return x.sum()


@pytest.mark.parametrize("output_type", ["raw", "torch"])
def test_type_as_of_a_tensor_with_dynamic_sizes_gives_the_tensor_itself(output_type: str) -> None:
    model, x = ByAnotherType(), torch.ones(4, 4)
    program = flambeau.compile(model, (x,), dynamic_shapes=({0: Dim.AUTO},), output_type=output_type)
    run = flambeau.load(program, engine="eager")
    for n in (2, 5):
        run(torch.ones(n, 4))
    assert_same(model.kept[0], torch.full((4,), 9.0))
