"""Training loops as they stand, with lazy tensors: the losses are those of eager PyTorch: S51, S84."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from flambeau import lazy

STEPS = 200


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 7 * 7, 10),
    )  # fmt: skip


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.places = nn.Parameter(torch.randn(1, 8, 16) * 0.1)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), 2)
        self.out = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.layers(self.embed(x) + self.places[:, : x.shape[1]])).mean(1)


def train(model: nn.Module, device: Any, data: TensorDataset, steps: int) -> Iterator[float]:
    """Train as everybody does. Nothing here knows of lazy tensors."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + 0.02 * step))
    loss_of = nn.CrossEntropyLoss()
    taken = 0
    while True:
        for x, y in DataLoader(data, batch_size=8, shuffle=True):
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = loss_of(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            yield loss.item()
            taken += 1
            if taken == steps:
                return


@pytest.mark.engine
@pytest.mark.long
@pytest.mark.parametrize("kind", ["cnn", "transformer"])
def test_the_losses_of_two_hundred_steps(kind: str, device: torch.device) -> None:
    """S51: the curve is that of eager PyTorch, with three programs, none of them after the first steps, no fallback."""
    lazy.use_engine("xla")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = cnn() if kind == "cnn" else Transformer()
        x = torch.randn(64, 1, 28, 28) if kind == "cnn" else torch.randint(0, 30, (64, 8))
        data = TensorDataset(x, torch.randint(0, 10, (64,)))
        ours = copy.deepcopy(model).to(device)
        torch.manual_seed(1)
        expected = list(train(model, "cpu", data, STEPS))
        torch.manual_seed(1)
        found, compiled = [], []
        for loss in train(ours, device, data, STEPS):
            found.append(loss)
            compiled.append(lazy.report().compiles)
    assert expected[-1] < expected[0] * 0.75
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-3)
    assert compiled[-1] <= 3
    assert compiled[4] == compiled[-1]
    assert lazy.report().fallbacks == {}
    assert lazy.report().hits == STEPS - compiled[-1]


@pytest.mark.engine
def test_training_with_iree(device: torch.device) -> None:
    lazy.use_engine("iree", profile="quick", device="local-sync")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    ours = copy.deepcopy(model).to(device)
    data = TensorDataset(torch.randn(16, 4), torch.randint(0, 2, (16,)))
    torch.manual_seed(1)
    expected = list(train(model, "cpu", data, 6))
    torch.manual_seed(1)
    torch.testing.assert_close(list(train(ours, device, data, 6)), expected, rtol=1e-3, atol=1e-4)
    assert lazy.report().compiles <= 3
    assert lazy.report().fallbacks == {}


OPTIMIZERS = [
    "SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Adamax", "RAdam", "Adadelta", "ASGD", "Rprop", "LBFGS"
]  # fmt: skip


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizers(kind: str, device: torch.device) -> None:
    """All of PyTorch's, with their steps one by one and over lists of tensors; none compiles in each step."""
    for options in [{}] if kind == "LBFGS" else [{}, {"foreach": True}]:
        lazy.reset()
        a = nn.Linear(3, 2)
        b = copy.deepcopy(a).to(device)
        models = [(a, "cpu"), (b, device)]
        made = [getattr(torch.optim, kind)(m.parameters(), lr=0.01, **options) for m, _ in models]
        for _ in range(2 if kind == "LBFGS" else 8):
            for (model, where), optimizer in zip(models, made, strict=True):

                def closure(model: Any = model, where: Any = where, optimizer: Any = optimizer) -> Tensor:
                    optimizer.zero_grad()
                    loss = (model(torch.ones(4, 3, device=where)) ** 2).sum()
                    loss.backward()
                    return loss

                optimizer.step(closure)
        torch.testing.assert_close(b.weight.detach().cpu(), a.weight.detach(), rtol=1e-4, atol=1e-5)
        assert lazy.report().fallbacks == {}
        assert kind == "LBFGS" or lazy.report().compiles <= 4


def test_checkpoints_hold_contents(device: torch.device, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).to(device)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[0].weight.fill_(2.0)
    assert twin[0].weight.tolist() != model[0].weight.tolist()
    assert lazy.is_lazy(twin[0].weight)
    file = io.BytesIO()
    torch.save(twin.state_dict(), file)
    file.seek(0)
    read = torch.load(file)
    assert type(read["0.weight"]) is Tensor
    assert read["0.weight"].tolist() == [[2.0, 2.0], [2.0, 2.0]]
    safetensors.torch.save_file(twin.state_dict(), tmp_path / "model.safetensors")
    assert torch.equal(safetensors.torch.load_file(tmp_path / "model.safetensors")["0.weight"], read["0.weight"])
    model.load_state_dict(read)
    assert lazy.is_lazy(model[0].weight)
    assert model[0].weight.tolist() == read["0.weight"].tolist()
    again = pickle.loads(pickle.dumps(model[0].weight))
    assert type(again) is nn.Parameter
    assert torch.equal(again, read["0.weight"])


def test_models_change_their_dtype_and_place(device: torch.device) -> None:
    model = nn.Linear(2, 2).to(device)
    before = model.weight.tolist()
    assert model.double()(torch.ones(1, 2, device=device, dtype=torch.double)).dtype is torch.double
    assert model.weight.dtype is torch.double
    assert model.float().weight.tolist() == before
    back = model.cpu()
    assert type(back.weight) is nn.Parameter
    assert back.weight.tolist() == before


def test_numpy_reads_contents(device: torch.device) -> None:
    x = torch.arange(3.0, device=device)
    assert isinstance(x.numpy(), np.ndarray)
    assert np.asarray(x + 1).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(RuntimeError, match="requires grad"):
        x.requires_grad_().numpy()


TORCH_LAZY = """
import torch
torch._C._lazy_ts_backend._init()
import flambeau
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(3 * 16, 2)
).to("lazy")
y = torch.softmax(model(torch.randn(5, 1, 6, 6).to("lazy")), -1) * 2.5
y.pow(2).mean().backward()
tensors = [y, model[0].weight.grad, model[3].bias.grad]
program = flambeau.lazy.from_torch_lazy(tensors, output_type="stablehlo")
found = flambeau.load(program.module, engine="xla")(*program.inputs)
for ours, theirs in zip(found, tensors, strict=True):
    torch.testing.assert_close(ours, theirs.detach().cpu(), rtol=1e-4, atol=1e-5)
try:
    flambeau.lazy.device()
except RuntimeError as error:
    print(error)
"""


@pytest.mark.engine
def test_graphs_of_torchs_own_lazy_tensors() -> None:
    """S51, S84: what LazyTensorCore records on `device="lazy"` goes through TorchScript into the torch dialect."""
    done = subprocess.run([sys.executable, "-c", TORCH_LAZY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "use one of them only" in done.stdout


def test_only_torchs_own_lazy_tensors_have_such_graphs(device: torch.device) -> None:
    for tensor in (torch.ones(2), torch.ones(2, device=device)):
        with pytest.raises(TypeError, match="takes tensors of PyTorch's LazyTensorCore"):
            lazy.from_torch_lazy(tensor)
