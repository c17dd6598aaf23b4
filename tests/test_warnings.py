"""`python -W error`: what we provoke ourselves neither warns nor stops a program from being compiled."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MODEL = """
import torch, flambeau
from torch import nn
from flambeau import torchscript

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.count += 1
        return self.norm(self.linear(x)).relu() + self.count

x = torch.randn(2, 3)
"""

PROGRAMS = {
    "training": "flambeau.compile(Model(), (x,))",
    "inference": "flambeau.compile(Model().eval(), (x,), dynamic_shapes=({0: torch.export.Dim('n')},))",
    "decomposition": "flambeau.compile(lambda x: torch.fft.fft(x), (x,))",
    "script": "flambeau.compile(Model().eval(), (x,), frontend='script')",
    "trace": "flambeau.compile(Model().eval(), (x,), frontend='trace')",
    "stablehlo": "flambeau.compile(Model().eval(), (x,), output_type='stablehlo')",
    "tosa": "flambeau.compile(Model().eval(), (x,), output_type='tosa')",
    "engine": "flambeau.load(flambeau.compile(nn.ReLU(), (x,)), profile='quick')(x)",
}


@pytest.mark.long(sample=1)
@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.engine if n == "engine" else ()) for n in PROGRAMS])
def test_warnings_that_are_errors_change_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(f"{MODEL}\n{PROGRAMS[name]}\nprint('done')\n")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "done\n", done.stderr
    assert "Warning" not in done.stderr
