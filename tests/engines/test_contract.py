"""What every engine promises of the programs that it makes callable: one suite, run on each."""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.export import Dim

import flambeau
from flambeau.engines import EngineError, Executable, RunError
from flambeau.ir.arrays import GradientError

OPTIONS: dict[str, dict[str, Any]] = {
    "eager": {},
    "iree": {"profile": "quick", "device": "local-sync"},
    "xla": {},
}
if torch.cuda.is_available():
    OPTIONS["xla-gpu"] = {"device": "gpu"}
OUTPUT_TYPES = {"eager": "torch", "iree": "linalg-on-tensors", "xla": "stablehlo", "xla-gpu": "stablehlo"}
SAVED = {"iree": "net.vmfb", "xla": "net.xla"}
Load = Callable[..., Any]

pytestmark = pytest.mark.engine


@pytest.fixture(params=list(OPTIONS))
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def load(engine: str) -> Load:
    """Compile a function for the engine, and make it callable."""

    def compile_and_load(function: Any, *args: Any, **options: Any) -> Any:
        module = flambeau.compile(function, args, output_type=OUTPUT_TYPES[engine], **options)
        return flambeau.load(module, engine=engine.partition("-")[0], **OPTIONS[engine])

    return compile_and_load


Pair = namedtuple("Pair", ["first", "second"])


def test_trees_of_arguments_and_results(load: Load) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Any, parts: Any, *, scale: Any) -> Any:
            return {"sum": x + parts[0]["a"], "pair": Pair(x * scale, None), "number": 3}

    x, a, scale = torch.arange(4.0), torch.ones(4), torch.tensor(2.0)
    run = load(Model(), x, [{"a": a}], kwargs={"scale": scale})
    assert isinstance(run, Executable)
    result = run(x, [{"a": a}], scale=scale)
    assert torch.equal(result["sum"], x + a)
    assert isinstance(result["pair"], Pair)
    assert torch.equal(result["pair"].first, x * 2)
    assert result["pair"].second is None
    assert result["number"] == 3
    with pytest.raises(TypeError, match="was called with"):
        run(x, a, scale=scale)


DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.bool, torch.complex64, torch.complex128,
]  # fmt: skip


def test_every_dtype_goes_in_and_comes_out(load: Load) -> None:
    xs = [torch.tensor([0, 1, 1, 0, 1]).to(dtype) for dtype in DTYPES]
    run = load(lambda *xs: [torch.cat([x, x]) for x in xs], *xs)
    for x, y in zip(xs, run(*xs), strict=True):
        assert y.dtype == x.dtype
        assert torch.equal(y, torch.cat([x, x]))


def test_tensors_may_lie_in_memory_as_they_like(load: Load) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + torch.arange(12.0).reshape(3, 4)

    run = load(function, torch.zeros(3, 4))
    for x in (
        torch.randn(4, 3).T,
        torch.randn(1, 4).expand(3, 4),
        torch.randn(6, 8)[::2, ::2],
        torch.randn(13)[1:].reshape(3, 4),  # not aligned
        torch.randn(3, 4, dtype=torch.complex64).conj().imag,  # a view that stands for its negative
    ):
        assert torch.equal(run(x), function(x))
    run = load(lambda z: z * 2, torch.zeros(3, dtype=torch.complex64))
    z = torch.randn(3, dtype=torch.complex64).conj()
    assert torch.equal(run(z), z * 2)


def test_tensors_without_elements_and_without_dims(load: Load) -> None:
    run = load(lambda x, y: (x * 2, y.sum(), torch.cat([y, y])), torch.tensor(3.0), torch.zeros(0, 3))
    doubled, total, empty = run(torch.tensor(4.0), torch.zeros(0, 3))
    assert doubled == 8
    assert total == 0
    assert empty.shape == (0, 3)


def test_numpy_arrays_give_numpy_arrays(load: Load, engine: str) -> None:
    run = load(lambda x, i: (x + 1, i > 2), torch.zeros(4), torch.zeros(4, dtype=torch.int64))
    x, i = np.arange(4, dtype=np.float32), np.arange(4)
    y, large = run(x, i)
    if engine == "eager":  # it is PyTorch
        y, large = np.asarray(y), np.asarray(large)
    assert isinstance(y, np.ndarray)
    assert np.array_equal(y, [1, 2, 3, 4])
    assert np.array_equal(large, [False, False, False, True])
    y[0] = 9  # a result is the caller's own


def test_results_share_no_memory(load: Load) -> None:
    run = load(lambda x: (x, x, x.reshape(2, 2), x + 1), torch.zeros(4))
    x = torch.arange(4.0)
    results = run(x)
    for result in results:
        result.fill_(7)
    assert torch.equal(x, torch.arange(4.0))
    assert [r.data_ptr() for r in results] == list({r.data_ptr(): r for r in results})


def test_wrong_arguments(load: Load) -> None:
    run = load(torch.add, torch.zeros(4), torch.zeros(4))
    x = torch.zeros(4)
    for args, message in [
        ((x, torch.zeros(5)), "expected a tensor 4xfloat32, got 5xfloat32"),
        ((x, x.long()), "expected a tensor 4xfloat32, got 4xint64"),
        ((x, [1.0]), "expected a tensor 4xfloat32, got list"),
        ((x,), "but was called with"),
    ]:
        with pytest.raises((TypeError, ValueError), match=message):
            run(*args)
    assert torch.equal(run(x, x), x)


def test_gradients_are_not_lost_silently(load: Load) -> None:
    run = load(lambda x: x * 2, torch.zeros(3))
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(GradientError, match="requires a gradient"):
        run(x)
    with torch.no_grad():
        assert torch.equal(run(x), torch.full((3,), 2.0))


class Counter(torch.nn.Module):
    """Counts its calls in a buffer, and adds to the argument in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        x.add_(1)
        return x * self.count


def test_state_is_written_back(load: Load) -> None:
    model = Counter()
    run = load(model, torch.zeros(3))
    before = int(model.count)
    x = torch.zeros(3)
    assert torch.equal(run(x), torch.full((3,), 1.0 * (before + 1)))
    assert torch.equal(x, torch.ones(3))
    assert torch.equal(run(x), torch.full((3,), 2.0 * (before + 2)))
    assert int(model.count) == before + 2


def test_threads_count_every_call(load: Load) -> None:
    model = Counter()
    run = load(model, torch.zeros(3))
    before = int(model.count)
    threads = [threading.Thread(target=lambda: [run(torch.zeros(3)) for _ in range(25)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(model.count) == before + 100


def test_what_the_program_checks_raises(load: Load) -> None:
    run = load(lambda x, i: x[i] // (i + 1), torch.arange(5), torch.zeros(2, dtype=torch.int64))
    with pytest.raises((RunError, IndexError), match=r"out of (range|bounds)"):
        run(torch.arange(5), torch.tensor([1, 7]))
    assert torch.equal(run(torch.arange(5), torch.tensor([4, 3])), torch.tensor([0, 0]))
    run = load(lambda a, b: torch.div(a, b, rounding_mode="trunc"), torch.arange(3), torch.ones(3, dtype=torch.int64))
    with pytest.raises(RuntimeError, match=r"(?i)zero"):
        run(torch.arange(3), torch.tensor([1, 0, 2]))


def test_checks_in_branches_and_loops_raise(load: Load) -> None:
    def pick(flag: torch.Tensor, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda x, i: x[i] * 2, lambda x, i: x[:2] + 1, (x, i))

    x, i = torch.arange(4.0), torch.tensor([1, 2])
    run = load(pick, torch.tensor(True), x, i)
    assert run(torch.tensor(True), x, i).tolist() == [2, 4]
    assert run(torch.tensor(False), x, i + 9).tolist() == [1, 2]  # the check is on the other path
    with pytest.raises((RunError, IndexError), match=r"out of (range|bounds)"):
        run(torch.tensor(True), x, i + 9)

    def walk(i: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        def step(i: torch.Tensor, total: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return i + 1, total + x[i]

        return torch.while_loop(lambda i, total: (x[i] < 5).all(), step, (i, torch.zeros(1)))

    i, x = torch.tensor([3]), torch.arange(6.0)
    run = load(walk, i, x)
    assert run(i, x)[1] == 7
    with pytest.raises((RunError, IndexError), match=r"out of (range|bounds)"):
        run(i - 12, x)  # in the first condition
    with pytest.raises((RunError, IndexError), match=r"out of (range|bounds)"):
        run(i, x - 9)  # in a later one


def test_numbers_go_in_and_come_out(load: Load) -> None:
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: int) -> Any:
            return x * n, n + x.shape[0]

    run = load(Model(), torch.ones(3), 4, dynamic_shapes=({0: Dim.AUTO}, Dim.DYNAMIC))
    y, total = run(torch.ones(5), 7)
    assert torch.equal(y, torch.full((5,), 7.0))
    assert total == 12
    assert type(total) is int
    with pytest.raises(TypeError, match="expected a Python int"):
        run(torch.ones(5), 7.5)


def test_sizes_of_the_call(load: Load) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ y, -1).reshape(-1)[1:]

    shapes = {0: Dim.AUTO}, {1: Dim.AUTO}
    run = load(function, torch.randn(4, 3), torch.randn(3, 5), dynamic_shapes=shapes)
    for m, n in ((4, 5), (1, 5), (7, 2), (4, 5), (13, 1)):
        x, y = torch.randn(m, 3), torch.randn(3, n)
        assert torch.allclose(run(x, y), function(x, y), atol=1e-6)
    with pytest.raises(ValueError, match=r"expected a tensor \?x3xfloat32, got 4x4xfloat32"):
        run(torch.randn(4, 4), torch.randn(3, 5))


def test_sizes_that_do_not_fit(load: Load) -> None:
    run = load(torch.add, torch.ones(4), torch.ones(4), dynamic_shapes=({0: Dim.AUTO}, {0: Dim.AUTO}))
    assert torch.equal(run(torch.ones(6), torch.ones(6)), torch.full((6,), 2.0))
    with pytest.raises(ValueError, match="'args_1' is 5, and must be 6: s0 is 6 in dimension 0 of argument 'args_0'"):
        run(torch.ones(6), torch.ones(5))
    assert torch.equal(run(torch.ones(5), torch.ones(5)), torch.full((5,), 2.0))


def test_a_bound_call_reads_what_is_in_its_tensors(load: Load) -> None:
    run = load(torch.add, torch.zeros(3), torch.zeros(3))
    x, y = torch.ones(3), torch.ones(3)
    call = run.bind(x, y)
    assert torch.equal(call(), torch.full((3,), 2.0))
    x.fill_(5)
    assert torch.equal(call(), torch.full((3,), 6.0))


def test_several_functions(engine: str) -> None:
    module = flambeau.compile(lambda x: x + 1, (torch.zeros(2),), output_type="raw", function="plus")
    run = flambeau.load(
        flambeau.compile(module, output_type=OUTPUT_TYPES[engine]), engine=engine.partition("-")[0], **OPTIONS[engine]
    )
    assert torch.equal(run.function("plus")(torch.zeros(2)), torch.ones(2))
    assert torch.equal(run(torch.zeros(2)), torch.ones(2))
    with pytest.raises(ValueError, match="has no function 'minus'; it has plus"):
        run.function("minus")


def test_a_module_of_another_output_type_is_an_error(engine: str) -> None:
    wrong = {"eager": "stablehlo", "iree": "torch", "xla": "linalg-on-tensors"}[engine]
    module = flambeau.compile(torch.neg, (torch.zeros(2),), output_type=wrong)
    with pytest.raises(EngineError, match=r"output_type=|torch dialect"):
        flambeau.load(module, engine=engine)


@pytest.mark.parametrize("engine", list(SAVED))
def test_programs_are_saved_and_loaded(engine: str, tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)
            self.linear.weight.requires_grad_(False)
            self.tied = self.linear.weight
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.linear(x) + self.tied.sum() + self.calls

    model = Model()
    for shapes in (None, ({0: Dim.AUTO},)):
        model.calls.zero_()
        module = flambeau.compile(model, (torch.ones(2, 3),), output_type=OUTPUT_TYPES[engine], dynamic_shapes=shapes)
        run = flambeau.load(module, engine=engine.partition("-")[0], **OPTIONS[engine])
        path = tmp_path / SAVED[engine]
        run.save(path)
        again = flambeau.load(path)
        x = torch.randn(2, 3)
        with torch.no_grad():
            assert torch.equal(again(x), run(x))
            assert torch.equal(again(x), run(x))
        assert int(model.calls) == 2
        path.with_suffix(".safetensors").unlink()
        with pytest.raises(EngineError, match="is missing"):
            flambeau.load(path)
