"""Compile a ResNet-50 and an OPT-125M, run both on IREE or XLA, and compare with eager PyTorch.

python examples/demo.py [--engine xla]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from rich.console import Console
from rich.table import Table

import flambeau
from flambeau.frontends.fx.pytrees import register_known_containers
from flambeau.testing.models import MODELS

NAMES = ("resnet-50", "opt-125m")
TOLERANCE = 1e-4
RUNS = 5

console = Console()


@dataclass(frozen=True)
class Outcome:
    """What one model cost at each step, and how far its result is from eager PyTorch's."""

    model: str
    parameters: int
    ops: int
    export: float
    stages: dict[str, float]
    engine: float
    run: float
    eager: float
    error: float

    @property
    def ok(self) -> bool:
        return self.error <= TOLERANCE


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = function()
    return result, time.perf_counter() - start


def median_time(function: Callable[[], Any]) -> float:
    function()
    return statistics.median(timed(function)[1] for _ in range(RUNS))


def relative_error(got: Any, want: Any) -> float:
    """Compute the greatest difference in any tensor of the results, relative to that tensor's greatest value."""
    pairs = zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True)
    errors = [((a - b).abs().max() / b.abs().max()).item() for a, b in pairs if isinstance(b, torch.Tensor)]
    # A NaN must not hide behind `max`.
    return max((e if e == e else float("inf") for e in errors), default=float("inf"))


ENGINES = {"iree": ("linalg-on-tensors", "IREE"), "xla": ("stablehlo", "XLA")}
"""What each engine takes, and what it is called."""


def demonstrate(name: str, engine: str, step: Callable[[str], None]) -> Outcome:
    output_type, title = ENGINES[engine]
    step("building")
    model = MODELS[name].build()
    inputs = MODELS[name].inputs(batch=1, sequence=128)
    # Decoders return their key-value cache; this tells torch.export what that is. `flambeau.compile(model, ...)` does
    # so by itself: here the export is a step of its own, to be timed.
    register_known_containers()

    step("torch.export")
    program, export = timed(lambda: torch.export.export(model, (), inputs))
    step(f"to {output_type}")
    module = flambeau.compile(program, output_type=output_type)
    step(f"{title} compiles")
    run, compiling = timed(lambda: flambeau.load(module, engine=engine))

    step("running")
    return Outcome(
        model=name,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        ops=sum(node.op == "call_function" for node in program.graph.nodes),
        export=export,
        stages=dict(module.timings),
        engine=compiling,
        run=median_time(lambda: run(**inputs)),
        eager=median_time(lambda: model(**inputs)),
        error=relative_error(run(**inputs), model(**inputs)),
    )


def table_of(outcomes: list[Outcome], engine: str) -> Table:
    output_type, title = ENGINES[engine]
    table = Table(title=f"PyTorch to {output_type} to {title}")
    table.add_column("")
    for outcome in outcomes:
        table.add_column(outcome.model, justify="right")
    stages = dict.fromkeys(stage for outcome in outcomes for stage in outcome.stages)

    def row(header: str, cell: Callable[[Outcome], str]) -> None:
        table.add_row(header, *(cell(outcome) for outcome in outcomes))

    row("parameters", lambda o: f"{o.parameters / 1e6:.1f}M")
    row("ops", lambda o: str(o.ops))
    table.add_section()
    row("export", lambda o: f"{o.export:.2f} s")
    for stage in stages:
        row(stage, lambda o, stage=stage: f"{o.stages.get(stage, 0.0):.2f} s")
    row(f"{title} compile", lambda o: f"{o.engine:.2f} s")
    table.add_section()
    row("run", lambda o: f"{o.run * 1000:.1f} ms")
    row("eager PyTorch", lambda o: f"{o.eager * 1000:.1f} ms")
    row("max relative error", lambda o: f"{o.error:.1e}")
    row("same result", lambda o: "[green]✔[/]" if o.ok else "[red]✘[/]")
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=list(ENGINES), default="iree", help="what runs the programs")
    engine = parser.parse_args().engine
    outcomes = []
    with torch.no_grad(), warnings.catch_warnings(), console.status("") as status:
        warnings.simplefilter("ignore")
        for name in NAMES:
            outcomes.append(demonstrate(name, engine, lambda step, name=name: status.update(f"{name}: {step}")))
    console.print(table_of(outcomes, engine))
    return 0 if all(outcome.ok for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
