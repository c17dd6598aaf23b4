"""What a call of a compiled program costs beside the same call of eager PyTorch: `python bench/calls.py [--check]`.

    python bench/calls.py --inductor                      # PyTorch's own compiler too, which needs a C++ compiler

Programs are so small, or so often called, that the way into the engine and back counts. One thread, CPU time; eager and
compiled programs are called in turns, and the least median of several rounds counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import flambeau
from flambeau.engines.xla import client

Call = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """A program to call, with how many times eager's time a call may take."""

    name: str
    limit: float
    eager: Call
    ours: Call
    model: Callable[..., Any]
    """What inductor is given, with the arguments behind it."""
    arguments: tuple[Any, ...]
    calls: int = 200
    """How many calls make one measurement."""


class Counter(nn.Module):
    """A model with state that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(64))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x)
        return self.total * 2


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


def negate_all(*xs: Tensor) -> tuple[Tensor, ...]:
    return tuple(-x for x in xs)


def load(model: Any, *args: Any) -> Any:
    return flambeau.load(flambeau.compile(model, args), device="local-sync")


def on_xla(*args: Tensor) -> tuple[Call, Call]:
    """Make a sum on XLA: XLA's own call with arrays that it has already, and a call of the program."""
    run = flambeau.load(flambeau.compile(add, args, output_type="stablehlo"), engine="xla")
    compiled = run.compiled()
    arrays = client.to_arrays(compiled.device, args, compiled.arguments)
    return lambda: compiled.run(arrays), lambda: run(*args)


def through_dynamo(model: Any, x: Tensor, **options: Any) -> Call:
    fast = torch.compile(model, backend="flambeau", options=options)
    return lambda: fast(x)


def cases() -> list[Case]:
    """Make the programs; limits leave room for a machine that others use."""
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    sum_ = load(add, x, y)
    many = tuple(torch.randn(4) for _ in range(40))
    negated = load(negate_all, *many)
    row = torch.randn(1, 1024)
    linears = nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 1024)).eval()
    small = torch.randn(8, 64)
    mlp = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).eval()
    loaded = load(mlp, small)
    tiny, pair = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), torch.randn(2, 4)
    counter, one = Counter(), torch.ones(64)
    counted = load(Counter(), one)
    return [
        Case("4x4 add", 20, lambda: x + y, lambda: sum_(x, y), add, (x, y)),
        Case("4x4 add, bound", 9, lambda: x + y, sum_.bind(x, y), add, (x, y)),
        Case("4x4 add on XLA, over XLA's own call", 6, *on_xla(x, y), add, (x, y)),
        Case("40 inputs and outputs", 6, lambda: negate_all(*many), lambda: negated(*many), negate_all, many),
        Case("MLP 64-128-10", 3, lambda: mlp(small), lambda: loaded(small), mlp, (small,)),
        Case("state of 64 floats", 20, lambda: counter(one), lambda: counted(one), counter, (one,)),
        Case("Linear(4, 4) and ReLU, torch.compile", 9, lambda: tiny(pair), through_dynamo(tiny, pair), tiny, (pair,)),
        *(
            Case(
                f"two Linear(1024), torch.compile, {weights}",
                limit,
                lambda: linears(row),
                through_dynamo(linears, row, device="local-sync", weights=weights),
                linears,
                (row,),
                20,
            )
            for weights, limit in (("tracked", 2.5), ("passed", 4), ("compared", 12))
        ),
    ]


def median(call: Call, calls: int) -> float:
    """Measure the median CPU time of a call, in microseconds; several make one measurement."""
    times = []
    for _ in range(7):
        start = time.process_time()
        for _ in range(calls):
            call()
        times.append((time.process_time() - start) / calls)
    return statistics.median(times) * 1e6


def microseconds(calls: list[Call], count: int, rounds: int) -> list[float]:
    """Measure the least median of each call, in turns."""
    for call in calls:
        for _ in range(3):
            call()
    measured = [[median(call, count) for call in calls] for _ in range(rounds)]
    return [min(column) for column in zip(*measured, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--inductor", action="store_true", help="measure torch.compile's default backend too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument(
        "--check", action="store_true", help="fail if a program takes more of eager's time than its bar"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    columns = ["program", "eager, us", "Flambeau, us", "over eager", "bar"]
    columns += ["inductor, us", "over inductor"] if arguments.inductor else []
    table = Table(*columns, title="one call, one thread, CPU time")
    figures: dict[str, dict[str, float]] = {}
    with torch.no_grad():
        for case in cases():
            calls = [case.eager, case.ours]
            if arguments.inductor:
                compiled = torch.compile(case.model)
                calls.append(lambda c=compiled, a=case.arguments: c(*a))
            times = microseconds(calls, case.calls, arguments.rounds)
            ratios = [t / times[0] for t in times[1:]]
            figures[case.name] = {"eager": times[0], "flambeau": times[1], "ratio": ratios[0], "limit": case.limit}
            cells = [f"{times[0]:.1f}", f"{times[1]:.1f}", f"{ratios[0]:.2f}", f"{case.limit:g}"]
            if arguments.inductor:
                figures[case.name]["inductor"] = times[2]
                cells += [f"{times[2]:.1f}", f"{times[1] / times[2]:.2f}"]
            table.add_row(case.name, *cells)
    Console().print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))
    missed = [name for name, figure in figures.items() if figure["ratio"] > figure["limit"]]
    for name in missed:
        print(f"above its bar: {name}", file=sys.stderr)
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
