"""The runner of fuzzing campaigns: what happens to the processes under it."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from fuzz import campaign
from fuzz.campaign import Outcome, Record, work


def lives(seed: int) -> Outcome:
    """Die, hang or raise at some seeds."""
    if seed == 3:
        sys.stderr.write("something is broken\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGFPE)
    if seed == 5:
        time.sleep(60)
    if seed == 7:
        raise KeyError("x")
    return Outcome("same")


def test_a_process_that_dies_or_hangs_costs_one_case():
    outcomes = dict(work("fuzz.test_campaign:lives", range(12), jobs=2, seconds=2, chunk=4))
    assert sorted(outcomes) == list(range(12))
    assert {s: o.status for s, o in outcomes.items() if o.status != "same"} == {3: "crashed", 5: "hung", 7: "failed"}
    assert outcomes[3].reason == "SIGFPE: something is broken"
    assert outcomes[7].reason.startswith("KeyError: 'x'")


def test_a_campaign_goes_on_and_repeats_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(campaign, "FOLDER", tmp_path)
    record = Record(tmp_path / "lives.jsonl")
    record.add([(0, Outcome("refused", "infer", "kept from before")), (1, Outcome("failed", "x", "was mended"))])
    with record.path.open("a") as file:
        file.write('{"seed": 2, "sta')  # a run that was killed in the middle of a line
    assert campaign.main("lives", "fuzz.test_campaign:lives", ["--count", "3", "--jobs", "1"]) == 0
    again = Record(record.path)
    assert {s: o.status for s, o in again.outcomes.items()} == {0: "refused", 1: "same", 2: "same"}


def test_failures_of_one_kind_are_told_once():
    one, other = (
        Outcome("failed", "iree", "3 of 17 elements differ"),
        Outcome("failed", "iree", "1 of 2 elements differ"),
    )
    assert one.kind == other.kind
