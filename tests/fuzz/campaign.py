"""Run a check for many seeds, in processes that may die, and go on later where it was stopped.

A check is a function that takes a seed and says what became of the case that the seed stands for. It is given by name,
`"fuzz.fx.check:check_seed"`, because the processes import it themselves.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

FOLDER = Path(".fuzz")

BAD = ("failed", "crashed", "hung")
"""What a case must not be: wrong, the end of its process, or without an end."""
STATUSES = (*BAD, "rejected", "refused", "same")
"""`rejected`: PyTorch does not take the case, and neither do we. `refused`: we do not take it, and say so."""


@dataclass
class Outcome:
    """What became of a case."""

    status: str
    """One of `STATUSES`, or a word of the campaign's own for something that is no defect."""
    stage: str = ""
    reason: str = ""

    @property
    def kind(self) -> tuple[str, str, str]:
        """What failures have in common that are likely to be one defect."""
        first = self.reason.strip().split("\n", 1)[0]
        return self.status, self.stage, re.sub(r"%?-?\d+(\.\d+)?(e[-+]?\d+)?|'\w+'|<[^>]*>", "_", first)


class Record:
    """What is done, in a file with a line for each seed."""

    def __init__(self, path: Path, restart: bool = False) -> None:
        self.path = path
        self.outcomes: dict[int, Outcome] = {}
        path.parent.mkdir(exist_ok=True)
        if restart:
            path.unlink(missing_ok=True)
        text = path.read_text() if path.exists() else ""
        for line in text.splitlines():
            with suppress(json.JSONDecodeError):  # a run that was killed leaves half a line
                entry = json.loads(line)
                seed = entry.pop("seed")
                self.outcomes[seed] = Outcome(**entry)
        if text and not text.endswith("\n"):
            path.write_text(text + "\n")

    def add(self, outcomes: Iterable[tuple[int, Outcome]]) -> None:
        """Remember outcomes and write them down."""
        with self.path.open("a") as file:
            for seed, outcome in outcomes:
                self.outcomes[seed] = outcome
                file.write(json.dumps({"seed": seed, **asdict(outcome)}) + "\n")


def resolve(check: str) -> Callable[[int], Outcome]:
    """Import the check of that name."""
    module, _, name = check.partition(":")
    found: Callable[[int], Outcome] = getattr(importlib.import_module(module), name)
    return found


def run_one(check: Callable[[int], Outcome], seed: int) -> Outcome:
    """Run a check here and now; an exception that it lets through is a failure of its own."""
    try:
        return check(seed)
    except Exception as error:
        frames = "".join(traceback.format_tb(error.__traceback__)[-4:])
        return Outcome("failed", "exception", f"{type(error).__name__}: {error}\n{frames}")


def _serve(check: str, connection: Connection, stderr: int) -> None:
    """Answer seeds with outcomes until the parent hangs up."""
    os.dup2(stderr, 2)
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    function = resolve(check)
    connection.send(None)
    with suppress(EOFError, BrokenPipeError):
        while True:
            for seed in connection.recv():
                connection.send((seed, None))
                connection.send((seed, run_one(function, seed)))


@dataclass
class Worker:
    """A process with the seeds that it has yet to answer."""

    check: str
    todo: list[int] = field(default_factory=list)
    current: int | None = None
    since: float = 0.0
    is_ready: bool = False

    def __post_init__(self) -> None:
        context = get_context("spawn")
        self.stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by end)
        self.connection, other = context.Pipe()
        # Spawned processes inherit no descriptors, but can be given them by name.
        path = f"/proc/{os.getpid()}/fd/{self.stderr.fileno()}"
        self.process = context.Process(target=_start, args=(self.check, other, path), daemon=True)
        self.process.start()
        other.close()
        self.since = time.monotonic()

    def give(self, seeds: list[int]) -> None:
        self.todo = seeds
        self.connection.send(seeds)
        self.since = time.monotonic()

    def end(self) -> None:
        self.connection.close()
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)  # with the compilers that it has started
        self.process.kill()
        self.process.join()
        self.stderr.close()

    def last_words(self) -> str:
        """Return what the process wrote to its standard error before it ended."""
        self.process.join(5)
        code = self.process.exitcode
        name = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
        self.stderr.seek(0)
        lines = self.stderr.read().decode(errors="replace").strip().splitlines()
        return f"{name}: {lines[-1] if lines else 'nothing on stderr'}"


def _start(check: str, connection: Connection, path: str) -> None:
    try:
        stderr = os.open(path, os.O_RDWR | os.O_APPEND)
    except OSError:
        stderr = os.dup(2)
    _serve(check, connection, stderr)


def work(check: str, seeds: Sequence[int], jobs: int, seconds: float, chunk: int) -> Iterator[tuple[int, Outcome]]:
    """Run a check for seeds in several processes, in any order. A process that dies or hangs is replaced."""
    queue = [list(seeds[at : at + chunk]) for at in range(0, len(seeds), chunk)][::-1]
    workers = [Worker(check) for _ in range(min(jobs, len(queue)))]
    try:
        while workers:
            ready = wait([w.connection for w in workers], timeout=0.5)
            for worker in list(workers):
                lost: Outcome | None = None
                if worker.connection in ready:
                    try:
                        yield from _receive(worker)
                    except (EOFError, ConnectionResetError):
                        if not worker.is_ready:
                            raise RuntimeError(f"cannot import {check}: {worker.last_words()}") from None
                        lost = Outcome("crashed", "process", worker.last_words())
                elif worker.current is not None and time.monotonic() - worker.since > seconds:
                    lost = Outcome("hung", "process", f"no answer after {seconds:g} s")
                if lost is not None:
                    left = [s for s in worker.todo if s != worker.current]
                    if worker.current is not None:
                        yield worker.current, lost
                    worker.end()
                    workers.remove(worker)
                    worker = Worker(check)
                    workers.append(worker)
                    if left:
                        queue.append(left)
                if worker.is_ready and not worker.todo:
                    if queue:
                        worker.give(queue.pop())
                    else:
                        worker.end()
                        workers.remove(worker)
    finally:
        for worker in workers:
            worker.end()


def _receive(worker: Worker) -> Iterator[tuple[int, Outcome]]:
    while worker.connection.poll():
        message = worker.connection.recv()
        if message is None:
            worker.is_ready = True
            continue
        seed, outcome = message
        if outcome is None:
            worker.current, worker.since = seed, time.monotonic()
        else:
            worker.current = None
            worker.todo.remove(seed)
            yield seed, outcome


def report(console: Console, record: Record, seeds: Iterable[int], describe: Callable[[int], str] | None) -> int:
    """Show one case for each kind of failure and a line of counts; gives the exit status."""
    outcomes = {s: record.outcomes[s] for s in seeds if s in record.outcomes}
    kinds: dict[Any, list[int]] = {}
    for seed, outcome in outcomes.items():
        if outcome.status in BAD:
            kinds.setdefault(outcome.kind, []).append(seed)
    for found in sorted(kinds.values(), key=len, reverse=True):
        outcome = outcomes[found[0]]
        console.rule(f"seed {found[0]}: {outcome.status} at {outcome.stage}")
        if describe is not None:
            console.print(describe(found[0]), highlight=False, markup=False)
        console.print(outcome.reason, highlight=False, markup=False)
        console.print(f"{len(found)} such cases: seeds {', '.join(map(str, found[:12]))}")
    counts = Counter(o.status for o in outcomes.values())
    console.rule()
    console.print(f"{len(outcomes)} cases: " + ", ".join(f"{n} {status}" for status, n in sorted(counts.items())))
    return 1 if kinds else 0


def main(
    name: str,
    check: str,
    arguments: Sequence[str],
    *,
    seconds: float = 60,
    chunk: int = 20,
    count: int = 2000,
    describe: Callable[[int], str] | None = None,
) -> int:
    """Run a campaign from the command line; gives the exit status.

    A case that takes longer than `seconds` hangs. Workers are given `chunk` seeds at a time. `describe` gives the text
    of a case, for reports.
    """
    parser = argparse.ArgumentParser(prog=f"python -m fuzz.{name}", description=f"Random cases: {name}.")
    parser.add_argument("--count", type=int, default=count, help="how many cases")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one only, here, and show it")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--restart", action="store_true", help="forget what is done")
    options = parser.parse_args(arguments)
    console = Console(soft_wrap=True)
    if options.seed is not None:
        outcome = run_one(resolve(check), options.seed)
        if describe is not None:
            console.print(describe(options.seed), highlight=False, markup=False)
        console.print(f"{outcome.status} {outcome.stage}\n{outcome.reason}", highlight=False, markup=False)
        return int(outcome.status in BAD)
    record = Record(FOLDER / f"{name}.jsonl", options.restart)
    seeds = range(options.start, options.start + options.count)
    todo = [s for s in seeds if s not in record.outcomes or record.outcomes[s].status in BAD]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[bad]} bad"), console=console) as progress:
        task = progress.add_task(name, total=len(seeds), completed=len(seeds) - len(todo), bad=0)
        bad = 0
        for seed, outcome in work(check, todo, options.jobs, seconds, chunk):
            record.add([(seed, outcome)])
            bad += outcome.status in BAD
            progress.update(task, advance=1, bad=bad)
    return report(console, record, seeds, describe)


if __name__ == "__main__":
    sys.exit("run a campaign: python -m fuzz.schemas, fuzz.fx, fuzz.script, fuzz.text")
