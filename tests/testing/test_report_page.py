"""The report page in a real browser: read, sorted, filtered, a failure opened, nothing fetched, no error."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flambeau.testing.report.comparison import compare_runs
from flambeau.testing.report.html import write_html
from flambeau.testing.results import Result, Run

ABOUT = {
    "backend": "mine",
    "targets": ["linalg-on-tensors", "tosa"],
    "date": "2026-01-01 12:00",
    "flambeau": "0.1.0",
    "torch": "2.13.0",
    "python": "3.11.7",
    "machine": "x86_64",
}


def results() -> list[Result]:
    found = []
    for target in ABOUT["targets"]:
        for i, name in enumerate(("add", "mul", "sub", "exp")):
            found.append(
                Result(
                    f"ops/{name}/float32",
                    target,
                    "pass",
                    name,
                    "ops",
                    "float32",
                    "binary" if i < 3 else "unary",
                    ["core"],
                )
            )
    found.append(
        Result(
            "ops/div/float32", "tosa", "fail", "div", "ops", "float32", "binary", ["core"], "compare", "mismatch",
            "wrong values", "result 0[1]: 0.5, expected 0.25", 0, 1, 0,
            {"output": 0, "what": "value", "expected": "0.25", "got": "0.5", "index": [1], "ulps": 8388608,
             "differing": 1, "elements": 4, "worst": float("inf")},
            "float32[4]", {"torch": "torch.aten.div </script><b>", "tosa": "tosa.reciprocal"}, "at model.py:3",
        )
    )  # fmt: skip
    found.append(
        Result("ops/fft/float32", "tosa", "xfail", "fft", "ops", "float32", "fft", [], "lower", "error", "no complex")
    )
    found.append(
        Result("ops/eq/float32", "tosa", "excluded", "eq", "ops", "float32", "binary", [], "export", "error", "x")
    )
    found.append(
        Result(
            "models/lenet/float32", "tosa", "pass", "lenet", "models", "float32", "vision",
            timings={"lower": 0.5, "compile": 1.25, "run again": 0.002, "eager again": 0.001}, memory=3 << 20,
        )
    )  # fmt: skip
    return found


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    before = [Result("ops/div/float32", "tosa", "pass", "div", "ops", "float32")]
    now = Run(ABOUT, results())
    write_html(now, path, compare_runs(Run(ABOUT, before), now))
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on this machine: THE REPORT PAGE WAS NOT TESTED IN A BROWSER")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any, page_path: Path) -> Iterator[Any]:
    context = browser.new_context(offline=True)
    page = context.new_page()
    troubles: list[str] = []
    requests: list[str] = []
    page.on("console", lambda m: troubles.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda e: troubles.append(str(e)))
    page.on("request", lambda r: requests.append(r.url))
    page.goto(page_path.as_uri())
    page.wait_for_selector("body[data-ready=yes]")
    yield page
    context.close()
    assert troubles == []
    assert [r for r in requests if not r.startswith(("file:", "data:", "blob:"))] == []


def cases(page: Any) -> list[str]:
    return page.locator("#results tbody tr td.case").all_inner_texts()


def test_the_head_says_what_it_is(page: Any) -> None:
    assert page.title() == "Compatibility of mine"
    cards = page.locator(".card").all_inner_texts()
    assert "100.0%" in cards[0]
    assert "4 of 4" in cards[0]
    assert "71.4%" in cards[1]
    assert "5 of 7" in cards[1]
    assert any("level core on tosa" in c and "not reached" in c for c in cards)


def test_failures_are_shown_first_and_all_on_demand(page: Any) -> None:
    assert cases(page) == ["ops/div/float32"]
    page.click("#reset")
    assert len(cases(page)) == len(results())
    assert page.inner_text("#count") == f"{len(results())} of {len(results())} results"


def test_columns_sort_both_ways(page: Any) -> None:
    page.click("#reset")
    page.click("#results th button >> text=case")
    up = cases(page)
    assert up == sorted(up)
    page.click("#results th button >> text=case")
    assert cases(page) == up[::-1]
    assert page.get_attribute("#results th:first-child", "aria-sort") == "descending"


def test_filters_and_text_narrow_the_list(page: Any) -> None:
    page.click("#reset")
    page.select_option("#target", "tosa")
    page.select_option("#family", "binary")
    assert set(cases(page)) == {f"ops/{n}/float32" for n in ("add", "mul", "sub", "div", "eq")}
    page.fill("#text", "wrong")
    assert cases(page) == ["ops/div/float32"]


def test_a_cell_of_the_heat_map_selects_its_cases(page: Any) -> None:
    page.click("#heat tbody tr:has-text('unary') td button >> nth=0")
    assert cases(page) == ["ops/exp/float32"]


def test_a_failure_opens_with_all_that_is_known(page: Any) -> None:
    page.click("#results tbody tr")
    text = page.inner_text("#detail")
    for part in (
        "result 0 at [1]",
        "0.25",
        "8388608",
        "torch.aten.div </script><b>",
        "tosa.reciprocal",
        "at model.py:3",
    ):
        assert part in text
    assert "reproduce('ops/div/float32', target='tosa', sample=0, backend=" in text
    page.click("#detail >> text=Copy as an issue")
    page.wait_for_selector("#detail >> text=Copied")
    page.keyboard.press("Escape")
    assert not page.is_visible("#detail")


def test_models_have_their_table(page: Any) -> None:
    """S58: times and memory of models, beside eager."""
    row = page.inner_text("#models tbody tr").split()
    assert row[:2] == ["lenet", "vision"]
    assert row[-4:] == ["0.50", "1.25", "2.00", "3"]


def test_changes_are_listed(page: Any) -> None:
    assert page.inner_text("#changes tbody tr").split("\t")[:3] == ["worse", "ops/div/float32", "tosa"]


def test_a_page_does_not_change_what_it_is_given(page_path: Path) -> None:
    text = page_path.read_text()
    assert "</script><b>" not in text
    assert "http" not in text
