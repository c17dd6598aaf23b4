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


NEED_NO_ENGINE = [name for name in PROGRAMS if name != "engine"]


@pytest.mark.long(sample=1)
@pytest.mark.parametrize("names", [NEED_NO_ENGINE, pytest.param(["engine"], marks=pytest.mark.engine)], ids=len)
def test_warnings_that_are_errors_change_nothing(names: list[str], tmp_path: Path) -> None:
    """One process for those that need no engine: to start it takes longer than all of them."""
    path = tmp_path / "program.py"
    path.write_text(MODEL + "".join(f"{PROGRAMS[name]}\nprint({name!r})\n" for name in names))
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == names, done.stderr
    assert "Warning" not in done.stderr
