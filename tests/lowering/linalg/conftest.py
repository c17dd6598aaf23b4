"""Every lowering test runs for linalg, and for the other targets too: a sample of them by default."""

from __future__ import annotations

import zlib

import pytest
import support
from lowering.linalg.expected_failures import LINALG_ONLY, expected_failure

TARGETS = ("linalg-on-tensors", "stablehlo", "tosa")
ONE_OF = 10
"""Of the tests for other targets, one of so many runs without --all-targets, and none of those marked `long`."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of this folder as ones that need an engine: nearly all of them compare values."""
    item.add_marker("engine")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    name = metafunc.function.__name__
    # Properties are those of the loop nests' own algorithms.
    everywhere = name not in LINALG_ONLY and not metafunc.module.__name__.endswith("_properties")
    chosen = [t for t in TARGETS if t == TARGETS[0] or (everywhere and _is_chosen(metafunc, name, t))]
    metafunc.parametrize("target", chosen, indirect=True)


def _is_chosen(metafunc: pytest.Metafunc, name: str, target: str) -> bool:
    if metafunc.config.getoption("--all-targets"):
        return True
    if metafunc.definition.get_closest_marker("long"):
        return False
    return zlib.crc32(f"{target}:{name}".encode()) % ONE_OF == 0


@pytest.fixture(autouse=True)
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Set the target that `check` lowers to."""
    name: str = request.param
    reason = expected_failure(name, request.node.nodeid)
    if reason is not None:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    monkeypatch.setattr(support, "TARGET", name)
    return name
