"""Modules and executables on disk: what is read back gives the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support import assert_same
from torch import Tensor, nn
from torch.export import Dim

import flambeau
from flambeau.diagnostics import CompileError


class Small(nn.Module):
    """Weights of three dtypes, a tied one, a literal in the text, a dictionary as the result."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("brief", torch.randn(100).bfloat16())
        self.register_buffer("ids", torch.arange(100))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y = self.second(torch.relu(self.first(x)))
        return {"y": y + torch.tensor([0.5]), "brief": self.brief + 1, "ids": self.ids * 2}


@pytest.fixture(scope="module")
def small() -> Small:
    torch.manual_seed(0)
    return Small().eval()


@pytest.fixture(scope="module")
def linalg(small: Small) -> flambeau.Module:
    return flambeau.compile(small, (torch.ones(2, 8),), dynamic_shapes=({0: Dim("batch", min=1, max=64)},))


def load(module: Any, **options: Any) -> Any:
    return flambeau.load(module, profile="quick", device="local-sync", **options)


def leaves(result: Any) -> list[Tensor]:
    return [*result.values()] if isinstance(result, dict) else list(result)


@pytest.mark.engine
@pytest.mark.parametrize("output_type", ["raw", "torch", "linalg-on-tensors"])
def test_a_saved_module_runs(small: Small, tmp_path: Path, output_type: str) -> None:
    module = flambeau.compile(small, (torch.ones(2, 8),), output_type=output_type)
    path = tmp_path / "model.mlir"
    module.save(path)
    assert path.read_text() == str(module)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.mlir", "model.safetensors"]
    x = torch.randn(2, 8)
    assert_same(load(path)(x), leaves(small(x)))
    assert_same(load(str(path))(x), leaves(small(x)))


def test_the_weights_are_a_plain_safetensors_file(small: Small, linalg: flambeau.Module, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    linalg.save(tmp_path / "model.mlir")
    weights = load_file(tmp_path / "model.safetensors")
    assert set(weights) == set(linalg.weights) == {"first.weight", "brief", "first.bias", "ids"}
    for name, tensor in weights.items():
        assert torch.equal(tensor, linalg.weights[name])
    assert torch.equal(weights["first.weight"], small.second.weight)


@pytest.mark.engine
def test_a_module_without_weights_is_one_file(tmp_path: Path) -> None:
    flambeau.compile(nn.ReLU(), (torch.ones(3),)).save(tmp_path / "relu.mlir")
    assert [p.name for p in tmp_path.iterdir()] == ["relu.mlir"]
    assert_same(load(tmp_path / "relu.mlir")(torch.tensor([-1.0, 0.0, 2.0])), torch.tensor([0.0, 0.0, 2.0]))


@pytest.mark.engine
def test_a_saved_module_keeps_its_dynamic_dims(small: Small, linalg: flambeau.Module, tmp_path: Path) -> None:
    linalg.save(tmp_path / "model.mlir")
    run = load(tmp_path / "model.mlir")
    for batch in (1, 5):
        x = torch.randn(batch, 8)
        assert_same(run(x), leaves(small(x)))


@pytest.mark.engine
def test_a_saved_executable_runs_without_compiling(
    small: Small, linalg: flambeau.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load(linalg)
    run.save(tmp_path / "model.vmfb")
    from flambeau.engines.iree import compiler

    monkeypatch.setattr(compiler, "compile_mlir", lambda *a, **k: pytest.fail("it compiles"))
    again = flambeau.load(tmp_path / "model.vmfb")
    for batch in (1, 5):
        x = torch.randn(batch, 8)
        ours, expected = again(x), small(x)
        assert list(ours) == list(expected)
        assert_same(leaves(ours), leaves(expected))
        assert_same(leaves(ours), leaves(run(x)), rtol=0, atol=0)


@pytest.mark.engine
def test_a_program_with_state_is_saved_with_it(tmp_path: Path) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("n", torch.zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            self.n += x
            return self.n * 2

    run = load(flambeau.compile(Counter(), (torch.ones(4),)))
    run(torch.ones(4))
    run.save(tmp_path / "counter.vmfb")
    again = flambeau.load(tmp_path / "counter.vmfb")
    assert_same(again(torch.ones(4)), torch.full((4,), 4.0))
    assert_same(again(torch.ones(4)), torch.full((4,), 6.0))


@pytest.mark.engine
def test_inline_weights_make_a_self_contained_text() -> None:
    """The text alone, compiled by IREE's own compiler, holds the weights."""
    from iree import compiler, runtime

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    module = flambeau.compile(model, (torch.ones(2, 8),))
    text = module.text(weights="inline")
    assert text.startswith(module.text())
    assert "dialect_resources" in text
    assert "dialect_resources" not in module.text()
    flags = ["--iree-llvmcpu-target-cpu=generic", "--iree-opt-const-eval=false"]
    binary = compiler.compile_str(text, target_backends=["llvm-cpu"], extra_args=flags)
    config = runtime.Config("local-sync")
    context = runtime.SystemContext(config=config)
    context.add_vm_module(runtime.VmModule.copy_buffer(config.vm_instance, binary))
    x = torch.randn(2, 8)
    result = context.modules.module.main(x.numpy()).to_host()
    assert_same(torch.from_numpy(result.copy()), model(x).detach())


@pytest.mark.parametrize("output_type", ["raw", "torch"])
def test_inline_weights_parse_in_torch_mlir(small: Small, output_type: str) -> None:
    ir = pytest.importorskip("torch_mlir.ir")
    from torch_mlir.dialects import torch as torch_dialect

    text = flambeau.compile(small, (torch.ones(2, 8),), output_type=output_type).text(weights="inline")
    with ir.Context() as context:
        torch_dialect.register_dialect(context)
        assert ir.Module.parse(text, context).operation.verify()


@pytest.mark.engine
def test_inline_weights_are_read_back(small: Small, tmp_path: Path) -> None:
    """One file is enough: no safetensors beside it."""
    module = flambeau.compile(small, (torch.ones(2, 8),), output_type="torch")
    path = tmp_path / "alone.mlir"
    path.write_text(module.text(weights="inline"))
    x = torch.randn(2, 8)
    assert_same(load(path)(x), leaves(small(x)))


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="cannot read"):
        flambeau.load(tmp_path / "missing.mlir")
    (tmp_path / "bad.mlir").write_text("this is not MLIR")
    with pytest.raises(CompileError, match=r"bad\.mlir is not MLIR that Flambeau reads"):
        flambeau.load(tmp_path / "bad.mlir")
    (tmp_path / "binary.mlir").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CompileError, match="cannot read"):
        flambeau.load(tmp_path / "binary.mlir")


def test_a_module_whose_weights_are_gone(linalg: flambeau.Module, tmp_path: Path) -> None:
    linalg.save(tmp_path / "model.mlir")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CompileError, match=r"first\.weight"):
        load(tmp_path / "model.mlir")


def test_text_takes_known_ways_of_writing_weights_only(linalg: flambeau.Module) -> None:
    with pytest.raises(ValueError, match="'elided', 'inline' or 'literal', not 'all'"):
        linalg.text(weights="all")


@pytest.mark.parametrize("output_type", ["torch", "linalg-on-tensors", "stablehlo", "tosa"])
def test_a_module_that_is_lowered_further_stays_as_it_is(output_type: str) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.total += x
            return nn.functional.silu(self.total)

    raw = flambeau.compile(Counting(), (torch.ones(3),), output_type="raw")
    before = raw.text()
    first = flambeau.compile(raw, output_type=output_type)
    assert raw.text() == before
    assert first.text() == flambeau.compile(raw, output_type=output_type).text()
