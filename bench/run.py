"""How long models run on IREE, beside eager PyTorch and beside other compiler flags, on one thread.

    python bench/run.py                                   # the nine models under the default profile, against eager
    python bench/run.py --models opt-125m --flags=--iree-opt-data-tiling --without=--iree-global-opt-data-tiling

All are called in turns in one process, and CPU time is what counts: other jobs on the machine slow all of them.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import flambeau
from flambeau.engines.iree import flags
from flambeau.testing.models import MODELS


def seconds(functions: list[Callable[[], Any]], runs: int) -> list[float]:
    """Measure the least CPU time of each function, called in turns."""
    best = [math.inf] * len(functions)
    for _ in range(runs + 1):  # the first call of each is to get warm
        for i, function in enumerate(functions):
            start = time.process_time()
            function()
            best[i] = min(best[i], time.process_time() - start)
    return best


def load(module: flambeau.Module, profile: tuple[str, ...]) -> Any:
    """Compile under the default profile with other flags."""
    before = flags._PROFILES["model"]
    flags._PROFILES["model"] = profile
    try:
        return flambeau.load(module, device="local-sync")
    finally:
        flags._PROFILES["model"] = before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS), metavar="NAME")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--flags", nargs="*", default=[], help="flags of IREE's to compare the profile with")
    parser.add_argument("--without", nargs="*", default=[], help="flags of the profile that those replace")
    parser.add_argument("--limit", type=float, help="exit with 1 if the mean against the other flags is above this")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    profile = flags._PROFILES["model"]
    other = (*(f for f in profile if f not in arguments.without), *arguments.flags)
    columns = ["model", "profile", "over eager"] + (
        ["over other flags", "profile with them"] if other != profile else []
    )
    table = Table(*columns, title=f"batch 1, sequence {arguments.sequence}, one thread, CPU time")
    ratios: list[tuple[float, ...]] = []
    for name in arguments.models:
        model, inputs = MODELS[name].build(), MODELS[name].inputs(1, arguments.sequence)
        module = flambeau.compile(model, (), inputs)
        runs = [load(module, p) for p in ([profile, other] if other != profile else [profile])]
        with torch.no_grad():
            times = seconds(
                [lambda m=model, i=inputs: m(**i), *(lambda r=r, i=inputs: r(**i) for r in runs)], arguments.runs
            )
        ratios.append(tuple(times[1] / t for t in (times[0], *times[2:])))
        extra = [f"{ratios[-1][1]:.3f}", runs[1].profile] if other != profile else []
        table.add_row(name, runs[0].profile, f"{ratios[-1][0]:.2f}", *extra)
        print(f"{name}: {ratios[-1]}", file=sys.stderr, flush=True)
    means = [math.exp(sum(map(math.log, column)) / len(column)) for column in zip(*ratios, strict=True)]
    table.add_row("geometric mean", "", *(f"{m:.3f}" for m in means))
    Console().print(table)
    return 1 if arguments.limit is not None and means[-1] > arguments.limit else 0


if __name__ == "__main__":
    sys.exit(main())
