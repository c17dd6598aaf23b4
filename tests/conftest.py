"""Options of the test suite, its tiers, and a cache of its own.

`--unit` runs the tier without engines: all tests but those marked `engine`, and a sample of those marked `long`. A new
test is in it by itself; one that asks for IREE's compiler without the mark fails there, and says so.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-targets", action="store_true", help="run the lowering tests for every target, not a sample")
    parser.addoption("--full-models", action="store_true", help="run the model zoo at its published sizes too")
    parser.addoption(
        "--unit", action="store_true", help="run the tests that need no engine, with a sample of long ones"
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker in (
        "full_models: the model zoo at its published sizes; runs with --full-models",
        "engine: compiles with IREE; does not run with --unit",
        "long(sample=0): takes seconds; of its sets of parameters, so many run with --unit",
    ):
        config.addinivalue_line("markers", marker)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The longest tests come first, so that at the end no worker waits for another.
    items.sort(key=lambda item: "/testing/" not in item.nodeid)
    left_out = set() if config.getoption("--full-models") else {i for i in items if i.get_closest_marker("full_models")}
    if config.getoption("--unit"):
        left_out |= {item for item in items if item.get_closest_marker("engine")}
        left_out |= _beyond_sample([item for item in items if item not in left_out])
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def _beyond_sample(items: list[pytest.Item]) -> set[pytest.Item]:
    """The tests marked `long` that `--unit` leaves out: the same ones in each run, and on each worker."""
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


@pytest.fixture
def _fast_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """IREE verifies its IR after each of its passes, a quarter of the time; here the results are compared instead."""
    monkeypatch.setenv("FLAMBEAU_IREE_FLAGS", "--verify=false")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither find nor leave anything in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield
