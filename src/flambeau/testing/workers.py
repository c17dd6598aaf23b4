"""Worker processes. A case that crashes, hangs or eats the memory ends its worker, not the run."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from flambeau.python_files import import_plugin
from flambeau.testing.memory import resident
from flambeau.testing.results import BEFORE_US, EXCLUDED, FAIL, Result

PRELOAD = ("flambeau.testing.batch", "torch.testing._internal.common_methods_invocations")
"""What a worker is forked with, where the system can fork."""


SHARE = 8
"""A case that is compiled with others may add this part of the time that one may take."""

STILLBORN = 3
"""How many workers may die before their first case until it is clear that all will."""


class WorkerError(RuntimeError):
    """Workers cannot do their work at all."""


@dataclass(frozen=True)
class Limits:
    """When a worker is given up."""

    seconds: float = 120.0
    """Without a sign of life."""
    memory: int = 8 << 30
    batch: int = 24
    """How many cases share a module at most."""


@dataclass(frozen=True)
class Job:
    """Cases to run together."""

    cases: tuple[str, ...]
    targets: tuple[str, ...]


@dataclass(frozen=True)
class Setup:
    """What a worker needs to know to find cases and to run them."""

    backend: str
    suites: tuple[str, ...]
    dtypes: tuple[str, ...]
    files: tuple[str, ...] = ()
    """Python files with cases of the user's own."""
    log: str | None = None
    """Where what a worker prints goes."""
    plugins: tuple[str, ...] = ()
    """Python files with rules for custom ops."""


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    job: Job | None = None
    left: set[tuple[str, str]] = field(default_factory=set)
    """Results that the job still owes."""
    at: tuple[tuple[str, ...], str, str] = ((), "", "")
    """What it said it is doing: cases, target, stage."""
    heard: float = 0.0


class Pool:
    """Runs jobs in worker processes and gives their results as they come."""

    def __init__(self, setup: Setup, jobs: int = 2, limits: Limits | None = None) -> None:
        self.setup = setup
        self.jobs = max(1, jobs)
        self.limits = limits or Limits()
        methods = multiprocessing.get_all_start_methods()
        self._context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if "forkserver" in methods:
            self._context.set_forkserver_preload(list(PRELOAD))
        self._workers: list[_Worker] = []
        self.restarts = 0
        self._stillborn = 0

    def run(self, queue: Sequence[Job], describe: Callable[[str], dict[str, Any]]) -> Iterator[Result]:
        """Run jobs; `describe` gives what a report says about a case that could not speak for itself."""
        waiting = deque(queue)
        try:
            while waiting or any(w.job for w in self._workers):
                self._feed(waiting)
                for worker in self._ready():
                    yield from self._listen(worker, waiting, describe)
                for worker in list(self._workers):
                    if worker.job is not None and (kind := self._trouble(worker)):
                        yield from self._give_up(worker, kind, waiting, describe)
        finally:
            self.close()

    def close(self) -> None:
        """End all workers now."""
        for worker in self._workers:
            _kill(worker.process)
            worker.pipe.close()
        self._workers.clear()

    def _feed(self, waiting: deque[Job]) -> None:
        for worker in self._workers:
            if worker.job is None and waiting:
                self._send(worker, waiting.popleft())
        while waiting and len(self._workers) < self.jobs:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_work, args=(theirs, self.setup), daemon=True)
            process.start()
            theirs.close()
            worker = _Worker(process, ours)
            self._workers.append(worker)
            self._send(worker, waiting.popleft())

    def _send(self, worker: _Worker, job: Job) -> None:
        worker.job = job
        worker.left = {(c, t) for c in job.cases for t in job.targets}
        worker.at = ((), "", "start")
        worker.heard = time.monotonic()
        with suppress(OSError):  # a worker that is dead is found out below
            worker.pipe.send(job)

    def _ready(self) -> list[_Worker]:
        by_pipe = {id(w.pipe): w for w in self._workers}
        ready = wait([w.pipe for w in self._workers], timeout=0.25)
        return [by_pipe[id(pipe)] for pipe in ready]

    def _listen(
        self, worker: _Worker, waiting: deque[Job], describe: Callable[[str], dict[str, Any]]
    ) -> Iterator[Result]:
        try:
            message = worker.pipe.recv()
        except (EOFError, OSError):
            yield from self._give_up(worker, "crash", waiting, describe)
            return
        worker.heard = time.monotonic()
        self._stillborn = 0
        if isinstance(message, Result):
            worker.left.discard(message.key)
            yield message
        elif message == "done":
            worker.job = None
        else:
            worker.at = message

    def _trouble(self, worker: _Worker) -> str:
        if not worker.process.is_alive() and not worker.pipe.poll():
            return "crash"
        # Cases that are compiled together take longer, each by a part of what one may take.
        together = max(len(worker.at[0]), 1)
        if time.monotonic() - worker.heard > self.limits.seconds * (1 + (together - 1) / SHARE):
            return "timeout"
        held = resident(worker.process.pid)
        return "memory" if held is not None and held > self.limits.memory else ""

    def _give_up(
        self, worker: _Worker, kind: str, waiting: deque[Job], describe: Callable[[str], dict[str, Any]]
    ) -> Iterator[Result]:
        """End a worker, find out whose fault it was, and put the rest of its job back into the queue."""
        _kill(worker.process)
        worker.pipe.close()
        self._workers.remove(worker)
        self.restarts += 1
        if worker.job is None:
            return
        cases, target, stage = worker.at
        if stage == "start" and kind == "crash":
            self._stillborn += 1
            if self._stillborn == STILLBORN:
                raise WorkerError(f"workers die before they begin{self._last_words()}")
        stage = stage if stage != "start" else "make"
        guilty = cases if len(cases) == 1 else worker.job.cases if len(worker.job.cases) == 1 else ()
        targets = [target] if target else sorted({t for _, t in worker.left})
        blamed = {(c, t) for c in guilty for t in targets} & worker.left
        for case, blamed_target in sorted(blamed):
            yield Result(
                case,
                blamed_target,
                EXCLUDED if stage in BEFORE_US else FAIL,
                **describe(case),
                stage=stage,
                kind=kind,
                reason=self._reason(kind, stage, worker.process.exitcode),
            )
        self._put_back(worker.left - blamed, suspects=set(cases) if not guilty else set(), waiting=waiting)

    def _last_words(self) -> str:
        """Return the last line that a worker printed."""
        try:
            lines = Path(self.setup.log).read_text(errors="replace").splitlines() if self.setup.log else []
        except OSError:
            lines = []
        return f": {lines[-1].strip()} (more in {self.setup.log})" if lines else ""

    def _reason(self, kind: str, stage: str, exitcode: int | None) -> str:
        if kind == "timeout":
            return f"no end after {self.limits.seconds:.0f} s of {stage}"
        if kind == "memory":
            return f"more than {self.limits.memory >> 20} MiB of memory in {stage}"
        name = signal.Signals(-exitcode).name if exitcode is not None and exitcode < 0 else f"exit status {exitcode}"
        return f"the process died of {name} in {stage}"

    def _put_back(self, left: set[tuple[str, str]], suspects: set[str], waiting: deque[Job]) -> None:
        """Queue unfinished cases again: the suspects in halves, since one of them is guilty, the others together."""
        groups: dict[tuple[str, ...], list[str]] = {}
        for case in sorted({c for c, _ in left}):
            groups.setdefault(tuple(sorted(t for c, t in left if c == case)), []).append(case)
        for targets, cases in groups.items():
            halves = [[c for c in cases if c not in suspects]]
            mixed = [c for c in cases if c in suspects]
            halves += [mixed[: len(mixed) // 2], mixed[len(mixed) // 2 :]]
            waiting.extendleft(Job(tuple(half), targets) for half in halves if half)


def _kill(process: Any) -> None:
    """End a worker, and the compilers that it has started."""
    if process.is_alive():
        with suppress(OSError, AttributeError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.join(5)


def _die_with_parent() -> None:
    """End this process when the run is gone, though a program hangs in it, and with it what it has started."""
    parent = os.getppid()
    grouped = hasattr(os, "setpgid")
    if grouped:
        os.setpgid(0, 0)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        if grouped:
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _work(pipe: Connection, setup: Setup) -> None:
    """Serve jobs from the pipe until it ends: the main loop of a worker."""
    _die_with_parent()
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    if setup.log is not None:
        # Compilers print from C++: what must be redirected is the file descriptor.
        sys.stdout.flush()
        sys.stderr.flush()
        log = os.open(setup.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
    import torch

    from flambeau.testing.backends import load_backend
    from flambeau.testing.batch import Batch
    from flambeau.testing.selection import find_cases

    torch.set_num_threads(1)
    for path in setup.plugins:
        import_plugin(Path(path))
    cases = find_cases(setup.suites, setup.dtypes, [Path(f) for f in setup.files])
    batch = Batch(load_backend(setup.backend), lambda ids, target, stage: pipe.send((tuple(ids), target, stage)))
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        for result in batch.run([cases[c] for c in job.cases], job.targets):
            pipe.send(result)
        pipe.send("done")
