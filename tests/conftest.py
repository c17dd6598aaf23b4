"""Options of the test suite, its tiers, and a cache of its own.

`--unit` runs the tier without engines: all tests but those marked `engine`, and a sample of those marked `long`. A new
test is in it by itself; one that asks for IREE's compiler without the mark fails there, and says so.
"""

from __future__ import annotations

import gc
import os
import random
import re
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

_LONGEST = ("tests/testing/", "tests/lowering/linalg/", "tests/test_models.py", "tests/frontends/helion/")


# XLA simulates this many devices on the CPU, and reads so when JAX is first imported.
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-targets", action="store_true", help="run the lowering tests for every target, and those marked `wide`"
    )
    parser.addoption(
        "--full-models", action="store_true", help="run the model zoo on every target and at its published sizes too"
    )
    parser.addoption(
        "--unit", action="store_true", help="run the tests that need no engine, with a sample of long ones"
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker in (
        "full_models: the model zoo on every target and at its published sizes; runs with --full-models",
        "engine: compiles with IREE; does not run with --unit",
        "wide: one more combination of what others test, at some cost; runs with --all-targets",
        "long(sample=0): takes seconds; of its sets of parameters, so many run with --unit",
    ):
        config.addinivalue_line("markers", marker)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `-k S86` select the tests that prove row S86 of docs/checklist.md: those that name it in their docstring."""
    documented = (getattr(item, "obj", None), getattr(item, "module", None))
    text = " ".join(d.__doc__ for d in documented if d is not None and d.__doc__)
    item.extra_keyword_matches.update(re.findall(r"\bS\d+\b", text))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The longest files come first, so that at the end no worker waits for another.
    items.sort(key=lambda item: not item.nodeid.startswith(_LONGEST))
    wanted = {"full_models": "--full-models", "wide": "--all-targets"}
    unwanted = [mark for mark, option in wanted.items() if not config.getoption(option)]
    left_out = {item for item in items if any(map(item.get_closest_marker, unwanted))}
    if config.getoption("--unit"):
        left_out |= {item for item in items if item.get_closest_marker("engine")}
        left_out |= _beyond_sample([item for item in items if item not in left_out])
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Keep what was imported out of garbage collection: a million objects, half a second each time."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


def _beyond_sample(items: list[pytest.Item]) -> set[pytest.Item]:
    """Find the tests marked `long` that `--unit` leaves out: the same ones in each run, and on each worker."""
    found: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if marker := item.get_closest_marker("long"):
            found[item.nodeid.partition("[")[0], marker.kwargs.get("sample", 0)].append(item)
    by_hash = {key: sorted(group, key=lambda i: zlib.crc32(i.nodeid.encode())) for key, group in found.items()}
    return {item for (_, sample), group in by_hash.items() for item in group[sample:]}


_REFUSAL = """#!/bin/sh
echo "$PYTEST_CURRENT_TEST" >> "$(dirname "$0")/asked"
echo "there is no engine in this tier: mark the test with @pytest.mark.engine" >&2
exit 1
"""


@pytest.fixture(scope="session")
def _compiler_in_reach(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path | None]:
    """Put a program that refuses in the place of IREE's compiler, for child processes too; None without `--unit`.

    Whoever asks is noted in the file `asked` beside it.
    """
    if not request.config.getoption("--unit"):
        yield None
        return
    folder = tmp_path_factory.mktemp("no-engine")
    program = folder / "iree-compile"
    program.write_text(_REFUSAL)
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IREE_TOOL_PATH", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def _no_engine(_compiler_in_reach: Path | None) -> Iterator[None]:
    """Fail a test of the tier without engines that asked for one, even if it took the refusal for its result."""
    yield
    if _compiler_in_reach is not None and (asked := _compiler_in_reach / "asked").exists():
        tests = asked.read_text().strip()
        asked.unlink()
        pytest.fail(f"asked for IREE's compiler; it wants @pytest.mark.engine: {tests}")


_FLAGS = "--mlir-disable-threading"
"""IREE's compiler starts a thread for each core, and so do all workers of a run: they would be in each other's way."""
if "FLAMBEAU_TEST_CPU" in os.environ:
    _FLAGS += f" --iree-llvmcpu-target-cpu={os.environ['FLAMBEAU_TEST_CPU']}"


@pytest.fixture(scope="session", autouse=True)
def _fast_compiler() -> Iterator[None]:
    """IREE verifies its IR after each of its passes, a fifth of the time; here the results are compared instead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAMBEAU_IREE_FLAGS", f"--verify=false {_FLAGS}")
        yield


def _seed() -> None:
    """Start the generators of Python, NumPy and PyTorch anew; a test run is the same each time, in whatever order."""
    random.seed(0)
    numpy.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)


@pytest.fixture(scope="module", autouse=True)
def _same_numbers_in_each_run_of_a_file() -> None:
    """Seed before what the tests of a file share is made."""
    _seed()


@pytest.fixture(autouse=True)
def _same_numbers_in_each_run() -> None:
    """Seed before each test, so that random inputs meet a tolerance either always or never."""
    _seed()


@pytest.fixture
def _plain_kernels() -> Iterator[None]:
    """Let eager PyTorch compute without oneDNN: on CPUs with AMX it adds up in another order, on old ones it is wrong.

    Sums of products of bytes have 16 bits there, and overflow.
    """
    import torch

    with torch.backends.mkldnn.flags(enabled=False):
        yield


@pytest.fixture
def _verifying_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let IREE verify its IR, as it does for users: for tests of what it refuses, and of whole models."""
    monkeypatch.setenv("FLAMBEAU_IREE_FLAGS", _FLAGS)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set a cache of the tests' own, so that they neither find nor leave anything in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
