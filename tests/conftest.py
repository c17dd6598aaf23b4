"""Options of the test suite, and a cache of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-targets", action="store_true", help="run the lowering tests for every target, not a sample")
    parser.addoption("--full-models", action="store_true", help="run the model zoo at its published sizes too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full_models: the model zoo at its published sizes; runs with --full-models")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # The longest tests come first, so that at the end no worker waits for another.
    items.sort(key=lambda item: "/testing/" not in item.nodeid)
    if config.getoption("--full-models"):
        return
    large = [item for item in items if item.get_closest_marker("full_models")]
    if large:
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if item not in large]


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
