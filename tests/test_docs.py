"""The documentation is true: its Python runs, its outputs are what is printed, its commands exist."""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from flambeau.commands import flambeau as command_line

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MIN_BLOCKS = 30
FILE = "example.py"
"""The file that a block claims to be in, when an error message shows a line of it."""


@dataclass(frozen=True)
class Block:
    """A fenced block, and the marker (`<!-- no-test -->`, `<!-- output -->`) on the line above it."""

    language: str
    text: str
    line: int
    marker: str


_FENCE = re.compile(
    r"(?:^<!-- (?P<marker>[\w-]+) -->\n\n?)?^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(m["language"], m["text"], text.count("\n", 0, m.start("text")) + 1, m["marker"] or "")
        for m in _FENCE.finditer(text)
    ]


def is_run(block: Block) -> bool:
    return block.language == "python" and block.marker != "no-test"


def execute(code: str, namespace: dict[str, Any]) -> str:
    """Run a block as if it were a file; gives what it printed."""
    linecache.cache[FILE] = (len(code), None, code.splitlines(keepends=True), FILE)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, FILE, "exec", dont_inherit=True), namespace)
    return printed.getvalue()


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip().splitlines()]


def pages_with_code() -> list[Any]:
    """List the pages that have Python to run; those that load a program need an engine."""
    pages = {p: "".join(block.text for block in blocks(p) if is_run(block)) for p in PAGES}
    marks = {p: pytest.mark.engine if "load(" in code else () for p, code in pages.items()}
    return [pytest.param(p, marks=marks[p], id=p.stem) for p, code in pages.items() if code]


@pytest.mark.parametrize("page", pages_with_code())
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a page share a namespace; a block marked `output` is what the one before it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    namespace: dict[str, Any] = {"__name__": "example"}
    printed = ""
    for block in blocks(page):
        if is_run(block):
            try:
                printed = execute(block.text, namespace)
            except Exception as error:
                error.add_note(f"in the block at {page.name}:{block.line}")
                raise
        elif block.marker == "output":
            assert lines(printed) == lines(block.text), f"{page.name}:{block.line} shows another output"


def test_most_of_the_python_is_run() -> None:
    found = [block for page in PAGES for block in blocks(page) if block.language == "python"]
    run = [block for block in found if is_run(block)]
    assert len(run) >= MIN_BLOCKS
    assert len(found) - len(run) <= 6


def console_lines() -> Iterator[tuple[str, list[str]]]:
    for page in PAGES:
        for block in blocks(page):
            if block.language == "console":
                for line in block.text.splitlines():
                    command = line.removeprefix("$ ")
                    if command.startswith("flambeau "):
                        yield f"{page.name}: {command}", shlex.split(command)[1:]


def test_the_commands_exist_with_their_options() -> None:
    seen = set()
    for place, words in console_lines():
        command: click.Command = command_line
        words = words[: words.index("|")] if "|" in words else words
        while isinstance(command, click.Group) and words and not words[0].startswith("-"):
            found = command.commands.get(words[0])
            assert found is not None, f"{place}: there is no command {words[0]!r}"
            command, words = found, words[1:]
            seen.add(command.name)
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"-h", "--help"}
        for word in words:
            if word.startswith("-"):
                assert word.split("=")[0] in known, f"{place}: there is no option {word}"
    assert seen >= {"compile", "run", "opt", "registry"}


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name in navigation


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", _FENCE.sub("", page.read_text())):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
