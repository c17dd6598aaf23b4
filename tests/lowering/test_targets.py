"""Targets by name: ours, registered ones, and those of installed packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import flambeau
from flambeau.ir.module_pass import TorchPass
from flambeau.lowering import targets

X = (torch.ones(3),)

PACKAGE = '''
from flambeau.ir.module_pass import TorchPass
from flambeau.lowering.targets import Target


class Nothing(TorchPass):
    """Lower nothing."""

    name = "lower-nothing"

    def run(self, module):
        return module


class Engine:
    name = "other"

    def compile(self, module, **options):
        return lambda *args: "ran"


TARGET = Target("other", Nothing, frozenset({"torch"}), lambda: ())
'''

USE = """
import flambeau, torch
module = flambeau.compile(torch.nn.ReLU(), (torch.ones(3),), output_type="other")
assert module.output_type == "other" and "torch.aten.relu" in str(module)
assert flambeau.load(module, engine="other")() == "ran"
print("done")
"""


def test_a_package_adds_a_target_and_an_engine(tmp_path: Path) -> None:
    info = tmp_path / "other-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 0\n")
    entries = "[flambeau.targets]\nother = other_package:TARGET\n[flambeau.engines]\nother = other_package:Engine\n"
    (info / "entry_points.txt").write_text(entries)
    (tmp_path / "other_package.py").write_text(PACKAGE)
    path = ":".join((str(tmp_path), str(Path(flambeau.__file__).parents[1])))
    ended = subprocess.run([sys.executable, "-c", USE], env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert ended.stdout == "done\n", ended.stderr


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="there is a target 'tosa' already"):
        targets.register(targets.Target("tosa", TorchPass, frozenset(), lambda: ()))


def test_an_unknown_target_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="unknown output type 'tsoa'; it is one of raw, torch, linalg-on-tensors"):
        flambeau.compile(nn.ReLU(), X, output_type="tsoa")


@pytest.mark.parametrize(
    "output, options, message",
    [
        ("tosa", {"int46": "keep"}, "tosa has no option 'int46'; it has: int64"),
        ("linalg-on-tensors", {"int64": "keep"}, "linalg-on-tensors has no option 'int64'; it has: tm_tensor"),
        ("linalg-on-tensors", {"tm_tensor": "yes"}, "tm_tensor is true or false, not 'yes'"),
        ("torch", {"int64": "keep"}, "torch has no option 'int64'"),
    ],
)
def test_options_are_the_targets_own(output: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        flambeau.compile(nn.ReLU(), X, output_type=output, options=options)


def test_each_target_tells_its_programs_by_a_dialect_and_takes_what_it_has_rules_for() -> None:
    for name in targets.names():
        target = targets.get_target(name)
        module = flambeau.compile(nn.ReLU(), X, output_type=name)
        assert {op.name.split(".")[0] for op in module.op.walk()} & target.dialects
        assert "aten.relu" in target.native()
    assert "aten.sort" in targets.get_target("stablehlo").native()
    assert "aten.sort" not in targets.get_target("tosa").native()
