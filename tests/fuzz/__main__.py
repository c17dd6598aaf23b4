"""Run many random programs: `make fuzz`, or `make fuzz ARGS="--programs 10000"`.

Each program comes from a number, its seed, so a failure is reproduced with `make fuzz ARGS="--seed 17"`. What is done
is written down: a run that was stopped goes on where it was, and what failed runs again; `--restart` begins anew.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fuzz import campaign
from fuzz.check import Outcome, Tally
from fuzz.seeds import GROUP, quiet, run_seed, shrunk
from fuzz.variables import Program
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.syntax import Syntax

FOLDER = Path(".fuzz")
SECONDS_ON_IREE = 600


class Record:
    """What is done, in a file with one line for each program."""

    def __init__(self, path: Path, restart: bool) -> None:
        self.path = path
        self.outcomes: dict[int, Outcome] = {}
        path.parent.mkdir(exist_ok=True)
        if restart:
            path.unlink(missing_ok=True)
        for line in path.read_text().splitlines() if path.exists() else ():
            entry = json.loads(line)
            seed = entry.pop("seed")
            self.outcomes[seed] = Outcome(**entry)

    def add(self, seed: int, outcome: Outcome) -> None:
        self.outcomes[seed] = outcome
        with self.path.open("a") as file:
            file.write(json.dumps({"seed": seed, **asdict(outcome)}) + "\n")


def work(todo: Sequence[int], jobs: int) -> Iterator[tuple[int, Outcome]]:
    """Run programs in several processes, in any order."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=quiet) as pool:
        waiting: dict[Future[Outcome], int] = {}
        for seed in todo:
            waiting[pool.submit(run_seed, seed)] = seed
            if len(waiting) >= 4 * jobs:
                yield from _finished(waiting)
        while waiting:
            yield from _finished(waiting)


def _finished(waiting: dict[Future[Outcome], int]) -> Iterator[tuple[int, Outcome]]:
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        yield waiting.pop(future), future.result()


def show(console: Console, seed: int, program: Program, outcome: Outcome) -> None:
    """Print a program with what is wrong, and keep it."""
    shapes = ", ".join(f"{tuple(s.shape)} {str(s.dtype).removeprefix('torch.')}" for s in program.arguments)
    console.rule(f"seed {seed}: {outcome.status} at {outcome.stage}" if outcome.stage else f"seed {seed}")
    console.print(Syntax(program.source, "python", background_color="default"))
    console.print(f"arguments: {shapes}", highlight=False, markup=False)
    if outcome.reason:
        console.print(outcome.reason, highlight=False, markup=False)
    if outcome.status == "failed":
        text = f'"""{outcome.stage}: {outcome.reason}\n\narguments: {shapes}\n"""\n\n{program.source}'
        (FOLDER / f"seed_{seed}.py").write_text(text.replace("\\", "\\\\"))


def report(console: Console, record: Record, seeds: Sequence[int]) -> int:
    """Show one small program for each kind of failure; gives the exit status."""
    outcomes = {s: record.outcomes[s] for s in seeds if s in record.outcomes}
    tally = Tally()
    kinds: dict[Any, list[int]] = {}
    for seed, outcome in outcomes.items():
        tally.add(outcome)
        if outcome.status == "failed":
            kinds.setdefault(outcome.kind, []).append(seed)
    for found in kinds.values():
        show(console, found[0], *shrunk(found[0]))
        console.print(f"{len(found)} such programs: seeds {', '.join(map(str, found[:12]))}")
    console.rule()
    shares = {
        "refused": "refused",
        "refused alone": "refused by a pass alone",
        "limited": "that a pass alone has too little to go by",
        "rejected": "that PyTorch does not accept",
    }
    console.print(
        f"{len(outcomes)} programs: {tally.counts['same']} the same at every stage, {tally.counts['failed']} failed, "
        + ", ".join(f"{tally.share(status):.1%} {text}" for status, text in shares.items())
    )
    return 1 if kinds else 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make fuzz", description="Random programs against every pass.")
    parser.add_argument("--programs", type=int, default=2000, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="run this one only, and show it")
    parser.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 8))
    parser.add_argument("--restart", action="store_true", help="forget what is done")
    options = parser.parse_args(arguments)
    console = Console(soft_wrap=True)
    quiet()
    record = Record(FOLDER / "done.jsonl", options.restart and options.seed is None)
    if options.seed is not None:
        program, outcome = shrunk(options.seed)
        show(console, options.seed, program, outcome)
        return int(outcome.status == "failed")
    seeds = range(options.start, options.start + options.programs)
    todo = [s for s in seeds if s not in record.outcomes or record.outcomes[s].status == "failed"]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[failed]} failed"), console=console) as progress:
        task = progress.add_task("programs", total=len(seeds), completed=len(seeds) - len(todo), failed=0)
        failed = 0
        for seed, outcome in work(todo, options.jobs):
            record.add(seed, outcome)
            failed += outcome.status == "failed"
            progress.update(task, advance=1, failed=failed)
        on_iree = campaign.Record(FOLDER / "iree.jsonl", options.restart)
        groups = range(options.start // GROUP, (options.start + options.programs) // GROUP)
        left = [g for g in groups if g not in on_iree.outcomes or on_iree.outcomes[g].status in campaign.BAD]
        task = progress.add_task("on IREE", total=len(groups), completed=len(groups) - len(left), failed=0)
        failed = 0
        # In processes of its own: IREE may take one with it.
        for group, outcome in campaign.work("fuzz.seeds:run_batch", left, 1, SECONDS_ON_IREE, 1):
            on_iree.add([(group, outcome)])
            failed += outcome.status in campaign.BAD
            progress.update(task, advance=1, failed=failed)
    wrong = {g: o for g in groups if (o := on_iree.outcomes[g]).status in campaign.BAD}
    for group, outcome in wrong.items():
        console.print(f"group {group}, {outcome.stage}: {outcome.reason}", markup=False, highlight=False)
    shares_on_iree = Counter(on_iree.outcomes[g].status for g in groups)
    console.print("on IREE: " + ", ".join(f"{n} groups {s}" for s, n in shares_on_iree.items()))
    return report(console, record, seeds) or int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
