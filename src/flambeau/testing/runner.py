"""A run: cases handed to workers, results to disk at once, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import flambeau
from flambeau.testing.backends import load_backend, name_of, targets_of
from flambeau.testing.cases import Case, Sample
from flambeau.testing.results import Result, ResultFile, Run
from flambeau.testing.selection import find_cases, select
from flambeau.testing.workers import Job, Limits, Pool, Setup
from flambeau.testing.xfail import XfailSet, xfail_path

FOLDER = Path(".cts")
"""Where results are kept if nobody says otherwise."""


@dataclass
class Plan:
    """What to run."""

    backend: str = "iree"
    suites: tuple[str, ...] = ("ops",)
    dtypes: tuple[str, ...] = ("float32",)
    targets: tuple[str, ...] = ()
    """All of the backend's if empty."""
    patterns: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    every: int = 1
    """Every n-th case only: a sample of the suite that is always the same."""
    jobs: int = 2
    limits: Limits = field(default_factory=Limits)
    folder: Path = FOLDER
    restart: bool = False
    plugins: tuple[Path, ...] = ()
    """Python files with rules for custom ops."""

    def about(self, backend: str, targets: Sequence[str]) -> dict[str, Any]:
        """Describe the run by what makes two runs the same."""
        return {
            "backend": backend,
            "backend_spec": self.backend,
            "suites": list(self.suites),
            "dtypes": list(self.dtypes),
            "targets": list(targets),
            "patterns": list(self.patterns),
            "ids": list(self.ids),
            "tags": list(self.tags),
            "files": [str(f) for f in self.files],
            **({"plugins": [str(f) for f in self.plugins]} if self.plugins else {}),
            "every": self.every,
            "flambeau": flambeau.__version__,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "torch": _torch_version(),
        }


def _torch_version() -> str:
    from importlib.metadata import version

    return version("torch")


Progress = Callable[[int, int, Result | None], None]
"""Told how many of how many results there are, and the newest."""


def execute(plan: Plan, progress: Progress = lambda done, total, result: None) -> Run:
    """Carry out a plan. A plan that was stopped goes on; one that was finished begins anew."""
    backend = load_backend(plan.backend)
    name = name_of(backend)
    offered = targets_of(backend)
    targets = tuple(plan.targets or offered)
    if unknown := [t for t in targets if t not in offered]:
        raise ValueError(f"the backend {name!r} does not compile {unknown[0]}; it compiles {', '.join(offered)}")
    cases = select(find_cases(plan.suites, plan.dtypes, plan.files), plan.patterns, plan.ids, plan.tags)[:: plan.every]
    if not cases:
        raise ValueError("no case is selected")
    xfail = XfailSet(xfail_path(name, plan.backend))
    about = plan.about(name, targets)
    file, done = _resume(plan, about, {(c.id, t) for c in cases for t in targets})
    total = len(cases) * len(targets)
    progress(len(done), total, None)
    setup = Setup(
        plan.backend,
        plan.suites,
        plan.dtypes,
        tuple(map(str, plan.files)),
        str(file.path.with_suffix(".log")),
        tuple(map(str, plan.plugins)),
    )
    known = {c.id: c for c in cases}
    pool = Pool(setup, plan.jobs, plan.limits)
    start = time.monotonic()
    for result in pool.run(_jobs(cases, targets, done, plan.limits.batch), lambda c: known[c].described()):
        file.append([result])
        done[result.key] = result
        progress(len(done), total, xfail.apply(result))
    order = {c.id: i for i, c in enumerate(cases)}
    results = sorted((xfail.apply(r) for r in done.values()), key=lambda r: (order[r.case], targets.index(r.target)))
    about["seconds"] = round(time.monotonic() - start, 1)
    about["restarts"] = pool.restarts
    about["date"] = time.strftime("%Y-%m-%d %H:%M")
    run = Run(about, results)
    run.save(file.path.with_suffix(".json"))
    file.path.unlink()
    return run


def _resume(
    plan: Plan, about: dict[str, Any], wanted: set[tuple[str, str]]
) -> tuple[ResultFile, dict[tuple[str, str], Result]]:
    """Open the file of this run with the results in it; ValueError if it holds another run that is not over."""
    file = ResultFile(plan.folder / f"{about['backend']}.jsonl")
    if not plan.restart and file.about() == about:
        return file, {r.key: r for r in file if r.key in wanted}
    if not plan.restart and file.about() is not None:
        raise ValueError(
            f"{file.path} has a run that was stopped and is not this one; finish it, give another --out, or --restart"
        )
    file.begin(about)
    return file, {}


def _jobs(cases: Sequence[Case], targets: tuple[str, ...], done: dict[tuple[str, str], Result], size: int) -> list[Job]:
    """Group cases into batches, heavy ones alone and first, so that the end of a run is not one worker with a giant."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        missing = tuple(t for t in targets if (case.id, t) not in done)
        if missing:
            groups.setdefault(missing, []).append(case)
    heavy, light = [], []
    for missing, members in groups.items():
        heavy += [Job((c.id,), missing) for c in members if c.heavy]
        rest = [c.id for c in members if not c.heavy]
        light += [Job(tuple(rest[i : i + size]), missing) for i in range(0, len(rest), size)]
    return heavy + light


def _only(make: Callable[[], Iterable[Sample]], index: int) -> list[Sample]:
    return list(make())[index : index + 1]


def reproduce(
    id_: str,
    target: str = "linalg-on-tensors",
    sample: int | None = None,
    backend: str = "iree",
    files: Sequence[Path] = (),
) -> Result:
    """Run one case here, in this process, and say what comes of it: for a debugger, or a bug report."""
    from flambeau.testing.batch import Batch
    from flambeau.testing.selection import suite_and_dtype

    suite, dtype = suite_and_dtype(id_)
    cases = find_cases([suite] if suite != "user" else [], [dtype], files)
    (case,) = select(cases, ids=[id_])
    if sample is not None:
        case = replace(case, samples=partial(_only, case.samples, sample))
    (result,) = Batch(load_backend(backend)).run([case], [target])
    print(f"{result.case} on {result.target}: {result.status}")
    for text in (result.reason and f"{result.stage}: {result.reason}", result.detail, result.inputs, result.python):
        if text:
            print(text)
    for stage, text in result.ir.items():
        print(f"\n// {stage}\n{text}")
    return result
