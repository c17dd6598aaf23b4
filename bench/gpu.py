"""How long models run on a GPU through XLA, beside eager PyTorch and `torch.compile`, in one run.

    python bench/gpu.py                                        # OPT-125M, BERT-base and ResNet-50, bf16 and f32
    python bench/gpu.py --cases opt-125m/bf16/1 --columns eager xla --dump out   # with what XLA made of them

Each call is timed from Python, without waiting between calls, as a server would make them: the median of several
rounds. Results are compared with eager PyTorch in f32. With TF32 off, as PyTorch has it by default, f32 is f32.
`xla` waits in each call for the program's checks (that indices are in range), `xla-late` hears of them in the next
call, as PyTorch's kernels have it, and `xla-unchecked` has none. The bars are for `xla-late`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import flambeau
from flambeau.testing.models import MODELS

MODEL_NAMES = ("opt-125m", "bert-base", "resnet-50")
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
COLUMNS = ("eager", "compile", "reduce-overhead", "xla", "xla-late", "xla-unchecked")
CHECKS = {"xla": True, "xla-late": "late", "xla-unchecked": False}
BARS = {"bf16": "reduce-overhead", "f32": "compile"}
"""What XLA must be at most as slow as, by dtype."""


def milliseconds(function: Callable[[], Any], rounds: int = 9, calls: int = 30) -> float:
    """Measure the median time of a call, over rounds of calls that are waited for together."""
    for _ in range(5):
        function()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / calls * 1e3)
    return statistics.median(times)


def first_tensor(result: Any) -> torch.Tensor:
    """Return the first tensor of floats in a model's result."""
    if isinstance(result, torch.Tensor):
        return result
    values = result.values() if isinstance(result, dict) else result
    return next(first_tensor(v) for v in values if v is not None)


def difference(result: Any, expected: torch.Tensor) -> float:
    """Measure how far a result is from the expected one: the norm of the difference over that of the expected one."""
    found = first_tensor(result).double()
    return float((found - expected.double()).norm() / expected.double().norm())


def runs_of(case: str, columns: list[str]) -> tuple[dict[str, Callable[[], Any]], Any]:
    """Make what a case runs, by column, and its result in f32."""
    name, dtype, batch = case.split("/")
    model = MODELS[name].build().cuda()
    inputs = {k: v.cuda() for k, v in MODELS[name].inputs(int(batch)).items()}
    with torch.no_grad():
        expected = first_tensor(model(**inputs))
    model = model.to(DTYPES[dtype])
    inputs = {k: v.to(DTYPES[dtype]) if v.is_floating_point() else v for k, v in inputs.items()}
    made: dict[str, Callable[[], Any]] = {}
    torch._dynamo.reset()  # Otherwise another batch size makes PyTorch compile for all sizes.
    for column in columns:
        start = time.perf_counter()
        function: Any = model
        if column in ("compile", "reduce-overhead"):
            function = torch.compile(model, mode=None if column == "compile" else column)
        elif column.startswith("xla"):
            module = flambeau.compile(model, (), inputs, output_type="stablehlo")
            function = flambeau.load(module, engine="xla", device="gpu", checks=CHECKS[column])
        with torch.no_grad():
            function(**inputs)
        torch.cuda.synchronize()
        print(f"{case} {column}: ready in {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
        made[column] = lambda f=function: f(**inputs)
    return made, expected


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = [f"{m}/{d}/{b}" for d in ("bf16", "f32") for m in MODEL_NAMES for b in (1, 32)]
    parser.add_argument("--cases", nargs="*", default=every, metavar="MODEL/DTYPE/BATCH")
    parser.add_argument("--columns", nargs="*", default=list(COLUMNS), choices=COLUMNS)
    parser.add_argument("--out", type=Path, help="a file for the figures, as JSON lines")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is missed")
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    missed = []
    print("| case | " + " | ".join(arguments.columns) + " | error of XLA, of eager |")
    for case in arguments.cases:
        made, expected = runs_of(case, arguments.columns)
        errors = {column: difference(run(), expected) for column, run in made.items()}
        times = {column: milliseconds(run) for column, run in made.items()}
        shown = " | ".join(f"{times[c]:.3f}" for c in arguments.columns)
        print(f"| {case} | {shown} | {errors.get('xla-late', 0):.1e}, {errors.get('eager', 0):.1e} |", flush=True)
        if arguments.out:
            with arguments.out.open("a") as file:
                file.write(json.dumps({"case": case, "ms": times, "error": errors}) + "\n")
        bar = BARS[case.split("/")[1]]
        if "xla-late" in times and bar in times and times["xla-late"] > times[bar]:
            missed.append(f"{case}: {times['xla-late'] / times[bar]:.2f} times {bar}")
        del made
        torch.cuda.empty_cache()
    print("\n".join(missed) or "all bars met")
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    sys.exit(main())
