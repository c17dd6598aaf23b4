"""Rules that come from a package with an entry point, and from a file on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

import flambeau
from flambeau.commands import flambeau as command_line
from flambeau.ir import plugins

OPS = """
import torch
from torch import Tensor

@torch.library.custom_op("{library}::gate", mutates_args=())
def gate(x: Tensor, y: Tensor) -> Tensor:
    return x * torch.sigmoid(y)

@torch.library.custom_op("{library}::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    return x * x * x

gate.register_fake(lambda x, y: torch.empty_like(x))
cube.register_fake(lambda x: torch.empty_like(x))

class Model(torch.nn.Module):
    def forward(self, x):
        return cube(x) + gate(x, x)
"""

RULES = """
import flambeau

@flambeau.decompose("{library}::gate")
def decompose_gate(t, x, y):
    return t.mul(x, t.sigmoid(y))

@flambeau.lower("{library}::cube")
def lower_cube(b, x):
    return b.elementwise([x], lambda e: e * e * e, x.dtype)
"""

PYPROJECT = """
[project]
name = "shop-ops"
version = "1.0"

[project.entry-points."flambeau.plugins"]
shop = "shop_ops.rules"
"""


def install(site: Path, rules: str) -> None:
    """Install a package of its own as pip does: its files, and what it offers in its metadata."""
    package, metadata = site / "shop_ops", site / "shop_ops-1.0.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "__init__.py").write_text(OPS.format(library="shop"))
    (package / "rules.py").write_text(rules)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: shop-ops\nVersion: 1.0\n")
    points = PYPROJECT.partition("[project.entry-points.")[2]
    (metadata / "entry_points.txt").write_text("[" + points.replace('"', ""))


def python(site: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    source = Path(flambeau.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{site}", **variables}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)


USE = """
import sys
import flambeau
assert "torch" not in sys.modules and "shop_ops" not in sys.modules
import torch
import shop_ops
assert "shop_ops.rules" not in sys.modules
x = torch.randn(3, 5)
for target in ("linalg-on-tensors", "stablehlo", "tosa"):
    module = flambeau.compile(shop_ops.Model(), (x,), output_type=target)
    torch.testing.assert_close(flambeau.load(module, profile="quick")(x), shop_ops.Model()(x))
    print(target)
"""


@pytest.mark.engine
def test_a_package_with_an_entry_point_brings_its_rules(tmp_path: Path) -> None:
    install(tmp_path, RULES.format(library="shop"))
    done = python(tmp_path, USE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["linalg-on-tensors", "stablehlo", "tosa"]


def test_a_plugin_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_shop.py").write_text("def add():\n    raise KeyError('nothing')\n")
    (tmp_path / "good_shop.py").write_text("COUNT = 0\n\ndef add():\n    global COUNT\n    COUNT += 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(plugins, "_state", "new")
    points = [EntryPoint(name, f"{name}_shop:add", plugins.ENTRY_POINTS) for name in ("good", "broken")]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points)
    wrong = r"the plugin 'broken' \(broken_shop:add\) cannot be loaded: KeyError: 'nothing'\n.*Mend or uninstall it"
    for _ in range(2):
        with pytest.raises(flambeau.CompileError, match=wrong):
            plugins.load_plugins()
    monkeypatch.setenv(plugins.VARIABLE, "good")
    plugins.load_plugins()
    plugins.load_plugins()
    assert import_module("good_shop").COUNT == 3


@pytest.mark.engine
def test_the_commands_take_a_file_with_rules(tmp_path: Path) -> None:
    library = "shop_file"
    rules, text = tmp_path / "shop_file_ops.py", tmp_path / "cube.mlir"
    rules.write_text(OPS.format(library=library) + RULES.format(library=library))
    text.write_text("""
func.func @main(%x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {
  %0 = torch.operator "torch.shop_file.cube"(%x) : (!torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>
  return %0 : !torch.vtensor<[2],f32>
}
""")
    cases = tmp_path / "shop_file_cases.py"
    cases.write_text("""
import torch
from shop_file_ops import gate
from flambeau.testing import case

@case(torch.randn(3))
def gated(x):
    return gate(x, x)
""")
    shown = CliRunner()
    model, plugin = f"{rules}:Model", ["--plugin", str(rules)]
    done = shown.invoke(command_line, ["compile", *plugin, model, "--input", "2x3xf32", "--emit", "stablehlo"])
    assert done.exit_code == 0, done.output
    assert "stablehlo.exponential" in done.output
    done = shown.invoke(command_line, ["run", *plugin, model, "--input", "2x3xf32", "--check"])
    assert "equal to eager PyTorch" in done.output
    done = shown.invoke(command_line, ["opt", *plugin, str(text), "-p", "convert-torch-to-linalg"])
    assert "arith.mulf" in done.output
    done = shown.invoke(command_line, ["compile", model, "--input", "2x3xf32", "--external", f"{library}::cube=c.cube"])
    assert "func.func private @c.cube(tensor<2x3xf32>)" in done.output
    done = shown.invoke(command_line, ["compile", "--plugin", "nowhere.py", model])
    assert (done.exit_code, done.output) == (2, "error: there is no file nowhere.py\n")
    done = shown.invoke(command_line, ["cts", "-j1", *plugin, "--cases", str(cases), "--out", str(tmp_path / "cts")])
    assert done.exit_code == 0, done.output
    assert done.output.count("1/1 100.0%") == 3
