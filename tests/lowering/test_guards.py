"""What is checked when a program runs, and what is known before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
import torch
from support import Together
from torch.export import Dim

import flambeau
from flambeau import torchscript
from flambeau.engines.errors import RunError
from flambeau.engines.iree.prepare import for_iree


def load(module: flambeau.Module) -> Any:
    return flambeau.load(module, profile="quick", device="local-sync")


@cache
def compiled(target: str) -> Together:
    """Compile the programs of this file that all targets take, together."""
    makers: dict[str, Callable[[], flambeau.Module]] = {}
    for dtype in (torch.uint8, torch.int8, torch.int32, torch.int64):
        pair = integers(1, 2, 3, 4, dtype=dtype), integers(1, 2, 3, 4, dtype=dtype)
        for name, function in DIVISIONS.items():
            makers[f"{name} of {dtype}"] = partial(flambeau.compile, function, pair, output_type=target)
    for name, (function, fine) in ROWS.items():
        makers[name] = partial(flambeau.compile, function, (torch.ones(4, 3), fine), output_type=target)
    of_ranks: list[tuple[torch.nn.Module, list[int]]] = [
        *((model, [2, 1]) for model in (ViewAs(), Rest())),
        *((model, [2]) for model in (Rolled(), Parts(), Windows(), Rows(), Top(), Norm(), Cropped())),
        *((model, [len(shape) for shape in good]) for model, good, _ in SIZES),
        (Plus(), [2, 2, 2]),
    ]
    for model, ranks in of_ranks:
        places = [torchscript.TensorPlaceholder([-1] * rank, torch.float32) for rank in ranks]
        makers[type(model).__name__] = partial(torchscript.compile, model, places, output_type=target)
    shapes = [([-1, -1], torch.float32), ([-1], torch.int64), ([-1, -1], torch.float32)]
    places = [torchscript.TensorPlaceholder(shape, dtype) for shape, dtype in shapes]
    for name in UPDATES:
        makers[f"update by {name}"] = partial(torchscript.compile, Updates(name), places, output_type=target)
    return Together(makers)


def asserts(module: flambeau.Module) -> int:
    return sum(op.name == "cf.assert" for op in module.op.walk())


def unchecked(module: flambeau.Module) -> Any:
    """Load a program whose sizes are not checked before it is called, so that it checks them itself."""
    return load(replace(module, signatures={"main": replace(module.signature, symbols=())}))


@pytest.mark.engine
def test_sizes_outside_the_exported_range_are_refused() -> None:
    batch = Dim("batch", min=3, max=5)
    run = unchecked(flambeau.compile(lambda x: x + 1, (torch.ones(4, 2),), dynamic_shapes=({0: batch},)))
    assert torch.equal(run(torch.ones(3, 2)), torch.full((3, 2), 2.0))
    with pytest.raises(RunError, match=r"the size \(batch\) must be at most 5"):
        run(torch.ones(6, 2))
    with pytest.raises(RunError, match="must be at least 3"):
        run(torch.ones(2, 2))


@pytest.mark.engine
def test_arguments_that_share_a_size_must_agree() -> None:
    """S90."""
    batch = Dim("batch")
    run = unchecked(
        flambeau.compile(
            lambda x, y: x + y, (torch.ones(4, 2), torch.ones(4, 2)), dynamic_shapes=({0: batch}, {0: batch})
        )
    )
    assert torch.equal(run(torch.ones(3, 2), torch.ones(3, 2)), torch.full((3, 2), 2.0))
    with pytest.raises(RunError, match="does not have the size"):
        run(torch.ones(3, 2), torch.ones(4, 2))


@pytest.mark.engine
@pytest.mark.parametrize("target", ["linalg-on-tensors", "stablehlo", "tosa"])
def test_sizes_that_nobody_knows_do_not_broadcast(target: str) -> None:
    """TOSA's ops would; functions promise that they do not, and the program holds them to it."""
    place = torchscript.TensorPlaceholder([-1], torch.float32)
    run = load(torchscript.compile(Scaled(), [place, place], output_type=target))
    for size in (1, 5):
        assert torch.equal(run(torch.ones(size), torch.ones(size)), torch.full((size,), 3.0))
    for sizes in ((1, 5), (5, 1), (3, 5)):
        with pytest.raises(RunError, match="do not match for broadcasting"):
            run(*map(torch.ones, sizes))


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y * 2


def test_what_is_known_is_not_checked() -> None:
    """Sizes that are equal by their symbol need no guard inside the program; static ones need none at all."""

    def body(x: torch.Tensor) -> torch.Tensor:
        return ((x @ x.t()) + (x @ x.t())).relu().sum(1) + x.sum(1)

    assert asserts(flambeau.compile(body, (torch.ones(4, 3),))) == 0
    assert asserts(flambeau.compile(body, (torch.ones(4, 3),), dynamic_shapes=({0: Dim("n")},))) == 0


@pytest.mark.engine
def test_a_parameter_that_the_program_writes_is_written_back() -> None:
    class Counter(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = torch.nn.Parameter(torch.zeros(2), requires_grad=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.total.add_(x)
            return self.total * 2

    model = Counter()
    run = load(flambeau.compile(model, (torch.ones(2),)))
    assert torch.equal(run(torch.ones(2)), torch.full((2,), 2.0))
    assert torch.equal(run(torch.ones(2)), torch.full((2,), 4.0))
    assert torch.equal(model.total, torch.full((2,), 2.0))


TARGETS = ["linalg-on-tensors", "stablehlo", "tosa"]


def integers(*numbers: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.tensor(numbers, dtype=dtype)


DIVISIONS = {
    "floor": lambda x, y: x // y,
    "remainder": lambda x, y: x % y,
    "fmod": torch.fmod,
    "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
}


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_integers_that_are_divided_by_zero_are_refused(target: str, dtype: torch.dtype) -> None:
    x, y = integers(7, 5, 100, 9, dtype=dtype), integers(1, 2, 3, 4, dtype=dtype)
    for name, function in DIVISIONS.items():
        run = compiled(target)[f"{name} of {dtype}"]
        assert torch.equal(run(x, y), function(x, y))
        with pytest.raises(RunError, match="ZeroDivisionError"):
            run(x, integers(1, 0, 3, 4, dtype=dtype))


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [torch.int8, torch.int64])
def test_the_least_integer_divided_by_minus_one_wraps_around(target: str, dtype: torch.dtype) -> None:
    """Processors trap; PyTorch itself does so for `trunc`, which is not asked here."""
    if target == "tosa" and dtype is torch.int64:
        dtype = torch.int32
    x, y = integers(torch.iinfo(dtype).min, 7, -7, 8, dtype=dtype), integers(-1, -1, 2, 1, dtype=dtype)
    for name, function in DIVISIONS.items():
        run = compiled(target)[f"{name} of {dtype}"]
        expected = integers(int(x[0]), -7, -3, 8, dtype=dtype) if name == "trunc" else function(x, y)
        assert torch.equal(run(x, y), expected), name


@pytest.mark.engine
def test_nothing_divided_by_zero_is_nothing() -> None:
    empty = torch.ones(0, 3, dtype=torch.int64)
    zeros = torch.zeros(3, dtype=torch.int64)
    assert load(flambeau.compile(lambda x, y: x // y, (empty, zeros)))(empty, zeros).shape == (0, 3)
    assert load(flambeau.compile(lambda x: x % 0, (empty,)))(empty).shape == (0, 3)
    rows = Dim("rows", min=0)
    run = load(
        flambeau.compile(
            lambda x, y: x // y, (torch.ones(2, 3, dtype=torch.int64), zeros), dynamic_shapes=({0: rows}, {})
        )
    )
    assert run(empty, zeros).shape == (0, 3)
    with pytest.raises(RunError, match="ZeroDivisionError"):
        run(torch.ones(2, 3, dtype=torch.int64), zeros)


def test_a_divisor_that_is_known_needs_no_guard() -> None:
    x = integers(4, 5)
    assert asserts(flambeau.compile(lambda x: x // 3 + x % 5 - x.fmod(7), (x,))) == 0
    with pytest.raises(flambeau.CompileError, match="divided by zero"):
        flambeau.compile(lambda x: x % 0, (x,))


ROWS: dict[str, tuple[Any, torch.Tensor]] = {
    "index": (lambda x, i: x[i], integers(0, 1)),
    "gather": (lambda x, i: x.gather(0, i), integers(0, 1, 1, 2).reshape(2, 2)),
    "take": (lambda x, i: x.take(i), integers(0, 1)),
    "embedding": (lambda x, i: torch.nn.functional.embedding(i, x), integers(0, 1)),
    "index_put": (lambda x, i: x.index_put((i,), torch.ones(3)), integers(0, 1)),
    "scatter_reduce": (
        lambda x, i: x.scatter_reduce(0, i, torch.ones(2, 2), "sum"),
        integers(0, 1, 1, 2).reshape(2, 2),
    ),
    "index_add": (lambda x, i: x.index_add(0, i, torch.ones(2, 3)), integers(0, 1)),
    "cross_entropy": (torch.nn.functional.cross_entropy, integers(0, 1, 2, 1)),
}


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ROWS)
def test_indices_out_of_range_are_refused(name: str, target: str) -> None:
    function, fine = ROWS[name]
    x, run = torch.arange(12.0).reshape(4, 3), compiled(target)[name]
    torch.testing.assert_close(run(x, fine), function(x, fine))
    for wrong in (77, -77):
        indices = fine.clone()
        indices.view(-1)[1] = wrong
        with pytest.raises((IndexError, RuntimeError)):
            function(x, indices)
        with pytest.raises(RunError, match="out of range"):
            run(x, indices)


class ViewAs(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.view_as(y)


class Rest(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.view(y.size(0), -1)


class Rolled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.roll([1], [0])


def of_any_size(model: torch.nn.Module, target: str) -> Any:
    return compiled(target)[type(model).__name__]


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
def test_a_view_has_as_many_elements_as_the_tensor(target: str) -> None:
    x = torch.arange(6.0).reshape(3, 2)
    run = of_any_size(ViewAs(), target)
    assert torch.equal(run(x, torch.zeros(6)), x.flatten())
    with pytest.raises(RunError, match="as many elements"):
        run(x, torch.zeros(3))
    run = of_any_size(Rest(), target)
    assert torch.equal(run(x, torch.zeros(2)), x.view(2, 3))
    with pytest.raises(RunError, match="as many elements"):
        run(x, torch.zeros(4))


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
def test_a_size_of_zero_ends_no_process(target: str) -> None:
    with pytest.raises(RunError, match="may have any size"):
        of_any_size(Rest(), target)(torch.zeros(0, 2), torch.zeros(0))
    assert of_any_size(Rolled(), target)(torch.zeros(0, 2)).shape == (0, 2)


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
def test_classes_that_one_hot_does_not_have_are_refused(target: str) -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(x, 3)

    run = load(flambeau.compile(body, (integers(0, 1, 2),), output_type=target))
    assert torch.equal(run(integers(2, 0, 1)), body(integers(2, 0, 1)))
    for wrong in (3, -1):
        with pytest.raises(RunError, match="smaller than num_classes"):
            run(integers(0, wrong, 1))


def test_there_is_no_median_of_nothing() -> None:
    with pytest.raises(flambeau.CompileError, match="there is no median"):
        flambeau.compile(lambda x: x.median(0), (torch.zeros(0, 0),), output_type="linalg-on-tensors")


class Plus(torch.nn.Module):
    def forward(self, bias: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.addmm(bias, x, y)


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
def test_a_bias_that_is_smaller_than_the_product_is_not_read_beyond_its_end(target: str) -> None:
    run = of_any_size(Plus(), target)
    x, y = torch.ones(3, 5), torch.ones(5, 3)
    assert torch.equal(run(torch.ones(3, 3), x, y), torch.full((3, 3), 6.0))
    with pytest.raises(RunError, match="do not match for broadcasting"):
        run(torch.ones(3, 1), x, y)


class Parts(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        one, two = x.split([1, 3])
        return x.select(0, -3), x.narrow(0, 1, 2), one.sum() + two.sum()


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
def test_parts_that_end_outside_are_refused(target: str) -> None:
    run = of_any_size(Parts(), target)
    x = torch.arange(8.0).reshape(4, 2)
    for got, expected in zip(run(x), Parts()(x), strict=True):
        assert torch.equal(got, expected)
    for rows in (5, 3, 2, 0):
        with pytest.raises(RunError, match=r"out of range|outside of it|size of the parts"):
            run(torch.zeros(rows, 2))


class Windows(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.unfold(0, 3, 1)


class Rows(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one, two, three, four = x.unbind(0)
        return one + two - three * four


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", [Windows(), Rows()], ids=lambda m: type(m).__name__)
def test_a_size_that_gives_other_parts_is_refused(model: torch.nn.Module, target: str) -> None:
    x = torch.arange(8.0).reshape(4, 2)
    run = of_any_size(model, target)
    torch.testing.assert_close(run(x), model(x))
    with pytest.raises(RunError):
        run(torch.zeros(1, 2))


class Updates(torch.nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        if self.name == "index_add":
            return x.index_add(0, index, source)
        if self.name == "index_copy":
            return x.index_copy(0, index, source)
        if self.name == "gather":
            return x.gather(0, index.unsqueeze(1).expand(-1, source.size(1)))
        return x.scatter(0, index.unsqueeze(1).expand(-1, x.size(1)), source)


UPDATES = ("index_add", "index_copy", "gather", "scatter")


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", UPDATES)
def test_sources_of_other_sizes_are_not_read_beyond_their_end(name: str, target: str) -> None:
    model, run = Updates(name), compiled(target)[f"update by {name}"]
    x, index, source = torch.zeros(4, 3), integers(2, 0), torch.arange(6.0).reshape(2, 3)
    assert torch.equal(run(x, index, source), model(x, index, source))
    wrong = torch.ones(2, 4) if name == "gather" else source[:1]
    with pytest.raises((RuntimeError, IndexError)):
        model(x, index, wrong)
    with pytest.raises(RunError, match=r"larger than|a slice for each index"):
        run(x, index, wrong)


class Top(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.topk(3, 0)[0] + x.kthvalue(3, 0)[0]


class Norm(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x, -2.0, 0)


class Cropped(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x.t(), [0, -2], mode="replicate")


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("model", "rows"), [(Top(), 2), (Norm(), 0), (Cropped(), 2)], ids=lambda m: type(m).__name__)
def test_sizes_that_pytorch_refuses_are_refused(model: torch.nn.Module, rows: int, target: str) -> None:
    run = of_any_size(model, target)
    x = torch.arange(1.0, 9.0).reshape(4, 2)
    torch.testing.assert_close(run(x), model(x))
    with pytest.raises((RuntimeError, IndexError)):
        model(x[:rows])
    with pytest.raises(RunError):
        run(x[:rows])


class Convolution(torch.nn.Module):
    def forward(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv1d(x, weight, bias)


class Written(torch.nn.Module):
    def forward(self, x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.slice_scatter(source, 1, 1, 3)


class Diagonal(torch.nn.Module):
    def forward(self, x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        return x.diagonal_scatter(source, 1)


class Joined(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, y], -1)


class Copied(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.copy(x, y)


class Apart(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten._cdist_forward(x, y, 1.0, None)


class Round(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, [2, 0], mode="circular")


SIZES = [
    (Written(), [[2, 4], [2, 2]], [[2, 4], [1, 2]]),
    (Diagonal(), [[3, 4], [3]], [[3, 3], [3]]),
    (Joined(), [[2, 3], [0]], [[2, 3], [2]]),
    (Apart(), [[2, 3], [4, 3]], [[2, 3], [4, 2]]),
    (Copied(), [[2, 3], [2, 3]], [[1, 3], [2, 3]]),
    (Round(), [[1, 2, 3]], [[1, 2, 1]]),
]
"""Sizes that PyTorch takes, and sizes that it refuses."""


@pytest.mark.engine
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("model", "good", "bad"), SIZES, ids=lambda m: type(m).__name__)
def test_sizes_that_do_not_go_together_are_refused(
    model: torch.nn.Module, good: list[list[int]], bad: list[list[int]], target: str
) -> None:
    run = of_any_size(model, target)
    x = [torch.randn(shape) for shape in good]
    torch.testing.assert_close(run(*x), model(*x))
    y = [torch.randn(shape) for shape in bad]
    with pytest.raises((RuntimeError, IndexError)):
        model(*y)
    with pytest.raises(RunError):
        run(*y)


@pytest.mark.engine
def test_a_bias_of_another_size_does_not_end_the_process() -> None:
    """IREE would run the convolution before it looks at the guard."""
    shapes = [[1, 2, 5], [-1, 2, 3], [3]]
    places = [torchscript.TensorPlaceholder(shape, torch.float32) for shape in shapes]
    run = load(torchscript.compile(Convolution(), places, output_type="linalg-on-tensors"))
    x, bias = torch.randn(1, 2, 5), torch.randn(3)
    torch.testing.assert_close(run(x, torch.ones(3, 2, 3), bias), Convolution()(x, torch.ones(3, 2, 3), bias))
    for channels in (2, 4, 400):
        with pytest.raises(RunError, match="do not match"):
            run(x, torch.ones(channels, 2, 3), bias)


def test_iree_checks_sizes_before_all_else() -> None:
    module = torchscript.compile(
        Plus(), [torchscript.TensorPlaceholder([-1, -1], torch.float32)] * 3, output_type="linalg-on-tensors"
    )
    names = [op.name for op in for_iree(module.op).walk()]
    assert "cf.assert" in names
    assert names.index("linalg.matmul") > max(i for i, name in enumerate(names) if name == "cf.assert")
