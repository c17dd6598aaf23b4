"""How long single ops take on IREE, beside eager PyTorch and `torch.compile`, on one thread, and how they grow.

    python bench/ops.py                        # all cases: minutes
    python bench/ops.py -k sort --inductor     # some, with torch.compile beside
    python bench/ops.py --check --json ops.json --resume   # exit with 1 if a bar is missed; go on where it was stopped

All are called in turns in one process, and CPU time is what counts: other jobs on the machine slow all of them. The
growth is what four times the size takes over what the size takes; n log n grows 4.6 times. Where four times the size
leaves the caches all of them take longer, and the bar is eager's own growth in the same run.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from op_cases import CASES, Case
from rich.console import Console
from rich.table import Table
from torch import nn

import flambeau

MEAN, GROWTH = 1.0, 4.6
"""The bars: the geometric mean over eager, and the growth from n to 4n of what has one, unless eager's is more."""
TAKEN, TURNS = 0.03, 5
"""CPU seconds for one measurement, and how many there are."""


class Program(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.function(*tensors)


def seconds(functions: list[Callable[[], Any]]) -> list[float]:
    """Measure the least CPU time of a call of each function, in turns; short ones are called many times a turn."""
    counts, best = [], []
    for function in functions:
        function()
        start = time.process_time()
        function()
        once = max(time.process_time() - start, 1e-6)
        counts.append(max(1, int(TAKEN / once)))
        best.append(once)
    for _ in range(TURNS):
        for i, function in enumerate(functions):
            start = time.process_time()
            for _ in range(counts[i]):
                function()
            best[i] = min(best[i], (time.process_time() - start) / counts[i])
    return best


def difference(ours: Any, eager: Any) -> None:
    """Fail unless the results agree: a fast wrong answer is none."""
    for mine, other in zip(*(r if isinstance(r, (tuple, list)) else (r,) for r in (ours, eager)), strict=True):
        if other.dtype.is_floating_point or other.dtype.is_complex:
            torch.testing.assert_close(
                torch.as_tensor(mine), other, rtol=2e-2, atol=2e-2 * float(other.abs().max() + 1e-3)
            )


def measure(case: Case, is_grown: bool, inductor: bool) -> dict[str, float]:
    """Measure the times of one case, in seconds."""
    program = Program(case.function).eval()
    inputs = case.inputs(case.size)
    run = flambeau.load(flambeau.compile(program, inputs), device="local-sync")
    difference(run(*inputs), program(*inputs))
    functions = [lambda: program(*inputs), lambda: run(*inputs)]
    if inductor:
        torch._dynamo.reset()
        compiled = torch.compile(program)
        functions.append(lambda: compiled(*inputs))
    times = seconds(functions)
    result = {"eager": times[0], "ours": times[1], **({"inductor": times[2]} if inductor else {})}
    if is_grown and case.grows:
        larger = case.inputs(4 * case.size)
        run_larger = flambeau.load(flambeau.compile(program, larger), device="local-sync")
        result["larger"], result["eager larger"] = seconds([lambda: run_larger(*larger), lambda: program(*larger)])
    return result


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan


def report(results: dict[str, dict[str, Any]]) -> list[str]:
    """Print the table; gives what misses a bar."""
    table = Table("op", "eager us", "over eager", "over inductor", "n to 4n", "eager's", title="one thread, CPU time")
    missed: list[str] = []
    for name, r in results.items():
        if "error" in r:
            table.add_row(name, "", "[red]failed")
            missed.append(f"{name}: {r['error']}")
            continue
        ratio, limit = r["ours"] / r["eager"], CASES[name].limit
        growth, of_eager = (r["larger"] / r["ours"], r["eager larger"] / r["eager"]) if "larger" in r else (0.0, 0.0)
        bar = max(GROWTH, of_eager)
        of_inductor = f"{r['ours'] / r['inductor']:.2f}" if "inductor" in r else ""
        colour = "[red]" if ratio > limit else ""
        grown = [f"{'[red]' if growth > bar else ''}{growth:.1f}", f"{of_eager:.1f}"] if growth else []
        table.add_row(name, f"{r['eager'] * 1e6:,.0f}", f"{colour}{ratio:.2f}", of_inductor, *grown)
        if ratio > limit:
            missed.append(f"{name}: {ratio:.2f} times eager, the bar is {limit}")
        if growth > bar:
            missed.append(f"{name}: grows {growth:.1f} times from n to 4n, the bar is {bar:.1f}")
    measured = {n: r for n, r in results.items() if "error" not in r}
    ratios = {n: r["ours"] / r["eager"] for n, r in measured.items()}
    mean = _mean(list(ratios.values()))
    of_inductor = _mean([r["ours"] / r["inductor"] for r in measured.values() if "inductor" in r])
    worst = max(ratios, key=lambda n: ratios[n], default="")
    table.add_section()
    table.add_row(f"geometric mean of {len(ratios)}", "", f"{mean:.3f}", f"{of_inductor:.3f}")
    table.add_row(f"worst: {worst}", "", f"{ratios.get(worst, math.nan):.2f}")
    Console().print(table)
    if mean > MEAN:
        missed.append(f"the geometric mean over eager is {mean:.3f}, the bar is {MEAN}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", default="", metavar="TEXT", help="only the cases with this in their names")
    parser.add_argument("--inductor", action="store_true", help="measure torch.compile beside, which compiles C++")
    parser.add_argument("--no-growth", action="store_true", help="do not measure four times the size")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write each result to a file as it comes")
    parser.add_argument("--resume", action="store_true", help="keep the results that the file has")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    warnings.simplefilter("ignore")
    results: dict[str, dict[str, Any]] = {}
    if arguments.resume and arguments.json and arguments.json.exists():
        results = json.loads(arguments.json.read_text())
    names = [n for n in CASES if arguments.k in n]
    console = Console(stderr=True)
    for i, name in enumerate(names):
        if name not in results or "error" in results[name]:
            try:
                with torch.no_grad():
                    results[name] = measure(CASES[name], not arguments.no_growth, arguments.inductor)
            except Exception as e:  # the table is of all ops: what fails is a row of it
                results[name] = {"error": f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"[:300]}
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=1))
            ratio = results[name].get("ours", math.nan) / results[name].get("eager", math.nan)
            console.print(f"{i + 1}/{len(names)} {name}: {ratio:.2f}", highlight=False)
    missed = report({n: results[n] for n in names})
    for line in missed:
        print(line)
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
