"""The frontend where there is no PyTorch: from a checkpoint on disk to numbers from IREE."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import flambeau
from flambeau.frontends.nn.core.stub import stub_text
from flambeau.ir import safetensors_file

SOURCE = Path(flambeau.__file__).parent.parent

REFUSE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "transformers", "torch_mlir", "jax"):
            raise ImportError(f"{name} is not here")
sys.meta_path.insert(0, Refuse())
"""

PROGRAM = """
import numpy as np, flambeau
from flambeau import nn, ops

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))
        self.register_buffer("calls", np.zeros((), np.int64))

    def forward(self, x):
        self.calls += 1
        y = self.body(x).softmax(-1)
        y[:, 0] = 0.0
        return {"y": y, "rows": x.shape[0], "top": ops.topk(y, 2).indices}

model = Model()
import sys
model.load_state_dict(sys.argv[1])
module = flambeau.trace(model, nn.TensorSpec([None, 8], "f32"))
run = flambeau.load(flambeau.compile(module), profile="quick")
got = run(np.linspace(-1, 1, 24, dtype="f").reshape(3, 8))
assert "torch" not in sys.modules
import json
print(json.dumps({"y": got["y"].tolist(), "rows": got["rows"], "calls": int(model.calls.data)}))
"""


def python(code: str, *args: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code, *args], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.engine
def test_from_a_checkpoint_to_numbers(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="it makes the checkpoint here; test_examples.py has some that are made")

    body = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)
    )  # fmt: skip
    from flambeau.engines.safetensors_file import write_safetensors

    state = {f"body.{k}": v.detach() for k, v in body.state_dict().items()} | {"calls": torch.tensor(0)}
    write_safetensors(tmp_path / "model.safetensors", state)
    assert set(safetensors_file.read_safetensors(tmp_path / "model.safetensors")) == set(state)
    got = json.loads(python(REFUSE + PROGRAM, str(tmp_path / "model.safetensors")))
    want = body(torch.linspace(-1, 1, 24).reshape(3, 8)).softmax(-1)
    want[:, 0] = 0
    np.testing.assert_allclose(got["y"], want.detach().numpy(), rtol=1e-4, atol=1e-6)
    assert got["rows"] == 3
    assert got["calls"] == 1


def test_importing_nn_is_cheap_and_imports_no_torch() -> None:
    def loaded(names: str) -> set[str]:
        code = f"import sys, json, {names}; print(json.dumps(sorted(m.split('.')[0] for m in sys.modules)))"
        return set(json.loads(python(code)))

    assert not loaded("flambeau.nn, flambeau.ops") & {"torch", "xdsl", "iree", "click"}
    assert "numpy" not in loaded("flambeau.nn")

    # As a ratio, so that it holds on slow machines too. It is about 1; with xDSL it would be 5, with PyTorch 15.
    timed = """
import time
start = time.process_time()
import flambeau.nn
between = time.process_time()
import numpy
print((between - start) / (time.process_time() - between))
"""
    assert min(float(python(timed)) for _ in range(5)) < 3


def test_the_stub_is_current() -> None:
    """`flambeau registry stub` writes it anew."""
    assert (SOURCE / "flambeau" / "ops.pyi").read_text() == stub_text()


@pytest.mark.long
def test_the_stub_serves_a_type_checker(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    head = "from flambeau import ops\ndef f(x: ops.Tensor) -> ops.Tensor:\n"
    good, bad = f"{head}    return ops.softmax(x, -1).reshape(2, 3) + 1\n", f'{head}    return ops.softmax(x, "one")\n'
    for text, status in ((good, 0), (bad, 1)):
        (tmp_path / "example.py").write_text(text)
        command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--no-site-packages", "example.py"]
        environment = {**os.environ, "MYPYPATH": str(SOURCE)}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
    assert 'Argument 2 to "softmax" has incompatible type "str"' in done.stdout
