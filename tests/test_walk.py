"""The walk with aten.add in docs/architecture.md is the way that the op takes."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import flambeau

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"
SOURCES = Path(flambeau.__file__).parent
MAX_STEPS = 20
TARGETS = {"linalg": "linalg-on-tensors", "stablehlo": "stablehlo", "tosa": "tosa"}
"""Output types by what the page calls them."""
OPS = {
    "linalg": {"linalg.generic", "arith.mulf", "arith.addf"},
    "stablehlo": {"stablehlo.broadcast_in_dim", "stablehlo.multiply", "stablehlo.add"},
    "tosa": {"tosa.mul", "tosa.add"},
}
"""What the page says that each target's program is made of."""


@dataclass(frozen=True)
class Step:
    function: str
    """The function's qualified name."""
    file: str
    """Its file, below the package."""
    targets: str

    def is_for(self, target: str) -> bool:
        return self.targets == "all" or target in self.targets.split(", ")


def steps() -> list[Step]:
    section = PAGE.read_text().split("\n## A walk with aten.add\n")[1].split("\n## ")[0]
    return [Step(*row) for row in re.findall(r"^\| `([\w.]+)` \| `([\w/.]+)` \| ([\w, ]+) \|", section, re.MULTILINE)]


class Add(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.add(x, y, alpha=2)


def compile_and_record(output_type: str) -> tuple[flambeau.Module, list[tuple[str, str]]]:
    """Compile the page's program; gives it with our functions that were called: file and name, by their first calls."""
    called: dict[tuple[str, str], None] = {}
    root = f"{SOURCES}/"

    def note(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root):
            called.setdefault((code.co_filename.removeprefix(root), code.co_qualname))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        module = flambeau.compile(Add(), (torch.ones(3, 1), torch.ones(4)), output_type=output_type)
    finally:
        sys.setprofile(before)
    return module, list(called)


def test_the_walk_is_short() -> None:
    found = steps()
    assert 10 < len(found) <= MAX_STEPS
    assert len(set(found)) == len(found)
    assert (found[0].function, found[0].file) == ("compile", "api.py")


@pytest.mark.parametrize("target", TARGETS)
def test_the_op_takes_the_steps_in_their_order(target: str) -> None:
    module, called = compile_and_record(TARGETS[target])
    listed = [(step.file, step.function) for step in steps() if step.is_for(target)]
    assert not [step for step in listed if step not in called]
    assert sorted(listed, key=called.index) == listed
    assert {op.name for op in module.op.walk()} >= OPS[target]


@pytest.mark.parametrize("target", TARGETS)
def test_the_steps_of_other_targets_are_not_taken(target: str) -> None:
    called = compile_and_record(TARGETS[target])[1]
    assert not [step for step in steps() if not step.is_for(target) and (step.file, step.function) in called]
