"""Modules, parameters and containers as in PyTorch, and the layers that prove the mechanism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from frontends.nn.parity import same_ir, same_program
from safetensors.torch import save_file

import flambeau
from flambeau import nn


def model_in(n: Any) -> Any:
    """Make the same model in torch.nn and in flambeau.nn."""

    class Block(n.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = n.LayerNorm(8)
            self.layers = n.ModuleList([n.Linear(8, 8), n.Linear(8, 8, bias=False)])
            self.act = n.ModuleDict({"gelu": n.GELU(), "relu": n.ReLU(inplace=True)})

        def forward(self, x: Any) -> Any:
            for layer, name in zip(self.layers, self.act, strict=True):
                x = self.act[name](layer(self.norm(x)))
            return x

    class Model(n.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = n.Embedding(11, 8, padding_idx=0)
            self.body = n.Sequential(Block(), n.Dropout(0.1), Block())
            self.head = n.Linear(8, 11, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x: Any) -> Any:
            return self.head(self.body(self.embed(x)))

    return Model()


def image_model_in(n: Any) -> Any:
    return n.Sequential(
        n.Conv2d(3, 8, 3, stride=2, padding=1, bias=False), n.BatchNorm2d(8), n.ReLU(inplace=True), n.MaxPool2d(2),
        n.Conv2d(8, 4, (1, 3), padding="same", groups=2), n.MaxPool2d(3, stride=1, padding=1, ceil_mode=True),
    )  # fmt: skip


IDS, IMAGE = torch.randint(0, 11, (2, 5)), torch.randn(2, 3, 16, 16)


def pairs() -> list[tuple[Any, Any]]:
    found = []
    for make in (model_in, image_model_in):
        theirs, ours = make(torch.nn).eval(), make(nn).eval()
        ours.load_state_dict(theirs.state_dict())
        found.append((theirs, ours))
    return found


@pytest.mark.engine
@pytest.mark.parametrize(("make", "x"), [(model_in, IDS), (image_model_in, IMAGE)], ids=["text", "image"])
def test_the_same_program_as_torch(make: Any, x: torch.Tensor) -> None:
    theirs, ours = make(torch.nn).eval(), make(nn).eval()
    assert ours.load_state_dict(theirs.state_dict()) == ([], [])
    same_program(theirs, ours, x, rtol=1e-4, atol=1e-5)
    dims = {"dynamic": True} if x is IDS else {}
    same_ir(theirs, ours, x, **dims)


def test_names_and_text_are_those_of_torch() -> None:
    for theirs, ours in pairs():
        assert repr(ours) == repr(theirs)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        assert [n for n, _ in ours.named_parameters()] == [n for n, _ in theirs.named_parameters()]
        assert [n for n, _ in ours.named_buffers()] == [n for n, _ in theirs.named_buffers()]
        assert [n for n, _ in ours.named_modules()] == [n for n, _ in theirs.named_modules()]
        assert [n for n, _ in ours.named_children()] == [n for n, _ in theirs.named_children()]
        for name, value in theirs.state_dict().items():
            assert ours.state_dict()[name].shape == tuple(value.shape), name


@pytest.mark.engine
def test_batch_norm_in_training_updates_its_statistics() -> None:
    theirs, ours = torch.nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    module = flambeau.compile(flambeau.trace(ours, nn.TensorSpec([2, 3, 16, 16])))
    got = flambeau.load(module, profile="quick")(IMAGE.numpy())
    want = theirs(IMAGE)
    np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-4, atol=1e-5)
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[name], value.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def test_shared_parameters_are_one_weight() -> None:
    ours = model_in(nn)
    assert ours.head.weight is ours.embed.weight
    module = flambeau.trace(ours.eval(), nn.TensorSpec([2, 5], "i64"))
    assert "embed.weight" in module.weights
    assert "head.weight" not in module.weights
    assert module.weights["embed.weight"] is ours.embed.weight.data


def test_a_checkpoint_from_disk(tmp_path: Path) -> None:
    theirs, ours = image_model_in(torch.nn), image_model_in(nn)
    save_file({k: v.contiguous() for k, v in theirs.state_dict().items()}, tmp_path / "model.safetensors")
    ours.load_state_dict(tmp_path / "model.safetensors")
    for name, value in theirs.state_dict().items():
        np.testing.assert_array_equal(ours.state_dict()[name], value.numpy())


def test_a_state_that_does_not_fit() -> None:
    model = nn.Linear(2, 3)
    state = {"weight": np.ones((3, 2), np.float32), "other": np.ones(1)}
    with pytest.raises(RuntimeError, match="does not fit Linear: missing: bias; unexpected: other"):
        model.load_state_dict(state)
    assert model.load_state_dict(state, strict=False) == (["bias"], ["other"])
    assert model.weight.data.sum() == 6
    with pytest.raises(RuntimeError, match=r"weight has shape \[2\], not \[3, 2\]"):
        model.load_state_dict({"weight": np.ones(2)}, strict=False)
    (damaged := Path("nowhere.safetensors"))
    with pytest.raises(FileNotFoundError):
        model.load_state_dict(damaged)


def test_modes_and_walking() -> None:
    model = model_in(nn)
    assert model.training
    assert all(m.training for m in model.modules())
    assert not any(m.training for m in model.eval().modules())
    seen: list[str] = []
    model.apply(lambda m: seen.append(type(m).__name__))
    assert seen[-1] == "Model"
    assert model.get_submodule("body.0.layers.1").bias is None
    assert len(model.body) == 3
    assert type(model.body[1]) is nn.Dropout
    assert len(model.body[:2]) == 2
    assert sum(p.data.size for p in model.parameters()) == 11 * 8 + 2 * (8 * 8 * 2 + 8 + 16)


def test_mistakes_with_modules() -> None:
    class Early(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) before setting 'layer'"):
        Early()
    with pytest.raises(NotImplementedError, match=r"Module has no forward"):
        flambeau.trace(nn.Module(), nn.TensorSpec([1]))
    with pytest.raises(AttributeError, match="'Linear' has no attribute 'wait'"):
        nn.Linear(1, 1).wait  # noqa: B018
    with pytest.raises(TypeError, match="'weight' is a parameter of this module: it cannot become a int"):
        nn.Linear(1, 1).weight = 3
    with pytest.raises(RuntimeError, match="no program"):
        nn.Linear(1, 1)(np.ones(1))


@pytest.mark.engine
def test_parameters_take_part_in_expressions() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(np.arange(6, dtype="f").reshape(2, 3))
            self.more = nn.ParameterList([np.ones(3, np.float32)])

        def forward(self, x: Any) -> Any:
            return x @ self.w.T + self.w[0].sum() * self.more[0][:2], self.w.shape

    model = Scale()
    got, shape = flambeau.load(flambeau.compile(flambeau.trace(model, nn.TensorSpec([4, 3]))), profile="quick")(
        np.ones((4, 3), "f")
    )
    np.testing.assert_allclose(got, np.ones((4, 3)) @ model.w.data.T + 3)
    assert shape == (2, 3)
    assert isinstance(model.w, nn.Parameter)


def test_converting_a_model() -> None:
    model = nn.Linear(2, 3).to("bf16")
    module = flambeau.trace(model, nn.TensorSpec([1, 2], "bf16"))
    assert "tensor<3x2xbf16>" in str(module)
    assert model.double().weight.data.dtype == np.float64
