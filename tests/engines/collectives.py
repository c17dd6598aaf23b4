"""Models that call collectives themselves, over eight simulated devices; prints what functions of this file give.

python tests/engines/collectives.py each_of_them megatron

They are compared with what each rank computes, which is written out here in plain PyTorch.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import flambeau
from flambeau.distributed import Plan

Parts = list[torch.Tensor]


def of_ranks(parts: Parts, f: Callable[[torch.Tensor], Any]) -> Parts:
    """Give all ranks the same."""
    return [f(torch.stack(parts))] * len(parts)


def each(x: torch.Tensor, group: Any, size: int) -> list[torch.Tensor]:
    """Call every collective."""
    turned = [*range(1, size), 0]
    return [
        funcol.all_reduce(x, "sum", group),
        funcol.all_reduce(x, "avg", group),
        funcol.all_reduce(x, "min", group),
        funcol.all_reduce(x, "max", group),
        funcol.all_reduce(x, "product", group),
        funcol.all_gather_tensor(x, 0, group),
        funcol.all_gather_tensor(x, 1, group),
        funcol.reduce_scatter_tensor(x, "sum", 0, group),
        funcol.reduce_scatter_tensor(x, "avg", 1, group),
        funcol.all_to_all_single(x, None, None, group),
        funcol.broadcast(x, size - 1, group),
        funcol.permute_tensor(x, turned, group),
        funcol.permute_tensor(x, turned[::-1], group),
        *funcol.all_reduce_coalesced([x, x + 1], "sum", group),
    ]


def expected(parts: Parts) -> list[Parts]:
    """Compute what each rank of a group has after each of these collectives."""
    size = len(parts)
    total = torch.stack(parts).sum(0)
    turned = [*range(1, size), 0]
    return [
        of_ranks(parts, lambda x: x.sum(0)),
        of_ranks(parts, lambda x: x.mean(0)),
        of_ranks(parts, lambda x: x.amin(0)),
        of_ranks(parts, lambda x: x.amax(0)),
        of_ranks(parts, lambda x: x.prod(0)),
        [torch.cat(parts, 0)] * size,
        [torch.cat(parts, 1)] * size,
        list(total.chunk(size, 0)),
        list((total / size).chunk(size, 1)),
        [torch.cat([p.chunk(size, 0)[rank] for p in parts]) for rank in range(size)],
        [parts[-1]] * size,
        [parts[turned.index(rank)] for rank in range(size)],
        [parts[turned[::-1].index(rank)] for rank in range(size)],
        [total] * size,
        [total + size] * size,
    ]


class Calls(nn.Module):
    def __init__(self, group: Any, size: int) -> None:
        super().__init__()
        self.group, self.size = group, size

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return each(x, self.group, self.size)


def process_group(size: int) -> None:
    """Be rank 0 of a group that exchanges nothing: it is there for tracing."""
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)


def each_of_them() -> Any:
    """Compare all collectives over 2, 4 and 8 devices."""
    wrong = []
    for size in (2, 4, 8):
        process_group(size)
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tensor",))
        x = torch.randn(size * size, size)
        plan = Plan(inputs={"x": Shard(0)}, results=Shard(0))
        model = Calls((mesh, 0), size)
        module = flambeau.compile(model, (x[:size],), output_type="stablehlo", mesh=mesh, plan=plan, verify=True)
        got = flambeau.load(module, engine="xla")(x)
        for i, (whole, parts) in enumerate(zip(got, expected(list(x.chunk(size))), strict=True)):
            if not torch.allclose(whole, torch.cat(parts), atol=1e-5):
                wrong.append([size, i])
    return wrong


def along_axes() -> Any:
    """Compare collectives along each axis of a mesh, and along both: the groups are found by their ranks."""
    process_group(8)
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("data", "tensor"))

    class Sums(nn.Module):
        def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
            groups = ((mesh, 0), (mesh, 1), dist.group.WORLD)
            return [funcol.all_gather_tensor(x, 0, group) for group in groups]

    both = {"data": Shard(0), "tensor": Shard(0)}
    x = torch.arange(16.0).reshape(8, 2)
    plan = Plan(inputs={"x": both}, results=both)
    differences = []
    for said in (mesh, {"data": 2, "tensor": 4}):
        module = flambeau.compile(Sums(), (x[:1],), output_type="stablehlo", mesh=said, plan=plan)
        got = flambeau.load(module, engine="xla")(x)
        grid = x.reshape(2, 4, 2)
        wanted = [
            grid.transpose(0, 1)[None].expand(2, 4, 2, 2).reshape(16, 2),
            grid[:, None].expand(2, 4, 4, 2).reshape(32, 2),
            x[None].expand(8, 8, 2).reshape(64, 2),
        ]
        differences += [float((a - b).abs().max()) for a, b in zip(got, wanted, strict=True)]
    return differences


class Mlp(nn.Module):
    """Megatron's MLP as one rank has it: columns of the first matrix, rows of the second, and one all-reduce."""

    def __init__(self, size: int, group: Any) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 64 // size), nn.Linear(64 // size, 16, bias=False)
        self.bias = nn.Parameter(torch.zeros(16))
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.up(x))
        return funcol.all_reduce(self.down(hidden), "sum", self.group) + self.bias


def megatron() -> Any:
    """Split an MLP by hand over 2, 4 and 8 devices, with the weights of the whole one."""
    torch.manual_seed(0)
    whole, x = Mlp(1, None), torch.randn(4, 16)
    nn.init.normal_(whole.bias)
    with torch.no_grad():
        wanted = whole.down(torch.nn.functional.gelu(whole.up(x))) + whole.bias
    found = {}
    for size in (2, 4, 8):
        process_group(8)
        mesh = init_device_mesh("cpu", (8 // size, size), mesh_dim_names=("data", "tensor"))
        styles = {"up": {"weight": Shard(0), "bias": Shard(0)}, "down": {"weight": Shard(1)}}
        plan = Plan(styles, weights=whole.state_dict())
        local = x[: len(x) * size // 8]
        module = flambeau.compile(Mlp(size, (mesh, 1)), (local,), output_type="stablehlo", mesh=mesh, plan=plan)
        run = flambeau.load(module, engine="xla")
        parts = run.partitioned()
        with torch.no_grad():
            difference = float((run(x) - wanted).abs().max())
        found[size] = {
            "difference": difference, "collectives": parts.collectives(), "bytes": parts.bytes_per_device(),
            "weights": module.weights.nbytes,
        }  # fmt: skip
    return found


def checks() -> Any:
    """Fail on one device only: the program says so, and what it says is right."""
    process_group(4)
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tensor",))

    class Reads(nn.Module):
        def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            return funcol.all_reduce(x[i], "sum", (mesh, 0))

    plan = Plan(inputs={"x": Shard(0), "i": Shard(0)})
    x, i = torch.randn(8, 3), torch.tensor([0, 1, 1, 0])
    module = flambeau.compile(Reads(), (x[:2], i[:1]), output_type="stablehlo", mesh=mesh, plan=plan)
    run = flambeau.load(module, engine="xla")
    difference = float((run(x, i) - (x[0] + x[3] + x[5] + x[6])).abs().max())
    message = ""
    try:
        run(x, torch.tensor([0, 1, 7, 0]))
    except RuntimeError as error:
        message = str(error)
    return {"difference": difference, "message": message}


def in_place() -> Any:
    """Call `torch.distributed.all_reduce`, which writes its argument."""
    process_group(4)
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tensor",))

    class Sums(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            dist.all_reduce(x)
            return x * 2

    x = torch.randn(8, 3)
    module = flambeau.compile(
        Sums(), (x[:2],), output_type="stablehlo", mesh=mesh, plan=Plan(inputs={"x": Shard(0)}, results=Shard(0))
    )
    total = x.reshape(4, 2, 3).sum(0).repeat(4, 1)
    got = flambeau.load(module, engine="xla")(x)
    return [float((got - 2 * total).abs().max()), float((x - total).abs().max())]


def split_results() -> Any:
    """Leave results on their devices."""
    process_group(8)
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("data", "tensor"))
    linear, x = nn.Linear(8, 16), torch.randn(4, 8)
    plan = Plan({"": {"weight": Shard(0), "bias": Shard(0)}}, results={"data": Shard(0), "tensor": Shard(1)})
    module = flambeau.compile(linear, (x,), output_type="stablehlo", mesh=mesh, plan=plan)
    run = flambeau.load(module, engine="xla", gather=False)
    with torch.no_grad():
        got, wanted = run(x), linear(x)
        whole = flambeau.load(module, engine="xla")(x)
    parts = {str(part.index): list(part.data.shape) for part in got.addressable_shards}
    return {
        "shape": list(got.shape), "parts": parts, "collectives": run.partitioned().collectives(),
        "difference": max(
            float((torch.from_numpy(np.array(got)) - wanted).abs().max()),
            float((whole - wanted).abs().max()),
        ),
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps({name: globals()[name]() for name in sys.argv[1:]}))
