"""Work in processes of their own that can end: a line of JSON for each item, and where one ended, the next goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def known_records(results: Path) -> dict[str, dict[str, Any]]:
    """Read what has been measured before, by item."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {record["item"]: record for record in map(json.loads, lines)}


def work(items: Sequence[str], measured: Callable[[str], dict[str, Any]]) -> None:
    """Measure items in this process; prints a line for each that begins, and its record when it is done."""
    for item in items:
        print(json.dumps({"item": item, "begins": True}), flush=True)
        try:
            record = measured(item)
        except Exception as error:
            record = {"error": f"{type(error).__name__}: {str(error).strip()[:2000]}"}
        print(json.dumps({"item": item, **record}), flush=True)


def records(items: Sequence[str], command: Sequence[str], variables: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Let processes measure items one after another: `command`, with the items behind it, is a script and arguments."""
    left = list(items)
    while left:
        begun = None
        line_of = [sys.executable, *command, *left]
        environment = {**os.environ, **variables}
        with subprocess.Popen(line_of, env=environment, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.startswith('{"item"'):
                    continue
                record = json.loads(line)
                begun = record["item"] if record.pop("begins", False) else None
                if begun is None:
                    left.remove(record["item"])
                    yield record
        if left and begun is None:
            raise SystemExit(f"the process ended with {process.returncode} before an item")
        if begun is not None:
            left.remove(begun)
            yield {"item": begun, "error": f"the process ended with {process.returncode}"}


def measure(items: Sequence[str], results: Path, command: Sequence[str], **variables: str) -> Iterator[dict[str, Any]]:
    """Measure the items that are not in a file of results yet, and add them to it."""
    done = known_records(results)
    with results.open("a") as file:
        for record in records([item for item in items if item not in done], command, variables):
            file.write(json.dumps(record) + "\n")
            file.flush()
            yield record
