"""Collectives of a model's own: how they look in the dialects, which devices they are among, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import flambeau
from flambeau import CompileError
from flambeau.distributed import Plan
from flambeau.engines import EngineError
from flambeau.files import parse_text
from flambeau.lowering.stablehlo.groups import axes_along, groups_along

MESH = {"data": 2, "tensor": 4}


@pytest.fixture(autouse=True, scope="module")
def _process_group() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def mesh() -> Any:
    return init_device_mesh("cpu", (2, 4), mesh_dim_names=("data", "tensor"))


class Model(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x * self.weight)


def compiled(function: Any, mesh: Any = None, plan: Any = None, **options: Any) -> flambeau.Module:
    options = {"output_type": "stablehlo", "verify": True, **options}
    return flambeau.compile(Model(function), (torch.ones(4, 2),), mesh=mesh, plan=plan, **options)


def test_they_are_operators_of_the_torch_dialect(mesh: Any) -> None:
    text = str(compiled(lambda x: funcol.all_reduce(x, "sum", (mesh, 1)), output_type="torch"))
    assert 'torch.operator "torch._c10d_functional.all_reduce"' in text
    assert 'torch.operator "torch._c10d_functional.wait_tensor"' in text
    text = str(compiled(lambda x: funcol.permute_tensor(x, [1, 2, 3, 0], (mesh, 1)), output_type="torch"))
    assert 'torch.operator "torch.flambeau.permute_tensor"' in text


def test_they_are_a_manual_computation_of_shardy(mesh: Any) -> None:
    plan = Plan(inputs={"x": {"tensor": Shard(1)}})
    module = compiled(lambda x: funcol.all_reduce(x, "sum", (mesh, 1)), mesh, plan)
    text = str(module)
    assert '%x: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"tensor"}]>}' in text
    assert "-> (tensor<4x2xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>})" in text
    assert '"sdy.manual_computation"' in text
    assert 'manual_axes = #sdy<manual_axes {"data", "tensor"}>' in text
    assert "replica_groups = dense<[[0, 1, 2, 3], [4, 5, 6, 7]]>" in text
    assert parse_text(text, "text").is_structurally_equivalent(module.op)
    assert parse_text(module.text(generic=True), "text").is_structurally_equivalent(module.op)


def test_groups_are_lines_of_a_mesh() -> None:
    assert groups_along(MESH, ["tensor"]) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert groups_along(MESH, ["data"]) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert groups_along(MESH, ["tensor", "data"]) == [[0, 4, 1, 5, 2, 6, 3, 7]]
    assert groups_along(MESH, []) == [[i] for i in range(8)]
    assert axes_along(MESH, [1, 5]) == ("data",)
    assert axes_along(MESH, list(range(8))) == ("data", "tensor")
    assert axes_along(MESH, [0, 4, 1, 5, 2, 6, 3, 7]) == ("tensor", "data")
    assert axes_along(MESH, [0, 1]) is None
    assert axes_along({"data": 1, "tensor": 4}, [0]) == ()


def test_the_plan_says_where_a_group_is() -> None:
    group = dist.new_group([0, 1])

    def sums(x: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(x, "sum", group)

    with pytest.raises(CompileError, match=r"of the ranks \[0, 1\], which are no line of the mesh data=2, tensor=4"):
        compiled(sums, MESH)
    for key in (group, group.group_name):
        text = str(compiled(sums, MESH, Plan(groups={key: "data"}, inputs={"x": Replicate()})))
        assert "replica_groups = dense<[[0, 4], [1, 5], [2, 6], [3, 7]]>" in text
    with pytest.raises(ValueError, match="the mesh has no axis 'model'; it has data, tensor"):
        compiled(sums, MESH, Plan(groups={group: "model"}))


@pytest.mark.parametrize("target", ["linalg-on-tensors", "tosa"])
def test_other_targets_refuse_them(mesh: Any, target: str) -> None:
    with pytest.raises(CompileError, match=r"exchanges tensors between devices.*(?s:.)*test_collectives\.py") as error:
        compiled(lambda x: funcol.all_reduce(x, "sum", (mesh, 1)), output_type=target)
    assert 'output_type="stablehlo"' in str(error.value)


def test_without_a_mesh_nobody_knows_the_devices(mesh: Any) -> None:
    with pytest.raises(CompileError, match="nobody says which devices these are"):
        compiled(lambda x: funcol.all_reduce(x, "sum", (mesh, 1)))


def test_a_result_that_differs_is_put_together_as_the_plan_says(mesh: Any) -> None:
    def parts(x: torch.Tensor) -> torch.Tensor:
        return funcol.reduce_scatter_tensor(x, "sum", 0, (mesh, 1))

    whole = {"x": {"data": Replicate(), "tensor": Replicate()}}
    with pytest.raises(CompileError, match=r"result 0 is not the same on all devices: it differs along 'tensor'"):
        compiled(parts, mesh, Plan(inputs=whole))
    module = compiled(parts, mesh, Plan(inputs=whole, results=Shard(0)))
    assert str(module.signatures["main"].results[0]) == "4x2xfloat32"
    # Along the axis of the batch it is put together as inputs are split.
    module = compiled(lambda x: funcol.all_reduce(x, "sum", (mesh, 1)), mesh)
    assert str(module.signatures["main"].arguments[0].spec) == "8x2xfloat32"
    assert str(module.signatures["main"].results[0]) == "8x2xfloat32"


def test_parts_of_weights_need_the_whole(mesh: Any) -> None:
    def sums(x: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(x, "sum", (mesh, 1))

    styles = {"": {"weight": Shard(0)}}
    with pytest.raises(ValueError, match=r"weight is the part of one device: give the whole one, \[8\]"):
        compiled(sums, mesh, Plan(styles))
    with pytest.raises(ValueError, match=r"the whole weight is float32 of \[8\]"):
        compiled(sums, mesh, Plan(styles, weights={"weight": torch.ones(3)}))
    module = compiled(sums, mesh, Plan(styles, weights={"weight": torch.ones(8)}))
    assert module.weights["weight"].shape == (8,)


def test_what_one_rank_recorded_is_refused(mesh: Any) -> None:
    program = torch.export.export(
        Model(lambda x: funcol.permute_tensor(x[:, 0], [1, 2, 3, 0], (mesh, 1))), (torch.ones(4, 2),)
    )
    with pytest.raises(CompileError, match="other devices have other sizes"):
        flambeau.compile(program, output_type="stablehlo", mesh=mesh)


def test_one_device_runs_a_mesh_of_one_and_no_other(mesh: Any) -> None:
    def sums(x: torch.Tensor) -> torch.Tensor:
        return funcol.all_reduce(x, "avg", (mesh, 1))

    x = torch.randn(4, 2)
    one = compiled(sums, {"tensor": 1}, Plan(groups={mesh.get_group(1): "tensor"}))
    for run in (flambeau.load(one, profile="quick"), flambeau.load(one, engine="xla")):
        with torch.no_grad():
            assert torch.equal(run(x), x)
    many = compiled(sums, mesh)
    with pytest.raises(CompileError, match="exchanges tensors between 8 devices, and cannot run on one"):
        flambeau.load(many)
    with pytest.raises(EngineError, match="compile it for another mesh"):
        flambeau.load(many, engine="xla", mesh={"data": 1, "tensor": 1})
