"""State: what a program writes, registered or not, holds after each call what eager PyTorch leaves there."""

from __future__ import annotations

import threading
from copy import deepcopy

import pytest
import torch
from fx_support import THREE, stages, state_of, steps_like_eager
from support import assert_same
from torch import Tensor, nn

import flambeau
from flambeau.diagnostics import CompileError
from flambeau.ir.arrays import as_bytes


class PlainAttribute(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.h = torch.zeros(2)

    def forward(self, x: Tensor) -> Tensor:
        self.h.add_(x)
        return self.h * 2


@pytest.mark.engine
def test_a_plain_tensor_attribute_that_is_written_is_state() -> None:
    module = steps_like_eager(PlainAttribute, *THREE, on_iree=True)
    (argument,) = [a for a in module.signatures["main"].arguments if a.state is not None]
    assert argument.name == argument.state == "h"


class InContainers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = {"a": torch.zeros(2), "more": [torch.ones(2), (torch.full((2,), 3.0),)]}
        self.inner = nn.ModuleList([PlainAttribute()])

    def forward(self, x: Tensor) -> Tensor:
        self.table["a"].add_(x)
        self.table["more"][0].mul_(2)
        self.table["more"][1][0][0:1].sub_(x[1])
        return self.table["a"] + self.table["more"][0] + self.table["more"][1][0] + self.inner[0](x)


def test_state_in_containers_and_in_parts_of_the_model() -> None:
    steps_like_eager(InContainers, *THREE)


class Regions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.zeros(2))
        self.codebook = nn.Parameter(torch.ones(3, 2))
        self.count = torch.zeros(())

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            self.average.mul_(0.5).add_(x, alpha=0.5)
            first = self.codebook[0]
            first.copy_(self.average)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                self.count.add_(1)
                score = self.codebook @ x
        with torch.set_grad_enabled(True):
            self.average[1:].clamp_(max=3)
        return self.codebook.sum(0) + self.average, score


@pytest.mark.engine
def test_writes_inside_no_grad_and_autocast_regions_are_seen() -> None:
    module = steps_like_eager(Regions, *THREE, on_iree=True)
    states = {a.state for a in module.signatures["main"].arguments if a.state is not None}
    assert states == {"average", "codebook", "count"}


class SharedMemory(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        whole = torch.arange(12.0).reshape(3, 4)
        self.register_buffer("whole", whole)
        self.register_buffer("again", whole)
        self.register_buffer("column", whole[:, 1])
        self.weight = nn.Parameter(whole[1:, 2:])
        self.turned = whole.t()[1:3]

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        before = self.weight.sum()
        self.column.add_(x.sum())
        self.again[0].mul_(2)
        with torch.no_grad():
            self.weight[0, 0] = 100
            self.turned[1].sub_(1)
        return before, self.whole + 0, self.column * 1, self.weight * 1, self.turned.sum()


@pytest.mark.engine
def test_a_write_through_one_of_several_views_is_seen_through_the_others() -> None:
    steps_like_eager(SharedMemory, *THREE, on_iree=True)


class TwoNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(2))
        self.register_buffer("b", self.a)

    def forward(self, x: Tensor) -> Tensor:
        self.a.add_(x)
        self.b.mul_(2)
        return self.a - x


def test_two_names_of_one_buffer_are_one_argument() -> None:
    module = steps_like_eager(TwoNames, *THREE)
    assert sum(a.state is not None for a in module.signatures["main"].arguments) == 1


class OtherDtype(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("bits", torch.zeros(2, dtype=torch.int32))
        self.register_buffer("numbers", self.bits.view(torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        self.numbers.add_(x)
        return self.bits + 1


def test_memory_that_is_seen_as_two_dtypes_is_refused_by_name() -> None:
    with pytest.raises(CompileError, match="'bits' and 'numbers' share"):
        flambeau.compile(OtherDtype(), THREE[0])


class Neighbours(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        memory = torch.zeros(4)
        self.register_buffer("left", memory[:2])
        self.register_buffer("right", memory[2:])

    def forward(self, x: Tensor) -> Tensor:
        self.left.add_(x)
        return self.left + self.right


def test_parts_of_one_storage_that_do_not_overlap_are_separate() -> None:
    module = steps_like_eager(Neighbours, *THREE)
    assert [a.state for a in module.signatures["main"].arguments] == ["left", None]


class Reassigned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.h = torch.zeros(2)
        self.parts = [torch.zeros(2)]

    def forward(self, x: Tensor) -> Tensor:
        self.h = self.h + x
        self.parts[0] = self.parts[0] * x
        return self.h + self.parts[0]


def test_an_attribute_that_is_assigned_and_read_is_refused_by_name() -> None:
    with pytest.raises(CompileError, match=r"assigns self\.\S+, self\.\S+, which it also reads") as caught:
        flambeau.compile(Reassigned(), THREE[0])
    assert "register_buffer" in str(caught.value)


class ReassignedBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.h = self.h + x
        return self.h * 2


def test_a_buffer_that_is_assigned_is_written() -> None:
    steps_like_eager(ReassignedBuffer, *THREE)


class Reshaping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.h.unsqueeze_(0) + x


def test_changing_the_shape_of_state_is_refused() -> None:
    with pytest.raises(CompileError, match="changes the shape of 'b_h' itself"):
        flambeau.compile(Reshaping(), THREE[0])
    with pytest.raises(CompileError, match="changes the shape of 'args_0' itself"):
        flambeau.compile(lambda x: x.mul_(2).t_() + 1, (torch.ones(2, 3),))


def test_a_plain_graph_writes_the_tensors_of_its_module() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    model = PlainAttribute()
    graph = make_fx(model, _allow_non_fake_inputs=True)(torch.zeros(2))
    model.h.zero_()
    eager = deepcopy(model)
    for run in stages(flambeau.compile(graph, output_type="raw")):
        model.h.zero_()
        eager.h.zero_()
        for args in THREE:
            assert_same(run(*args), eager(*args))


def test_an_input_and_a_buffer_of_one_name() -> None:
    class Same(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("x", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            self.x.add_(x)
            x.mul_(3)
            return self.x + x

    model = Same()
    eager = deepcopy(model)
    program = torch.export.export(model, THREE[0], strict=False).run_decompositions({})
    run = flambeau.load(flambeau.compile(program, output_type="torch"), engine="eager")
    for (x,) in THREE:
        ours, theirs = x.clone(), x.clone()
        assert_same(run(ours), eager(theirs))
        assert_same([ours, model.x], [theirs, eager.x])


class Gate(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.count = torch.zeros((), dtype=torch.int64)

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return x * 2 if int(self.count * 2) > 4 else x


def test_state_that_decides_a_branch_in_python_is_refused_by_name() -> None:
    with pytest.raises(CompileError, match="'c_count' is written, and Python looks at its value"):
        flambeau.compile(Gate(), THREE[0])


def test_compiling_leaves_the_state_as_it_is() -> None:
    model = Regions()
    outside = torch.zeros(2)

    def program(x: Tensor) -> Tensor:
        outside.add_(1)
        return model(x)[0] + outside

    module = flambeau.compile(program, THREE[0], output_type="torch")
    assert outside.tolist() == [0, 0]
    assert_same(state_of(model), state_of(Regions()))
    flambeau.load(module, engine="eager")(*THREE[0])
    assert outside.tolist() == [1, 1]


# Memory that arguments share


def test_examples_that_are_one_tensor_are_two_inputs() -> None:
    x = torch.arange(4.0)
    for run in stages(flambeau.compile(lambda a, b: a - 2 * b, (x, x), output_type="raw")):
        assert_same(run(x + 1, x), x + 1 - 2 * x)
        assert_same(run(x, x), -x)
    linear = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        for run in stages(flambeau.compile(linear, (linear.weight,), output_type="raw")):
            assert_same(run(torch.ones(2, 2)), linear(torch.ones(2, 2)))


def write_first(a: Tensor, b: Tensor) -> Tensor:
    a.add_(b)
    return a * b


def test_written_arguments_that_share_memory_are_refused_by_name() -> None:
    base = torch.arange(6.0)
    for run in stages(flambeau.compile(write_first, (torch.ones(3), torch.ones(3)), output_type="raw")):
        with pytest.raises(ValueError, match="share memory, and the program writes 'args_0'"):
            run(base[:3], base[:3])
        with pytest.raises(ValueError, match="share memory"):
            run(base[:3], base[2:5])
        even, odd = base.clone()[::2], base.clone()[1::2]
        expected = write_first(even.clone(), odd.clone())
        assert_same(run(even, odd), expected)
        pair = base.clone()
        assert_same(run(pair[::2], pair[1::2]), expected)
        with pytest.raises(ValueError, match=r"several elements at one place"):
            run(torch.zeros(1).expand(3), base[:3])
        array = base[:3].numpy().copy()
        array.flags.writeable = False
        with pytest.raises(ValueError, match="'args_0' is read-only"):
            run(array, base[:3].numpy())


def test_an_argument_that_is_the_state_which_is_written_is_refused() -> None:
    model = PlainAttribute()
    for run in stages(flambeau.compile(model, (torch.ones(2),), output_type="raw")):
        with pytest.raises(ValueError, match="'h' and 'x' share memory"):
            run(model.h)


@pytest.mark.engine
def test_calls_of_several_threads_lose_no_write() -> None:
    model = PlainAttribute()
    run = flambeau.load(flambeau.compile(model, (torch.ones(2),)), profile="quick", device="local-sync")
    x = torch.ones(2)

    def work() -> None:
        for _ in range(200):
            run(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.h.tolist() == [800.0, 800.0]


def test_threads_compile_at_once() -> None:
    failures: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for _ in range(3):
                run = flambeau.load(
                    flambeau.compile(lambda x: nn.functional.glu(x * n), (torch.ones(4),), output_type="torch"),
                    engine="eager",
                )
                assert_same(run(torch.ones(4)), nn.functional.glu(torch.ones(4) * n))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# Assigned buffers


class Averages(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = ReassignedBuffer()
        self.register_buffer("total", torch.ones(2))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        old = self.total.view(-1)
        self.total.mul_(2)
        with torch.no_grad():
            self.total = self.total + x
        self.total[0] = 7
        return old, self.inner(x), self.total * 1


@pytest.mark.engine
def test_buffers_of_all_modules_may_be_assigned() -> None:
    """What was taken from the old tensor stays, and what is written into the new one counts."""
    steps_like_eager(Averages, *THREE, on_iree=True)


class Converted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.h = (self.h + x.double()).to(torch.float32)
        return self.h + 1


def test_a_buffer_may_be_assigned_what_is_converted() -> None:
    """PyTorch checks the dtype of what is converted, and that check is no value."""
    steps_like_eager(Converted, *THREE)


def test_a_buffer_that_is_assigned_another_type_is_refused() -> None:
    class Growing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", torch.zeros(0, 2))

        def forward(self, x: Tensor) -> Tensor:
            self.cache = torch.cat([self.cache, x[None]])
            return self.cache.sum(0)

    with pytest.raises(CompileError, match="assigns a tensor 1x2xfloat32 to the buffer 'cache', which is 0x2xfloat32"):
        flambeau.compile(Growing(), THREE[0])


def test_a_buffer_that_is_assigned_and_shares_memory_is_refused() -> None:
    class Sharing(ReassignedBuffer):
        def __init__(self) -> None:
            super().__init__()
            self.view = self.h[:1]

    with pytest.raises(CompileError, match="assigns the buffer 'h', whose memory another tensor of the model shares"):
        flambeau.compile(Sharing(), THREE[0])


# Views that need not be views


class PerhapsViews(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.h = torch.arange(4.0).reshape(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.h.to(self.h.dtype).add_(1)
        self.h.contiguous().mul_(2)
        self.h.type_as(x).sub_(x)
        self.h.ravel()[1:].add_(3)
        self.h.flatten()[0] = 9
        torch.atleast_2d(self.h).neg_()
        self.h.tensor_split(2)[0].add_(x[0])
        self.h.t().contiguous().zero_()
        self.h.to(torch.float64).zero_()
        self.h.reshape(4, 1)[2].mul_(5)
        return self.h * 1


@pytest.mark.engine
def test_what_gives_its_argument_back_is_written_and_what_copies_is_not() -> None:
    steps_like_eager(PerhapsViews, *THREE, on_iree=True)


class Literal(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = torch.tensor([1.0, 3.0])
        y.add_(x.nonzero().sum())
        return y


def test_a_literal_that_is_written_is_new_in_each_call() -> None:
    module = steps_like_eager(Literal, *THREE)
    assert module.signatures["main"].mutations == ()


def test_a_copy_of_an_argument_that_does_not_lie_in_order_is_a_copy() -> None:
    def program(x: Tensor) -> Tensor:
        x.contiguous().mul_(2)
        x.reshape(-1).add_(1)
        return x + 0

    x = torch.arange(6.0).reshape(2, 3).t()
    for run in stages(flambeau.compile(program, (x.clone(memory_format=torch.preserve_format),), output_type="raw")):
        ours, theirs = (x.clone(memory_format=torch.preserve_format) for _ in range(2))
        assert_same(run(ours), program(theirs))
        assert_same(ours, theirs)


def test_results_written_into_out() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        torch.add(x, 1, out=y)
        torch.max(x, out=y[0])
        return y * 2

    for run in stages(flambeau.compile(program, (torch.ones(2), torch.ones(2)), output_type="raw")):
        ours, theirs = torch.zeros(2), torch.zeros(2)
        assert_same(run(torch.arange(2.0), ours), program(torch.arange(2.0), theirs))
        assert_same(ours, theirs)
    with pytest.raises(CompileError, match="`out` does not have the shape of the result"):
        flambeau.compile(lambda x, y: torch.add(x, 1, out=y), (torch.ones(2), torch.ones(3)))


def test_as_strided_of_what_does_not_lie_in_order_is_refused() -> None:
    with pytest.raises(CompileError, match="strided view of a tensor with gaps"):
        flambeau.compile(lambda x: x.as_strided((2,), (1,)), (torch.arange(8.0)[::2],))


def test_a_size_of_one_that_changes_the_rank_is_refused_at_run_time() -> None:
    module = flambeau.compile(
        lambda x: x.squeeze() * 2, (torch.ones(4),), dynamic_shapes=({0: torch.export.Dim.AUTO},), output_type="raw"
    )
    for run in stages(module):
        assert run(torch.ones(3)).shape == (3,)
        with pytest.raises(RuntimeError, match="has size 1, for which the rank differs"):
            run(torch.ones(1))


def test_a_size_that_pytorch_found_to_be_fixed_is_checked() -> None:
    def program(x: Tensor) -> Tensor:
        return x.unbind(0)[-1]

    module = flambeau.compile(
        program, (torch.arange(4.0),), dynamic_shapes=({0: torch.export.Dim.AUTO},), output_type="torch"
    )
    with pytest.raises(ValueError, match="expected a tensor 4xfloat32, got 5xfloat32"):
        flambeau.load(module, engine="eager")(torch.arange(5.0))


# Sizes


def pieces(x: Tensor) -> tuple[Tensor, ...]:
    return *x.split(2, 0), x[:3]


@pytest.mark.parametrize("engine", ["eager", pytest.param("iree", marks=pytest.mark.engine)])
def test_what_pytorch_assumed_about_sizes_is_checked(engine: str) -> None:
    stage = "torch" if engine == "eager" else "linalg-on-tensors"
    module = flambeau.compile(
        pieces, (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim.AUTO},), output_type=stage
    )
    options = {} if engine == "eager" else {"profile": "quick", "device": "local-sync"}
    run = flambeau.load(module, engine=engine, **options)
    x = torch.randn(4, 3)
    assert_same(list(run(x)), list(pieces(x)))
    for rows in (2, 5, 8):
        with pytest.raises(
            (RuntimeError, ValueError), match=r"a size is not one that the program was compiled for|must be s0: 3"
        ):
            run(torch.randn(rows, 3))


def test_how_a_written_argument_lies_in_memory_is_checked_where_it_matters() -> None:
    def program(x: Tensor) -> Tensor:
        x.reshape(-1).add_(1)
        return x * 2

    turned = torch.arange(6.0).reshape(2, 3).t()
    for run in stages(flambeau.compile(program, (torch.ones(3, 2),), output_type="raw")):
        x = torch.ones(3, 2)
        assert_same(run(x), torch.full((3, 2), 4.0))
        with pytest.raises(ValueError, match=r"'args_0': the program writes through a reshape.*that is contiguous"):
            run(turned.clone(memory_format=torch.preserve_format))
    for run in stages(
        flambeau.compile(program, (turned.clone(memory_format=torch.preserve_format),), output_type="raw")
    ):
        with pytest.raises(ValueError, match=r"one that is with strides \(1, 3\)"):
            run(torch.ones(3, 2))
    free = flambeau.compile(lambda x: x.reshape(-1) + 1, (torch.ones(3, 2),), output_type="torch")
    assert_same(flambeau.load(free, engine="eager")(turned), turned.reshape(-1) + 1)


def test_parts_that_do_not_say_that_they_are_views() -> None:
    """So the gates of recurrent cells are computed in place."""

    def program(x: Tensor) -> Tensor:
        whole = x * 2
        first, second = torch.ops.aten.unsafe_chunk(whole, 2)
        first.sigmoid_()
        (third, _) = torch.ops.aten.unsafe_split(second, 1)
        third.add_(1)
        return first + second

    x = torch.arange(4.0)
    for run in stages(flambeau.compile(program, (x,), output_type="raw")):
        assert_same(run(x), program(x))
    cell = nn.LSTMCell(3, 3).eval()
    with torch.no_grad():
        for run in stages(flambeau.compile(cell, (torch.ones(2, 3),), output_type="raw")):
            assert_same(list(run(torch.ones(2, 3))), list(cell(torch.ones(2, 3))))


def test_one_element_of_a_larger_tensor_is_a_constant() -> None:
    one = torch.arange(8.0)[::4][1:]

    def program(x: Tensor) -> Tensor:
        return x + one

    for run in stages(flambeau.compile(program, (torch.ones(2),), output_type="raw")):
        assert_same(run(torch.ones(2)), torch.full((2,), 5.0))
    assert as_bytes(one).view("float32").tolist() == [4.0]
