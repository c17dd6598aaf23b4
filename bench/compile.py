"""Compile time and memory, from an exported program to linalg, beside torch-mlir's on the same machine in the same run.

python bench/compile.py                              # all models, both compilers
python bench/compile.py --models opt-125m --no-peer  # ours alone
python bench/compile.py --check --json bench.json    # exits 1 if a bar is missed
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import json
import math
import platform
import statistics
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import torch
from rich.console import Console
from rich.table import Table
from torch.export import ExportedProgram

import flambeau
from flambeau.frontends.fx.pytrees import register_known_containers
from flambeau.testing.models import MODELS

BENCHED = ("opt-125m", "bert-base", "resnet-50")
SEQUENCE = 128
ONE_OP_RUNS = 20
OUTPUT_TYPE = "linalg-on-tensors"

console = Console()


@dataclass
class Measurement:
    """One call of one compiler."""

    cpu_seconds: float = math.nan
    wall_seconds: float = math.nan
    peak_bytes: int = 0
    """How far the process grew above what it held before the call."""
    stages: dict[str, float] = field(default_factory=dict)
    error: str | None = None


@dataclass
class Row:
    """One model, compiled by both."""

    model: str
    weight_bytes: int
    ours: Measurement
    peer: Measurement | None = None

    @property
    def ratio(self) -> float:
        return self.peer.cpu_seconds / self.ours.cpu_seconds if self.peer else math.nan

    @property
    def growth(self) -> float:
        """Peak memory growth as a fraction of the weights."""
        return self.ours.peak_bytes / self.weight_bytes if self.ours.error is None else math.nan


@dataclass
class Results:
    rows: list[Row] = field(default_factory=list)
    one_op: dict[str, float] = field(default_factory=dict)
    """Compiler to CPU seconds for a program of one op, once warm."""

    def row(self, model: str) -> Row | None:
        return next((row for row in self.rows if row.model == model), None)


@dataclass(frozen=True)
class Bar:
    """A number that a release must reach. A value of None was not measured in this run."""

    name: str
    value: float | None
    limit: float
    at_least: bool
    unit: str

    @property
    def passed(self) -> bool:
        # Written so that a value that is not a number, from a compiler that failed, misses the bar.
        if self.value is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def bars(results: Results) -> list[Bar]:
    def of(model: str, value: Callable[[Row], float], *, needs_peer: bool = False) -> float | None:
        row = results.row(model)
        return None if row is None or (needs_peer and row.peer is None) else value(row)

    return [
        Bar("OPT-125M, times faster", of("opt-125m", lambda r: r.ratio, needs_peer=True), 8, True, "x"),
        Bar("ResNet-50, times faster", of("resnet-50", lambda r: r.ratio, needs_peer=True), 15, True, "x"),
        Bar("OPT-125M, CPU", of("opt-125m", lambda r: r.ours.cpu_seconds), 1.2, False, " s"),
        Bar("one op, CPU", results.one_op.get("flambeau", math.nan) * 1000, 30, False, " ms"),
        *(Bar(f"{r.model}, memory growth / weights", r.growth * 100, 10, False, " %") for r in results.rows),
    ]


# Memory. Linux keeps a high-water mark that can be reset; where it cannot, a thread watches.


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def _reset_high_water_mark() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return _status_bytes("VmHWM") - _status_bytes("VmRSS") < 2**24


def _settle() -> None:
    """Give freed memory back to the system, so that a peak is not hidden in memory kept from before."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        pass


@contextmanager
def peak_growth(into: Measurement) -> Iterator[None]:
    """Measure how far the resident memory of this process rises in the body."""
    _settle()
    start = _status_bytes("VmRSS")
    if _reset_high_water_mark():
        yield
        into.peak_bytes = max(0, _status_bytes("VmHWM") - start)
        return
    peak = start
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, _status_bytes("VmRSS"))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    into.peak_bytes = max(0, max(peak, _status_bytes("VmRSS")) - start)


# The two compilers.


def compile_ours(program: ExportedProgram) -> dict[str, float]:
    module = flambeau.compile(program, output_type=OUTPUT_TYPE)
    return dict(module.timings)


def compile_peer(program: ExportedProgram) -> dict[str, float]:
    from torch_mlir import fx

    # It refuses programs with a non-persistent buffer (BERT's position ids) unless told that buffers may be written.
    mutation = any(spec.persistent is False for spec in program.graph_signature.input_specs)
    fx.export_and_import(program, output_type=OUTPUT_TYPE, experimental_support_mutation=mutation)
    return {}


def measure(compiler: Callable[[ExportedProgram], dict[str, float]], program: ExportedProgram) -> Measurement:
    result = Measurement()
    with peak_growth(result):
        wall, cpu = time.perf_counter(), time.process_time()
        try:
            result.stages = compiler(program)
        except Exception as error:  # A compiler that fails is a result of the benchmark.
            result.error = _first_line(error)
        else:
            result.cpu_seconds = time.process_time() - cpu
            result.wall_seconds = time.perf_counter() - wall
    return result


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def best(compiler: Callable[[ExportedProgram], dict[str, float]], program: ExportedProgram, runs: int) -> Measurement:
    """Return the run with the least CPU time; the peak memory is that of the first run."""
    measured = [measure(compiler, program) for _ in range(runs)]
    chosen = min(measured, key=lambda m: math.inf if m.error else m.cpu_seconds)
    return dataclasses.replace(chosen, peak_bytes=measured[0].peak_bytes)


class OneOp(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


def one_op_seconds(compiler: Callable[[ExportedProgram], dict[str, float]], runs: int = ONE_OP_RUNS) -> float:
    """Median CPU seconds for a program of one op; the first call, which loads libraries, is not counted."""
    program = torch.export.export(OneOp(), (torch.ones(4, 4),))
    compiler(program)
    seconds = []
    for _ in range(runs):
        start = time.process_time()
        compiler(program)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds)


def export(name: str) -> tuple[ExportedProgram, int]:
    """Export a model; return the program and the size of its weights."""
    model = MODELS[name].build()
    register_known_containers()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, (), MODELS[name].inputs(1, SEQUENCE))
    weights = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in program.state_dict.values()}
    return program, sum(weights.values())


# Reporting.


def seconds(measurement: Measurement | None, value: Callable[[Measurement], float]) -> str:
    if measurement is None:
        return "-"
    return "[red]fails[/]" if measurement.error else f"{value(measurement):.2f}"


def times(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}x"


def report(results: Results) -> None:
    rows = results.rows
    table = Table(title="From an exported program to linalg-on-tensors")
    table.add_column("seconds")
    for row in rows:
        table.add_column(row.model, justify="right")
    table.add_row("flambeau, CPU", *(seconds(row.ours, lambda m: m.cpu_seconds) for row in rows))
    for stage in dict.fromkeys(stage for row in rows for stage in row.ours.stages):
        table.add_row(f"  {stage}", *(f"{row.ours.stages.get(stage, 0.0):.2f}" for row in rows), style="dim")
    table.add_row("flambeau, wall", *(seconds(row.ours, lambda m: m.wall_seconds) for row in rows))
    table.add_row("torch-mlir, CPU", *(seconds(row.peer, lambda m: m.cpu_seconds) for row in rows))
    table.add_row("torch-mlir, wall", *(seconds(row.peer, lambda m: m.wall_seconds) for row in rows))
    table.add_row("ratio of CPU", *(times(row.ratio) for row in rows), style="bold")
    table.add_section()
    table.add_row("weights", *(f"{row.weight_bytes / 1e6:.0f} MB" for row in rows))
    growth = ["-" if row.ours.error else f"{row.ours.peak_bytes / 1e6:.0f} MB ({row.growth:.1%})" for row in rows]
    table.add_row("flambeau, memory growth", *growth)
    console.print(table)

    one_op = [f"{name} {value * 1000:.1f} ms" for name, value in results.one_op.items()]
    console.print(f"one op, once warm, CPU: {', '.join(one_op)}", highlight=False)
    for row in rows:
        for name, measurement in (("flambeau", row.ours), ("torch-mlir", row.peer)):
            if measurement is not None and measurement.error:
                console.print(f"{name} fails on {row.model}: {measurement.error}", markup=False, highlight=False)


def check(results: Results) -> bool:
    """Print each bar and whether it was reached; True if none was missed."""
    table = Table(title="Bars")
    for column in ("bar", "limit", "measured", ""):
        table.add_column(column, justify="left" if column == "bar" else "right")
    for bar in bars(results):
        limit = f"{'>=' if bar.at_least else '<='} {bar.limit:g}{bar.unit}"
        measured = "not measured" if bar.value is None else f"{bar.value:.2f}{bar.unit}"
        mark = "-" if bar.value is None else "[green]ok[/]" if bar.passed else "[red]missed[/]"
        table.add_row(bar.name, limit, measured, mark)
    console.print(table)
    return all(bar.passed for bar in bars(results))


def as_json(results: Results) -> dict[str, Any]:
    def finite(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: finite(item) for key, item in value.items()}
        if isinstance(value, list):
            return [finite(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    packages = ("flambeau", "torch", "torch-mlir", "transformers", "xdsl")
    rows = [dataclasses.asdict(row) | {"ratio": row.ratio, "growth": row.growth} for row in results.rows]
    checked = [dataclasses.asdict(bar) | {"passed": bar.passed} for bar in bars(results)]
    machine = {"processor": platform.processor() or platform.machine(), "python": platform.python_version()}
    versions = {package: _version(package) for package in packages}
    return finite(
        {"machine": machine, "versions": versions, "models": rows, "one_op_seconds": results.one_op, "bars": checked}
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except ModuleNotFoundError:
        return None


@click.command()
@click.option("--models", default=",".join(BENCHED), show_default=True, help="Models of the zoo, separated by commas.")
@click.option("--peer/--no-peer", default=True, help="Measure torch-mlir too (minutes, and gigabytes).")
@click.option("--runs", default=1, show_default=True, help="Take the best of this many runs, for both compilers.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Also write the numbers to this file.")
@click.option("--check", "check_bars", is_flag=True, help="Exit with 1 if a bar is missed.")
def main(models: str, peer: bool, runs: int, json_file: Path | None, check_bars: bool) -> None:
    """Measure how fast and in how little memory programs compile, beside torch-mlir."""
    names = [name.strip() for name in models.split(",") if name.strip()]
    if unknown := [name for name in names if name not in MODELS]:
        raise click.BadParameter(f"{', '.join(unknown)}: choose from {', '.join(MODELS)}", param_hint="--models")
    compilers = {"flambeau": compile_ours} | ({"torch-mlir": compile_peer} if peer else {})
    results = Results()
    with console.status("") as status, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for compiler, function in compilers.items():
            status.update(f"{compiler}: one op")
            try:
                results.one_op[compiler] = one_op_seconds(function)
            except Exception as error:  # As in `measure`.
                console.print(f"{compiler} fails on one op: {_first_line(error)}", markup=False, highlight=False)
        for name in names:
            status.update(f"{name}: export")
            program, weight_bytes = export(name)
            status.update(f"{name}: flambeau")
            row = Row(name, weight_bytes, best(compile_ours, program, runs))
            if peer:
                status.update(f"{name}: torch-mlir")
                row.peer = best(compile_peer, program, runs)
            results.rows.append(row)
            del program
    report(results)
    if json_file is not None:
        json_file.write_text(json.dumps(as_json(results), indent=2) + "\n")
    if check_bars and not check(results):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
