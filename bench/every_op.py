"""How long every op of PyTorch's database takes at a size that nobody chose for it, beside eager PyTorch.

    python bench/every_op.py --json every_op.json            # an hour; goes on where it was stopped
    python bench/every_op.py -k cummax --elements 1000000    # one, larger
    python bench/every_op.py --json every_op.json --check    # exit with 1 if an op misses a bar

Sizes are found, not written down: the first samples of an entry are exported with every dim open, which says how the
sizes of its arguments hang together, and then all of them grow together until its tensors have as many elements as
were asked for. The program is compiled for those sizes, and its results are compared before anything is timed. Where a
program is slow, does not end or is wrong at a size that its tests do not have, this is what finds it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import selectors
import signal
import subprocess
import sys
import time
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from ops import seconds
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch.utils._pytree import tree_leaves

import flambeau
from flambeau.testing.cases import TOLERANCES, Call, Case, Sample
from flambeau.testing.comparing import is_near
from flambeau.testing.selection import find_cases
from flambeau.testing.sizes import resized

LIMIT, FLOOR = 10.0, 50e-6
"""The bar over eager, and the seconds below which a call may take any multiple of them: that is the call and no op."""
OF_FACTORS, OF_SERIES = 400.0, 50.0
"""The bars of ops that factor matrices, which eager PyTorch leaves to LAPACK, and of sums of many terms."""
FACTORS = re.compile(
    r"linalg\.(?!multi_dot|norm|vec|matrix_norm|matrix_power|cross|diagonal|vander)"
    r"|lu|qr|svd|logdet|pinv|norm@nuc|triangular|cholesky|ormqr|geqrf"
)
SERIES = re.compile(r"special\.zeta|polygamma|igamma")
SLOWEST, LARGEST = 20.0, 50_000_000
"""The seconds of one call in eager PyTorch, and the elements of its results, beyond which a size is not tried."""


def grown(sample: Sample, elements: int) -> Call | None:
    """Let all open dims of a sample's call grow by one factor, until its tensors have so many elements together."""
    call = sample.calls[0]
    with torch.no_grad():
        program = torch.export.export(
            sample.module, call.args, dict(call.kwargs), dynamic_shapes=sample.dynamic_shapes, strict=False
        )
    found, by = None, 1
    while by < elements:
        larger = resized(program, call, by)
        if larger is None or count(larger) > elements:
            break
        found, by = larger, math.ceil(by * 1.5)
    return found


def count(call: Call) -> int:
    return sum(x.numel() for x in call.args if isinstance(x, torch.Tensor))


def compare(ours: Any, eager: Any) -> str:
    """Say how results differ; nothing if they agree within the tolerance of their dtype at the size of the largest."""
    flat = [r if isinstance(r, (tuple, list)) else (r,) for r in (ours, eager)]
    for i, (mine, other) in enumerate(zip(*flat, strict=True)):
        if not isinstance(other, torch.Tensor) or other.numel() == 0:
            continue
        relative, absolute = TOLERANCES.get(str(other.dtype).removeprefix("torch."), (0.0, 0.0))
        finite = other[other.isfinite()].abs() if relative else other.flatten()[:0]
        scale = float(finite.max()) if finite.numel() else 1.0
        try:
            torch.testing.assert_close(mine, other, rtol=relative, atol=absolute * max(scale, 1), equal_nan=True)
        except AssertionError as e:
            return f"result {i}: {' '.join(str(e).split())}"[:300]
    return ""


def measure(case: Case, elements: int) -> dict[str, Any]:
    """Measure the first sample of a case that can grow, in CPU seconds."""
    torch.manual_seed(case.seed)
    why = "none of its samples has a size that may vary"
    for sample in case.samples():
        try:
            call = grown(sample, elements)
        except Exception as e:  # what PyTorch cannot export with open sizes has none to grow
            why = f"PyTorch: {type(e).__name__}"
            continue
        if call is not None:
            return measured(case, sample, call)
    return {"left out": why}


def measured(case: Case, sample: Sample, call: Call) -> dict[str, Any]:
    module, args = sample.module.eval(), call.args
    result: dict[str, Any] = {"shapes": [list(x.shape) for x in args if isinstance(x, torch.Tensor)]}
    try:
        start = time.process_time()
        eager = module(*args)
        once = time.process_time() - start
    except Exception as e:  # sizes that make no sense together
        return result | {"left out": f"eager: {str(e).splitlines()[0]}"[:200]}
    if once > SLOWEST:
        return result | {"left out": f"eager takes {once:.0f} s"}
    if (given := sum(x.numel() for x in tree_leaves(eager) if isinstance(x, torch.Tensor))) > LARGEST:
        return result | {"left out": f"results of {given:,} elements"}
    start = time.perf_counter()
    run = flambeau.load(flambeau.compile(module, args), device="local-sync")
    result["compile"] = time.perf_counter() - start
    start = time.process_time()
    ours = run(*args)
    first = time.process_time() - start
    if case.compare == "values" and not sample.random and (difference := compare(ours, eager)):
        if not all(bool(x.isfinite().all()) for x in tree_leaves(eager) if isinstance(x, torch.Tensor)):
            result["not compared"] = "at this size PyTorch's numbers overflow"
        elif case.name.endswith("_ex") and bool(eager[-1].any()):
            result["not compared"] = "PyTorch says that there is no factor"
        elif not is_near(case, ours, eager, in_float64(sample.module, args)):
            result["difference"] = difference
    result["view"] = shares(eager, args)
    times = seconds([lambda: module(*args), lambda: run(*args)]) if first < 5 else [once, first]
    return result | {"eager": times[0], "ours": times[1]}


def shares(results: Any, args: tuple[Any, ...]) -> bool:
    """Tell whether a result lies in the memory of an argument: a program's results are tensors of their own."""
    own, given = ({x.untyped_storage().data_ptr() for x in tree_leaves(v) if isinstance(x, torch.Tensor)}
                  for v in (results, args))  # fmt: skip
    return bool(own & given)


def in_float64(module: Any, args: tuple[Any, ...]) -> Any:
    """Compute in f64: where rounding is much of a result, as of a matrix that is nearly singular, that tells."""
    wide = (x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in args)
    return deepcopy(module).double()(*wide)


def bar(id_: str) -> float:
    """Return how many times as long as eager PyTorch an op may take."""
    name = id_.split("/")[1]
    return OF_FACTORS if FACTORS.match(name) else OF_SERIES if SERIES.search(name) else LIMIT


# --- Workers: a case that does not end, or ends its process, is a row and not the end of the table. ---


def work(elements: int) -> None:
    """Measure the cases whose ids come on standard input; their results go to standard output, a line each."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # compilers print
    cases: dict[str, Case] = {}
    for line in sys.stdin:
        id_ = line.strip()
        suite, dtype = id_.split("/")[0], id_.rsplit("/", 1)[1]
        if id_ not in cases:
            cases |= find_cases((suite,), (dtype,), [])
        try:
            with torch.no_grad():
                result = measure(cases[id_], elements)
        except Exception as e:  # a row of the table
            result = {"error": f"{type(e).__name__}: {' '.join(str(e).split())}"[:300]}
        answers.write(json.dumps(result) + "\n")


class Worker:
    """A process that measures one case after the other, and is ended when one takes too long."""

    def __init__(self, elements: int) -> None:
        self.elements = elements
        self.process: subprocess.Popen[str] | None = None

    def ask(self, id_: str, timeout: float) -> dict[str, Any]:
        if self.process is None:
            command = [sys.executable, __file__, "--worker", "--elements", str(self.elements)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self.process = subprocess.Popen(command, text=True, start_new_session=True, **pipes)  # type: ignore[call-overload]
        assert self.process is not None
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(id_ + "\n")
        self.process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            line = self.process.stdout.readline() if selector.select(timeout) else None
        if line:
            return json.loads(line)
        self.close()
        return {"error": f"no end after {timeout:.0f} s" if line is None else "the process died"}

    def close(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


def report(results: dict[str, dict[str, Any]]) -> list[str]:
    """Print what is slowest, and a summary; gives what misses a bar."""
    timed = {id_: r for id_, r in results.items() if "ours" in r}
    by_ratio = sorted(timed, key=lambda id_: timed[id_]["eager"] / timed[id_]["ours"])
    table = Table("op", "eager us", "over eager", "compile s", "shapes", title="one thread, CPU time")
    for id_ in by_ratio[:40]:
        r = timed[id_]
        figures = f"{r['eager'] * 1e6:,.0f}", f"{r['ours'] / r['eager']:.2f}", f"{r['compile']:.1f}"
        table.add_row(id_, *figures, " ".join("x".join(map(str, s)) for s in r["shapes"]))
    console = Console()
    console.print(table)
    mean = math.exp(sum(math.log(r["ours"] / r["eager"]) for r in timed.values()) / max(len(timed), 1))
    left_out = sum("left out" in r for r in results.values())
    console.print(
        f"{len(timed)} ops, {mean:.2f} times eager in the geometric mean; {left_out} left out", highlight=False
    )
    missed = [f"{id_}: {r['error']}" for id_, r in results.items() if "error" in r]
    missed += [f"{id_}: {r['difference']}" for id_, r in timed.items() if "difference" in r]
    for id_ in by_ratio:
        ours, eager = timed[id_]["ours"], timed[id_]["eager"]
        if ours > max(bar(id_) * eager, FLOOR) and not timed[id_].get("view"):
            missed.append(f"{id_}: {ours / eager:.1f} times eager, the bar is {bar(id_):.0f}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", default="", metavar="TEXT", help="only the entries with this in their names")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--elements", type=int, default=50_000, help="how many all tensors of a call have, at most")
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds for one case")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bar is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results here, and go on from those")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.elements)
        return 0
    cases = [c for c in find_cases(("dynamic",), (arguments.dtype,), []) if arguments.k in c]
    results: dict[str, dict[str, Any]] = {}
    if arguments.json and arguments.json.exists():
        results = json.loads(arguments.json.read_text())
    worker = Worker(arguments.elements)
    try:
        for id_ in track([c for c in cases if c not in results], "every op", console=Console(stderr=True)):
            results[id_] = worker.ask(id_, arguments.timeout)
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=1))
    finally:
        worker.close()
    missed = report({c: results[c] for c in cases})
    for line in missed:
        print(line)
    return 1 if arguments.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
