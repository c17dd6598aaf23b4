"""TorchScript programs, from Python to a number out of IREE."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import pytest
import torch
from click.testing import CliRunner
from frontends.script_models import (
    BeamStep,
    Generator,
    LanguageModel,
    ResNet,
    RunningMean,
    SharedTree,
)
from torch import Tensor, nn

import flambeau
from flambeau import torchscript
from flambeau.commands import flambeau as main
from flambeau.engines.errors import RunError


def run(model: Any, args: tuple[Any, ...], frontend: str = "script", calls: int = 1, **options: Any) -> flambeau.Module:
    """Compile, run on IREE, and compare results, written arguments and state with eager PyTorch."""
    reference = copy.deepcopy(model)
    module = flambeau.compile(model, args, frontend=frontend, **options)
    executable = flambeau.load(module, profile="quick")
    for _ in range(calls):
        ours, eagers = copy.deepcopy(args), copy.deepcopy(args)
        with torch.no_grad():
            expected = reference(*eagers)
        torch.testing.assert_close(executable(*ours), expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(ours, eagers)
    return module


@pytest.mark.engine
@pytest.mark.parametrize("frontend", ["script", "trace"])
def test_resnet(frontend: str) -> None:
    torch.manual_seed(0)
    run(ResNet().eval(), (torch.randn(2, 3, 64, 64),), frontend)


@pytest.mark.engine
def test_language_model_with_a_loop() -> None:
    torch.manual_seed(0)
    run(LanguageModel().eval(), (torch.randint(0, 11, (2, 5)),))


@pytest.mark.engine
@pytest.mark.parametrize("steps", [0, 1, 6])
def test_trip_count_from_data(steps: int) -> None:
    """S82: the loop stays a loop, and one compilation serves all counts."""
    torch.manual_seed(0)
    model = Generator().eval()
    module = flambeau.compile(model, (torch.randn(2, 6), torch.tensor(3)), frontend="script")
    assert "scf.for" in str(module)
    x = torch.randn(2, 6)
    got = flambeau.load(module, profile="quick")(x, torch.tensor(steps))
    torch.testing.assert_close(got, model(x, torch.tensor(steps)), rtol=1e-4, atol=1e-5)


@pytest.mark.engine
def test_beam_search_step() -> None:
    torch.manual_seed(0)
    run(BeamStep().eval(), (torch.randn(4), torch.randn(4, 6)))


@pytest.mark.engine
@pytest.mark.parametrize("frontend", ["script", "trace"])
def test_shared_submodules(frontend: str) -> None:
    module = run(SharedTree().eval(), (torch.randn(2, 4),), frontend)
    assert len(module.weights) == 4, "a shared layer has its weights once"


@pytest.mark.engine
def test_state_lives_between_calls() -> None:
    run(RunningMean(), (torch.randn(4, 3),), calls=3)


@pytest.mark.engine
def test_training_statistics_are_state() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x: Tensor) -> Tensor:
            return self.norm(x)

    run(Model().train(), (torch.randn(5, 3),), calls=2)
    module = run(Model().eval(), (torch.randn(5, 3),), calls=2)
    (signature,) = module.signatures.values()
    assert [a.state for a in signature.arguments] == [None], "what no path writes is a constant"


class Conditional(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            y = x
        else:
            y = x.clone()
        y[0] += 10
        return x + y


@pytest.mark.engine
@pytest.mark.parametrize("sign", [1, -1])
def test_write_through_one_alias_or_another(sign: int) -> None:
    """What the caller passed is written only if the branch said so."""
    run(Conditional(), (torch.full((3,), float(sign)),))


class EarlyReturn(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        for i in range(5):
            if bool(x.sum() > i * 3):
                return x * i
        return -x


class Breaks(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, int]:
        n = 0
        while n < 10:
            x = x + 1
            if bool(x.max() > 5):
                break
            n += 1
        return x, n


@pytest.mark.engine
@pytest.mark.parametrize("model", [EarlyReturn(), Breaks()])
@pytest.mark.parametrize("value", [-2.0, 1.0, 7.0])
def test_leaving_loops(model: nn.Module, value: float) -> None:
    run(model, (torch.full((3,), value),))


class Containers(nn.Module):
    def forward(
        self,
        xs: list[Tensor],
        table: dict[str, Tensor],
        scale: Optional[Tensor] = None,  # noqa: UP045
    ) -> dict[str, Tensor]:
        total = table["a"]
        for x in xs:
            total = total + x
        if scale is not None:
            total = total * scale
        return {"total": total, "first": total[0]}


@pytest.mark.engine
def test_containers_at_the_border() -> None:
    args = ([torch.randn(3), torch.randn(3)], {"a": torch.randn(3)})
    run(Containers(), args)
    run(Containers(), (*args, torch.randn(3)))
    run(Containers(), (*args, None))


class Tuples(nn.Module):
    def forward(self, x: Tensor, flag: bool = False) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        outputs = (x,)
        wide = outputs + (x.view(-1),) + (x.t(),)  # noqa: RUF005
        rest = wide[1:]
        x.mul_(2)
        last = rest[0] if flag else rest[1]
        return wide[0], (rest[0], last)


@pytest.mark.engine
def test_tuples_of_views() -> None:
    """S15, S17: concatenation, index by a flag, slice; all of them views of what is written later."""
    run(Tuples(), (torch.randn(2, 3),))


class Asserts(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        assert x.size(0) == 3, "three rows"
        assert bool(x.sum() < 100), "too much"
        return x.relu()


@pytest.mark.engine
def test_assertions() -> None:
    run(Asserts(), (torch.randn(3),))
    module = flambeau.compile(Asserts(), (torch.randn(3),), frontend="script")
    with pytest.raises(RunError, match="too much"):
        flambeau.load(module, profile="quick")(torch.full((3,), 1e3))
    with pytest.raises(flambeau.CompileError, match="always raises: AssertionError: three rows") as caught:
        flambeau.compile(Asserts(), (torch.randn(4),), frontend="script")
    assert caught.value.diagnostics[0].file == __file__


@pytest.mark.engine
def test_dynamic_sizes() -> None:
    """S79: placeholders leave axes open; one compilation serves other sizes, scripted or traced."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()
    for tracing in (False, True):
        example = torchscript.TensorPlaceholder.like(torch.randn(2, 4), dynamic_axes=[0])
        module = torchscript.compile(model, example, "linalg-on-tensors", use_tracing=tracing)
        executable = flambeau.load(module, profile="quick")
        for rows in (1, 2, 5):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(executable(x), model(x))


def test_annotated_arguments() -> None:
    """S79: the decorator that torch-mlir's users know, without example arguments."""

    class Model(nn.Module):
        @torchscript.annotate_args([None, ([-1, 3], torch.float32, True)])
        def forward(self, x):  # type: ignore[no-untyped-def]
            return torch.tanh(x)

    module = torchscript.compile(Model(), output_type="torch")
    assert "!torch.vtensor<[?,3],f32>" in str(module)


def test_api_of_old() -> None:
    """S11: the call of the OPT document; strings and the enumeration both name the output."""
    model = nn.Linear(2, 2).eval()
    for output in (flambeau.OutputType.TORCH, "torch", "TORCH"):
        module = torchscript.compile(model, (torch.randn(1, 2),), output_type=output, use_tracing=True)
        assert "torch.aten.linear" in str(module)


@pytest.mark.engine
def test_raw_modules_can_be_lowered_later() -> None:
    model = SharedTree().eval()
    x = torch.randn(2, 4)
    raw = torchscript.compile(model, (x,), "raw")
    assert "torch.nn_module" in str(raw)
    module = flambeau.compile(raw, output_type="linalg-on-tensors")
    torch.testing.assert_close(flambeau.load(module, profile="quick")(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.engine
def test_archives(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.manual_seed(0)
    model = LanguageModel().eval()
    torch.jit.save(torch.jit.script(model), str(path))
    ids = torch.randint(0, 11, (1, 3))
    module = flambeau.compile(str(path), (ids,))
    torch.testing.assert_close(flambeau.load(module, profile="quick")(ids), model(ids), rtol=1e-4, atol=1e-5)
    runner = CliRunner()
    result = runner.invoke(main, ["compile", str(path), "--input", "1x3xi64", "--emit", "torch"])
    assert result.exit_code == 0, result.output
    assert "torch.aten.lstm_cell" in result.output or "torch.aten.mm" in result.output or "linear" in result.output
    result = runner.invoke(main, ["run", str(path), "--input", "1x3xi64=ones", "--check"])
    assert "equal to eager PyTorch" in result.output


def test_files_that_are_no_archives(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"w": torch.ones(2)}, path)
    with pytest.raises(flambeau.CompileError, match="is not a TorchScript archive"):
        flambeau.compile(str(path), (torch.randn(1),))
    with pytest.raises(flambeau.CompileError, match="there is no file"):
        flambeau.compile(str(tmp_path / "nothing.pt"), (torch.randn(1),))


class Grows(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        parts: list[Tensor] = []
        for _ in range(int(x.sum().item())):
            parts.append(x)
        return torch.stack(parts)


class UnknownAlias(nn.Module):
    def forward(self, x: Tensor, n: Tensor) -> Tensor:
        y = x.t().reshape(-1)
        y.add_(1)
        return x


@pytest.mark.parametrize(
    ("model", "args", "message", "line"),
    [
        (
            Grows(),
            (torch.ones(3),),
            "a list grows or shrinks in a loop whose trip count is not known",
            "for _ in range",
        ),
        (
            UnknownAlias(),
            (torchscript.TensorPlaceholder.like(torch.ones(3, 2), dynamic_axes=[0, 1]), torch.tensor(1)),
            "may have been written through an alias",
            "y.add_(1)",
        ),
    ],
)
def test_what_cannot_be_expressed(model: nn.Module, args: Any, message: str, line: str) -> None:
    with pytest.raises(flambeau.CompileError, match=message) as caught:
        torchscript.compile(model, args)
    (problem,) = caught.value.diagnostics
    assert problem.file == __file__
    assert line in problem.place()


def test_errors_name_the_frontend() -> None:
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="frontend is 'fx', 'script' or 'trace'"):
        flambeau.compile(model, (torch.randn(1, 2),), frontend="magic")
    with pytest.raises(TypeError, match="no example for its argument"):
        flambeau.compile(Generator(), (torch.randn(1, 6),), frontend="script")
    with pytest.raises(TypeError, match="2 examples are given"):
        flambeau.compile(model, (torch.randn(1, 2), torch.randn(1)), frontend="script")
    with pytest.raises(TypeError, match="positional"):
        flambeau.compile(model, (), {"input": torch.randn(1, 2)}, frontend="script")


@pytest.mark.engine
@pytest.mark.parametrize(
    "function",
    [lambda x: x.sort()[0], lambda x: torch.nn.functional.gelu(x), lambda x: torch.outer(x[0], x[1])],
    ids=["sort", "gelu", "outer"],
)
def test_functions_trace(function: Callable[[Tensor], Tensor]) -> None:
    run(function, (torch.randn(2, 4),), "trace")


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h, c = self.cell(x, (x, x))
        return h + c


@pytest.mark.parametrize("frontend", ["fx", "script"])
def test_recurrent_cells_write_to_the_parts_of_their_gates(frontend: str) -> None:
    text = str(flambeau.compile(Cell(), (torch.randn(2, 4),), frontend=frontend))
    assert "linalg.generic" in text


class LoopInLoop(nn.Module):
    """What the inner loop computes reaches nobody, and is tried in several ways before that is clear."""

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        y = x.diagonal(1)
        y.unsqueeze_(1)
        for _ in range(int(c)):
            (z,) = y.diagonal().split(1, 0)
            while bool(z < -0.4):
                x = x * 2
        return y


def test_loops_that_are_tried_in_vain_leave_nothing_behind() -> None:
    x, c = torch.ones(2, 3), torch.tensor(2)
    run = flambeau.load(torchscript.compile(LoopInLoop(), (x, c)), engine="eager")
    assert torch.equal(run(x, c), LoopInLoop()(x, c))


class ScaledInPlace(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.mul_(0.5)
        return x


def test_a_float_is_not_written_to_integers() -> None:
    with pytest.raises(flambeau.CompileError, match="a result of float32 is written to a tensor of int64"):
        torchscript.compile(ScaledInPlace(), (torch.arange(3),))
    x = torch.arange(3.0)
    run = flambeau.load(torchscript.compile(ScaledInPlace(), (x,)), engine="eager")
    assert torch.equal(run(x.clone()), x / 2)


class Numbers(nn.Module):
    def forward(
        self, a: int, b: int, x: float, items: list[int], t: Tensor
    ) -> tuple[bool, int, float, list[int], list[float], int, float]:
        ordered = sorted(items)
        halves = [x / 2, x * float(t), float(min(a, b))]
        halves.sort(reverse=True)
        places = (a in items, max(items) - sum(items) + items.index(b), x // 0.3 + x % b)
        return (*places, ordered, halves, a << 2 | b, math.sin(x) + math.pow(a, b))


@pytest.mark.engine
def test_functions_of_numbers() -> None:
    """Arguments and results are Python's ints, floats, bools and lists of them, known at run time only."""
    model = torch.jit.script(Numbers())
    args = (3, 5, 1.75, [7, 5, -2, 3], torch.tensor(2.0))
    execute = flambeau.load(flambeau.compile(model, args), profile="quick")
    for given in (args, (-1, 2, -3.5, [2, 9, -1, 4], torch.tensor(0.5))):
        actual, expected = execute(*given), model(*given)
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=0)
        assert [type(v) for v in actual] == [type(v) for v in expected]
    with pytest.raises(RunError, match="the list has no such element"):
        execute(1, 8, 1.0, [1, 2, 3, 4], torch.tensor(1.0))
