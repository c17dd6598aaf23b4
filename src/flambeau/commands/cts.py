"""`flambeau cts`: the compatibility test suite."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from flambeau.commands.errors import usage_error
from flambeau.commands.plugins import plugin_option

if TYPE_CHECKING:
    from flambeau.testing.report.comparison import Comparison
    from flambeau.testing.results import Result, Run
    from flambeau.testing.runner import Plan

_console = Console()
_messages = Console(stderr=True)
ALL_DTYPES = ("float32", "int64", "bool", "bfloat16", "float16", "complex64")
"""What `--dtype all` stands for."""
SHOWN = 20
"""How many failures a terminal is shown."""


def _split(context: click.Context, option: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.strip() for value in values for part in value.split(",") if part.strip())


def _file(**kwargs: Any) -> click.Path:
    return click.Path(dir_okay=False, path_type=Path, **kwargs)


@dataclass(frozen=True)
class Options:
    """The options of the command; it says what each means."""

    backend: str
    suites: tuple[str, ...]
    targets: tuple[str, ...]
    dtypes: tuple[str, ...]
    level: str | None
    patterns: tuple[str, ...]
    ids: tuple[str, ...]
    failed: Path | None
    files: tuple[Path, ...]
    plugins: tuple[Path, ...]
    every: int
    jobs: int
    timeout: float
    memory: float
    out: Path
    restart: bool
    update_xfail: bool
    html: Path | None
    junit: Path | None
    json_file: Path | None
    compare: Path | None
    matrix: Path | None
    reports: tuple[Path, ...]
    list_only: bool


@click.command("cts")
@click.option(
    "--backend",
    default="iree",
    show_default=True,
    help="iree, xla, iree-int64, eager, an entry point, or a Python file.",
)
@click.option("--suite", "suites", multiple=True, callback=_split, help="ops, edge, dynamic, models or all.")
@click.option(
    "--target", "targets", multiple=True, callback=_split, help="Output types; all of the backend's if absent."
)
@click.option("--dtype", "dtypes", multiple=True, callback=_split, help="f32 (the default), i64, bool, ... or all.")
@click.option("--level", type=click.Choice(["core", "full"]), help="Judge by this level; exit 1 below it.")
@click.option("-k", "patterns", multiple=True, help="Only cases whose id contains, or matches, this.")
@click.option("--case", "ids", multiple=True, help="Only the case with this id.")
@click.option("--failed", type=_file(exists=True), help="Only what did not pass in this JSON report.")
@click.option("--cases", "files", multiple=True, type=_file(exists=True), help="A Python file with cases of your own.")
@plugin_option(expose_value=True)
@click.option("--every", default=1, type=click.IntRange(1), help="Only every n-th case.")
@click.option("--jobs", "-j", default=2, show_default=True, type=click.IntRange(1), help="Worker processes.")
@click.option(
    "--timeout",
    default=120.0,
    show_default=True,
    help="Seconds until a silent worker is given up, for one case; cases together have more.",
)
@click.option("--memory", default=8.0, show_default=True, help="GiB until a worker is given up.")
@click.option("--out", default=Path(".cts"), type=click.Path(file_okay=False, path_type=Path), help="Where results go.")
@click.option("--restart", is_flag=True, help="Forget what a run that was stopped has done.")
@click.option("--update-xfail", is_flag=True, help="Write what fails now into the XFAIL set.")
@click.option("--html", type=_file(), help="Write the report as one page.")
@click.option("--junit", type=_file(), help="Write the results as JUnit's XML.")
@click.option("--json", "json_file", type=_file(), help="Write the results here too.")
@click.option("--compare", type=_file(exists=True), help="Show what changed since this JSON report; exit 1 if worse.")
@click.option("--matrix", type=_file(), help="Write what passes, op by target by dtype, as Markdown.")
@click.option("--from", "reports", multiple=True, type=_file(exists=True), help="Run nothing: report on these results.")
@click.option("--list", "list_only", is_flag=True, help="List the cases and stop.")
def cts_command(**given: Any) -> None:
    """Try a backend with PyTorch's own op database, edge values, dynamic shapes and models.

    A run that is stopped goes on where it was when it is started again. Exit status: 0, or 1 if something fails that is
    not in the XFAIL set, something passes that is, or the level is not reached; 2 for a mistake in the call.
    """
    options = Options(**given)
    try:
        from flambeau.testing.report.comparison import compare_runs
        from flambeau.testing.results import Run
        from flambeau.testing.selection import find_cases, select
        from flambeau.testing.workers import WorkerError
    except ImportError as e:
        raise usage_error(f"the compatibility test suite needs `pip install flambeau[torch,iree]`: {e}") from None
    try:
        plan = _plan(options)
        if options.list_only:
            cases = select(find_cases(plan.suites, plan.dtypes, plan.files), plan.patterns, plan.ids, plan.tags)
            for case in cases[:: options.every]:
                click.echo(case.id)
            return
        before = Run.load(options.compare) if options.compare else None
        run = _results(options, plan)
    except (ValueError, OSError, WorkerError) as e:
        raise usage_error(str(e)) from None
    except KeyboardInterrupt:
        _messages.print("stopped; the same command goes on from here")
        sys.exit(130)
    if options.update_xfail:
        run = _update_xfail(options.backend, run)
    comparison = compare_runs(before, run) if before else None
    _write(run, comparison, options)
    _summary(run)
    if comparison is not None:
        _show_comparison(comparison)
    sys.exit(0 if _judged(run, options.level, comparison) else 1)


def _plan(options: Options) -> Plan:
    """Make the plan that the options ask for; cases by their ids bring their suites and dtypes with them."""
    from flambeau.api import OutputType
    from flambeau.testing.cases import REGISTERED
    from flambeau.testing.results import Run
    from flambeau.testing.runner import Plan
    from flambeau.testing.selection import dtype_named, suite_and_dtype
    from flambeau.testing.suites import SUITES
    from flambeau.testing.workers import Limits

    ids, suites, dtypes = options.ids, options.suites, options.dtypes
    if options.failed:
        ids += _failed_in(Run.load(options.failed))
    if ids and not suites:
        suites, dtypes = (tuple({pair[k]: None for pair in map(suite_and_dtype, ids)}) for k in (0, 1))
        suites = tuple(suite for suite in suites if suite != REGISTERED.name)
    elif not suites and not options.files:
        suites = ("ops",)
    return Plan(
        options.backend,
        tuple(SUITES) if "all" in suites else suites,
        ALL_DTYPES if "all" in dtypes else tuple(map(dtype_named, dtypes)) or ("float32",),
        tuple(str(OutputType.get(t)) for t in options.targets),
        options.patterns,
        ids,
        ("core",) if options.level == "core" else (),
        options.files,
        options.every,
        options.jobs,
        Limits(options.timeout, int(options.memory * (1 << 30))),
        options.out,
        options.restart,
        options.plugins,
    )


def _results(options: Options, plan: Plan) -> Run:
    """Run the plan, or take the results of the reports that were given."""
    from flambeau.testing.results import Run
    from flambeau.testing.runner import execute

    if options.reports:
        return _expected(options.backend, Run.merge([Run.load(path) for path in options.reports]))
    with _progress(plan) as progress:
        return execute(plan, progress)


def _failed_in(run: Run) -> tuple[str, ...]:
    """List the ids of the cases of a run that failed on some target; ValueError if none did."""
    from flambeau.testing.results import FAIL, XFAIL

    found = tuple(dict.fromkeys(r.case for r in run.results if r.status in (FAIL, XFAIL)))
    if not found:
        raise ValueError("nothing failed in that report")
    return found


@contextmanager
def _progress(plan: Plan) -> Iterator[Any]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    counts: Counter[str] = Counter()
    with Progress(*columns, console=_messages, disable=not _messages.is_terminal) as bar:
        task = bar.add_task("cts", total=None)

        def tell(done: int, total: int, result: Result | None) -> None:
            if result is None and done:
                _messages.print(f"going on: {done} of {total} results are there already")
            if result is not None:
                counts[result.status] += 1
            text = " ".join(f"{n} {status}" for status, n in sorted(counts.items())) or "starting"
            bar.update(task, completed=done, total=total, description=text)

        yield tell


def _update_xfail(spec: str, run: Run) -> Run:
    from flambeau.testing.xfail import XfailSet, xfail_path

    xfail = XfailSet(xfail_path(run.about["backend"], spec))
    before = len(xfail)
    xfail.update(run.results)
    xfail.save()
    _messages.print(f"{xfail.path}: {before} expected failures before, {len(xfail)} now")
    return _expected(spec, run)


def _expected(spec: str, run: Run) -> Run:
    """Apply the XFAIL set as it is now to the results of a run."""
    from flambeau.testing.results import Run
    from flambeau.testing.xfail import XfailSet, xfail_path

    xfail = XfailSet(xfail_path(run.about["backend"], spec))
    return Run(run.about, [xfail.apply(r) for r in run.results])


def _line(text: str) -> None:
    """Print a line as it is, however narrow the terminal."""
    _console.print(text, highlight=False, soft_wrap=True)


def _summary(run: Run) -> None:
    from flambeau.testing.results import EXCLUDED, FAIL, PASS, STATUSES, XPASS, share
    from flambeau.testing.xfail import failed

    present = [s for s in STATUSES if s == PASS or run.counts()[s]]
    table = Table("suite", "dtype", "target", *present, "passed", title=f"on {run.about['backend']}", pad_edge=False)
    for column in table.columns:
        column.no_wrap = True
    for suite in dict.fromkeys(r.suite for r in run.results):
        for dtype in dict.fromkeys(r.dtype for r in run.results if r.suite == suite):
            for target in run.about["targets"]:
                counts = run.counts(suite=suite, dtype=dtype, target=target)
                counted = sum(counts.values()) - counts[EXCLUDED]
                passed = counts[PASS] + counts[XPASS]
                table.add_row(
                    suite,
                    dtype,
                    target.removesuffix("-on-tensors"),
                    *(str(counts[s]) for s in present),
                    f"{passed}/{counted} {share(counts):.1%}",
                )
    _console.print(table)
    bad = failed(run.results)
    for result in bad[:SHOWN]:
        color = "red" if result.status == FAIL else "yellow"
        why = f"{result.stage}: {result.reason}" if result.status == FAIL else f"expected to fail: {result.expected}"
        _line(f"[{color}]{result.status}[/] {escape(result.case)} on {result.target}")
        _line(f"    {escape(why)}")
        if result.mismatch:
            _line(f"    {escape(result.detail.splitlines()[0])}")
    if len(bad) > SHOWN:
        _console.print(f"and {len(bad) - SHOWN} more; the reports have them all")


def _show_comparison(found: Comparison) -> None:
    if not found:
        _console.print("nothing changed since the other report")
    for title, color, pairs in (("better", "green", found.better), ("worse", "red", found.worse)):
        for was, now in pairs:
            line = f"{now.case} on {now.target}"
            why = f"{now.stage}: {now.reason}" if title == "worse" else f"was {was.stage}: {was.reason}"
            _line(f"[{color}]{title}[/] {escape(line)} ({escape(why)})")
    for was, now in found.other:
        _console.print(
            f"other failure: {escape(now.case)} on {now.target} ({escape(now.reason)}, was {escape(was.reason)})"
        )
    for _, now, ratio in found.slower:
        _console.print(f"[yellow]slower[/] {escape(now.case)} on {now.target}: {ratio:.1f} times, relative to eager")
    if found.new or found.gone:
        _console.print(f"{len(found.new)} results are new, {len(found.gone)} are gone")


def _write(run: Run, comparison: Comparison | None, options: Options) -> None:
    """Write the reports that were asked for."""
    if options.html:
        from flambeau.testing.report.html import write_html

        write_html(run, options.html, comparison)
    if options.junit:
        from flambeau.testing.report.junit import write_junit

        write_junit(run, options.junit)
    if options.matrix:
        from flambeau.testing.report.matrix import write_matrix

        write_matrix(run, options.matrix)
    if options.json_file:
        run.save(options.json_file)


def _judged(run: Run, level: str | None, comparison: Comparison | None) -> bool:
    """Tell whether the exit status is 0: by the level if given, else by the XFAIL set; and no worse than before."""
    from flambeau.testing.report.levels import LEVELS, standings
    from flambeau.testing.xfail import failed

    good = not (comparison and comparison.worse)
    if level is None:
        return good and not failed(run.results)
    for standing in standings(run, LEVELS[level]):
        _line(f"[{'green' if standing.reached else 'red'}]{standing}[/]")
        good = good and standing.reached
    return good
