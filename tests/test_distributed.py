"""Plans of PyTorch's as shardings of StableHLO: what is written into the IR, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import flambeau
from flambeau import CompileError
from flambeau.distributed import Plan, axes_of
from flambeau.engines import EngineError
from flambeau.files import parse_text

MESH = {"data": 2, "tensor": 4}


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, 8)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for block in self.blocks:
            x = x + block(x)
        return x


def compiled(plan: Any, mesh: Any = MESH, **options: Any) -> flambeau.Module:
    options = {"output_type": "stablehlo", **options}
    return flambeau.compile(Model(), (torch.zeros(4, 8, dtype=torch.int64),), mesh=mesh, plan=plan, **options)


def line(module: flambeau.Module, word: str) -> str:
    """Find the only line of a program with a word in it."""
    (found,) = [text.strip() for text in str(module).splitlines() if word in text]
    return found


def test_styles_place_parameters_as_parallelize_module_does() -> None:
    plan = {"blocks.*.up": ColwiseParallel(), "blocks.*.down": RowwiseParallel(), "embedding": RowwiseParallel()}
    module = compiled(plan)
    assert line(module, "sdy.mesh") == (
        '"sdy.mesh"() <{sym_name = "mesh", mesh = #sdy.mesh<["data"=2, "tensor"=4]>}> : () -> ()'
    )
    for name, dims in {
        "blocks.0.up.weight": '{"tensor"}, {}',
        "blocks.0.up.bias": '{"tensor"}',
        "blocks.1.down.weight": '{}, {"tensor"}',
        "blocks.1.down.bias": "{}",
        "blocks.1.norm.weight": "{}",
        "embedding.weight": '{"tensor"}, {}',
    }.items():
        assert f"#sdy.sharding_per_value<[<@mesh, [{dims}]>]>" in line(module, f"dense_resource<{name}>")
    # The batch is split along the axis `data`; what the program gives is whole.
    head = line(module, "func.func @main")
    assert '%ids: tensor<4x8xi64> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}' in head
    assert "(tensor<4x8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {}]>})" in head
    assert parse_text(str(module), "text").is_structurally_equivalent(module.op)
    assert parse_text(module.text(generic=True), "text").is_structurally_equivalent(module.op)


def test_layouts_of_what_submodules_give_are_constraints() -> None:
    plan = {"blocks.0.norm": SequenceParallel(), "blocks.1.up": ColwiseParallel(output_layouts=Replicate())}
    text = str(compiled(plan))
    assert text.count("sdy.sharding_constraint") == 2
    assert '<{sharding = #sdy.sharding<@mesh, [{?}, {"tensor", ?}, {?}]>}> : (tensor<4x8x8xf32>)' in text
    assert '<{sharding = #sdy.sharding<@mesh, [{?}, {?}, {?}], replicated={"tensor"}>}> : (tensor<4x8x16xf32>)' in text


def test_weights_that_are_whole_are_split_as_fsdp_does() -> None:
    module = compiled(Plan({"blocks.*.up": ColwiseParallel()}, fsdp="data"))
    assert '[{"tensor"}, {"data"}]' in line(module, "dense_resource<blocks.0.up.weight>")
    assert '[{"data"}, {}]' in line(module, "dense_resource<blocks.0.down.weight>")
    assert '[{"data"}]' in line(module, "dense_resource<blocks.0.norm.bias>")


def test_placements_of_parameters_and_inputs_by_axis() -> None:
    plan = Plan({"embedding": {"weight": {"data": Shard(0), "tensor": Shard(0)}}}, inputs={"ids": Replicate()})
    module = compiled(plan)
    assert '[{"data", "tensor"}, {}]' in line(module, "dense_resource<embedding.weight>")
    assert "%ids: tensor<4x8xi64> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>}" in line(module, "func.func @main")


def test_a_device_mesh_says_its_axes() -> None:
    mesh = SimpleNamespace(mesh=torch.arange(8).reshape(2, 4), mesh_dim_names=("data", "tensor"))
    assert axes_of(mesh) == MESH
    assert axes_of({"x": 3}) == {"x": 3}
    with pytest.raises(TypeError, match="mesh_dim_names"):
        axes_of(SimpleNamespace(mesh=torch.arange(8), mesh_dim_names=None))


@pytest.mark.parametrize(
    "plan, mesh, message",
    [
        ({"blocks.*.left": ColwiseParallel()}, MESH, r"names 'blocks\.\*\.left', and the model has no such submodule"),
        ({"blocks.*.norm": ColwiseParallel()}, MESH, "columns and rows are those of Linear and Embedding"),
        ({"blocks.*.up": ColwiseParallel()}, {"tensor": 3}, "dim 0 of size 16 cannot be split into 3 equal parts"),
        (Plan(axis="model"), MESH, "the mesh has no axis 'model'; it has data, tensor"),
        ({"embedding": {"weight": {"x": Shard(0)}}}, MESH, "the mesh has no axis 'x'"),
        ({"embedding": {"weight": Shard(5)}}, MESH, "has 2 dims, and the plan splits dim 5"),
        ({"embedding": {"weight": 3}}, MESH, "a placement is Shard"),
        ({}, {"data": 8}, "'ids': dim 0 of size 4 cannot be split into 8 equal parts"),
        ({}, {}, "at least one axis"),
        ({"embedding": RowwiseParallel()}, None, "give the mesh too"),
        (
            Plan(parameters={"head.weight": Shard(0)}),
            MESH,
            r"names the parameter 'head\.weight', and the model has none",
        ),
    ],
)
def test_plans_that_cannot_be(plan: Any, mesh: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        compiled(plan, mesh)


def test_programs_over_many_devices_are_static_stablehlo() -> None:
    with pytest.raises(ValueError, match="are in StableHLO, not linalg-on-tensors"):
        compiled({}, output_type="linalg-on-tensors")
    with pytest.raises(ValueError, match="leave dynamic_shapes out"):
        compiled({}, dynamic_shapes=({0: torch.export.Dim.AUTO},))


@pytest.mark.engine
def test_one_device_passes_over_shardings() -> None:
    torch.manual_seed(0)
    model, ids = Model(), torch.randint(0, 32, (4, 8))
    plan = {"blocks.*.up": ColwiseParallel(), "blocks.*.norm": SequenceParallel()}
    module = flambeau.compile(model, (ids,), output_type="stablehlo", mesh=MESH, plan=plan)
    one = {"data": 1, "tensor": 1}
    for run in (flambeau.load(module, profile="quick"), flambeau.load(module, engine="xla", mesh=one)):
        with torch.no_grad():
            assert torch.allclose(run(ids), model(ids), atol=1e-6)
    with pytest.raises(EngineError, match=r"has the axes data, tensor, and is to be laid out over x"):
        flambeau.load(module, engine="xla", mesh={"x": 2})
    with pytest.raises(EngineError, match=r"over 4096 devices \(data=1024, tensor=4\), and there are \d+"):
        flambeau.load(module, engine="xla", mesh={"data": 1024, "tensor": 4})


class TestParallelized:
    """Models that PyTorch's own functions have split, and styles for what submodules take and give."""

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def mesh(cls) -> Any:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
        yield init_device_mesh("cpu", (2, 4), mesh_dim_names=("data", "tensor"))
        dist.destroy_process_group()

    def split(self, mesh: Any) -> Any:
        styles = {"norm": SequenceParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
        return parallelize_module(Block(), mesh["tensor"], styles)

    def test_placements_of_dtensors_are_the_plan(self, mesh: Any) -> None:
        model, x = self.split(mesh), torch.ones(4, 8)
        hooks = [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()]
        module = flambeau.compile(model, (x,), output_type="stablehlo", verify=True)
        assert 'mesh = #sdy.mesh<["tensor"=4]>' in line(module, "sdy.mesh")
        assert '[{"tensor"}, {}]' in line(module, "dense_resource<up.weight> : tensor<16x8xf32>")
        assert '[{}, {"tensor"}]' in line(module, "dense_resource<down.weight> : tensor<8x16xf32>")
        assert "[{}]" in line(module, "dense_resource<norm.weight>")
        # The model stays as it was, and its parameters are those of the program.
        assert [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()] == hooks
        assert module.weights["up.weight"] is model.up.weight
        assert isinstance(model.up.weight, DTensor)
        wide = flambeau.compile(model, (x,), output_type="stablehlo", mesh=mesh)
        assert '[{"tensor"}, {}]' in line(wide, "dense_resource<up.weight>")
        assert '[{"data"}, {}]' in line(wide, "func.func @main")

    def test_fully_sharded_parameters(self, mesh: Any) -> None:
        """What FSDP splits along `data` is what is split along `tensor` before."""
        model = fully_shard(self.split(mesh), mesh=mesh["data"])
        module = flambeau.compile(model, (torch.ones(4, 8),), output_type="stablehlo")
        assert '[{"tensor", "data"}, {}]' in line(module, "dense_resource<up.weight> : tensor<16x8xf32>")
        assert '[{"data"}, {"tensor"}]' in line(module, "dense_resource<down.weight>")
        assert '[{"data"}]' in line(module, "dense_resource<norm.weight>")

    def test_whole_weights_take_the_place_of_parts(self, mesh: Any) -> None:
        whole = Block().state_dict()
        module = flambeau.compile(
            self.split(mesh), (torch.ones(4, 8),), output_type="stablehlo", plan=Plan(weights=whole)
        )
        assert all(module.weights[name] is whole[name] for name in whole)
        wrong = Plan(weights={"up.bias": torch.ones(4)})
        with pytest.raises(ValueError, match=r"the whole up\.bias is float32 of \[16\], and Plan\(weights=.*of \[4\]"):
            flambeau.compile(self.split(mesh), (torch.ones(4, 8),), output_type="stablehlo", plan=wrong)

    def test_a_parameter_on_another_mesh_is_refused(self, mesh: Any) -> None:
        with pytest.raises(ValueError, match=r"is on a mesh of \('tensor',\), and the program's has x"):
            flambeau.compile(self.split(mesh), (torch.ones(4, 8),), output_type="stablehlo", mesh={"x": 4})
        with pytest.raises(ValueError, match="are in StableHLO, not linalg-on-tensors"):
            flambeau.compile(self.split(mesh), (torch.ones(4, 8),))

    def test_what_submodules_take_and_give_is_constrained(self) -> None:
        whole, rows = Replicate(), Shard(1)
        plan = {
            "blocks.0": PrepareModuleInput(input_layouts=rows, desired_input_layouts=whole),
            "blocks.1": PrepareModuleOutput(output_layouts=whole, desired_output_layouts=rows),
        }
        text = str(compiled(plan))
        split = 'sharding = #sdy.sharding<@mesh, [{?}, {"tensor", ?}, {?}]>}> : (tensor<4x8x8xf32>)'
        same = 'sharding = #sdy.sharding<@mesh, [{?}, {?}, {?}], replicated={"tensor"}>}> : (tensor<4x8x8xf32>)'
        assert next(c for c in text.split("<{") if c.startswith("sharding")).startswith(split)
        assert text.count(split) == text.count(same) == 2
        both = PrepareModuleInputOutput(
            input_layouts=rows, desired_input_layouts=rows, output_layouts=rows, desired_output_layouts=rows
        )
        assert str(compiled({"blocks.0.up": both})).count("sdy.sharding_constraint") == 2
        with pytest.raises(ValueError, match="names 'head', and the model has no such submodule"):
            compiled({"head": both})
        with pytest.raises(CompileError, match="PrepareModuleInput has 2 layouts, and the submodule takes 1 arguments"):
            compiled({"blocks.0": PrepareModuleInput(input_layouts=(rows, rows), desired_input_layouts=(rows, rows))})

    def test_results_are_split_as_the_plan_says(self) -> None:
        module = compiled(Plan(results={"tensor": Shard(2)}))
        assert '(tensor<4x8x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}, {"tensor"}]>})' in str(module)
        with pytest.raises(ValueError, match="result 0: dim 0 of size 4 cannot be split into 8 equal parts"):
            compiled(Plan(results={"data": Shard(0), "tensor": Shard(0)}))
