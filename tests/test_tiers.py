"""The tier without engines: who is in it, and that no engine can be reached from it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("iree.compiler", reason="there is no engine to be kept out of reach")

TESTS = """
import subprocess

import pytest
from iree.compiler.tools import binaries


def test_plain(): pass


@pytest.mark.engine
def test_marked(): pass


@pytest.mark.long
def test_long(): pass


@pytest.mark.long(sample=2)
@pytest.mark.parametrize("i", range(9))
def test_sampled(i): pass


@pytest.mark.parametrize("i", [0, pytest.param(1, marks=pytest.mark.engine)])
def test_some_parameters(i): pass


def test_that_asks_unmarked():
    assert subprocess.run([binaries.find_tool("iree-compile"), "--version"]).returncode != 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiers")
    shutil.copy(Path(__file__).parent / "conftest.py", folder)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -p no:cacheprovider\n")
    return folder


def outcomes(folder: Path, *options: str) -> dict[str, list[str]]:
    """Run pytest; list the tests that passed, failed, or failed when they were torn down."""
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--no-header", "--tb=no", *options]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    lines = [line.split(" - ")[0].split("::") for line in told.splitlines() if "::test_" in line]
    kinds = ("PASSED", "FAILED", "ERROR")
    return {kind: sorted(name for head, name in lines if head.startswith(kind)) for kind in kinds}


@pytest.fixture(scope="module")
def unit(folder: Path) -> dict[str, list[str]]:
    return outcomes(folder, "--unit")


def test_the_tier_has_what_is_not_marked_and_a_sample_of_what_is_long(unit: dict[str, list[str]]) -> None:
    sampled = [name for name in unit["PASSED"] if name.startswith("test_sampled")]
    assert len(sampled) == 2
    assert set(unit["PASSED"]) == {"test_plain", "test_some_parameters[0]", "test_that_asks_unmarked", *sampled}


def test_who_asks_for_the_compiler_fails_even_if_it_takes_the_refusal(unit: dict[str, list[str]]) -> None:
    assert unit["ERROR"] == ["test_that_asks_unmarked"]


@pytest.mark.engine
def test_without_the_option_all_tests_run_and_the_compiler_is_there(folder: Path) -> None:
    found = outcomes(folder)
    assert len(found["PASSED"]) == 15
    assert not found["FAILED"] + found["ERROR"]
