"""Programs over eight simulated devices, in a process of their own; prints what functions of this file give, as JSON.

python tests/engines/many_devices.py tensor_parallel state
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

COUNT = int(os.environ.get("SIMULATED_DEVICES", "8"))
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={COUNT}"

import torch  # noqa: E402
from torch.distributed.tensor import Replicate, Shard  # noqa: E402
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel  # noqa: E402

import flambeau  # noqa: E402
from flambeau.distributed import Plan  # noqa: E402

LAYERS = 4
MESH = {"data": 2, "tensor": 4}
MEGATRON: dict[str, Any] = {
    "model.layers.*.self_attn.q_proj": ColwiseParallel(),
    "model.layers.*.self_attn.k_proj": ColwiseParallel(),
    "model.layers.*.self_attn.v_proj": ColwiseParallel(),
    "model.layers.*.self_attn.o_proj": RowwiseParallel(),
    "model.layers.*.mlp.gate_proj": ColwiseParallel(),
    "model.layers.*.mlp.up_proj": ColwiseParallel(),
    "model.layers.*.mlp.down_proj": RowwiseParallel(),
}


def llama() -> tuple[Any, dict[str, Any]]:
    """Build a small Llama of four layers, and its inputs."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=8,
        vocab_size=256,
        use_cache=False,
    )
    return LlamaForCausalLM(config).eval(), {"input_ids": torch.randint(0, 256, (4, 16))}


def compiled(model: Any, inputs: dict[str, Any], plan: Any, mesh: Any = MESH) -> Any:
    return flambeau.compile(model, (), inputs, output_type="stablehlo", mesh=mesh, plan=plan)


def difference(run: Any, model: Any, inputs: dict[str, Any]) -> float:
    with torch.no_grad():
        return float((run(**inputs).logits - model(**inputs).logits).abs().max())


def measured(run: Any, model: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    parts = run.partitioned()
    found = {"collectives": parts.collectives(), "bytes": parts.bytes_per_device()}
    return {"difference": difference(run, model, inputs), **found}


def tensor_parallel() -> Any:
    """Split a Llama over data and tensors, and load the same program on fewer devices."""
    model, inputs = llama()
    module = compiled(model, inputs, MEGATRON)
    result = {}
    for data, tensor in ((2, 4), (1, 4), (2, 2), (1, 2), (1, 1)):
        run = flambeau.load(module, engine="xla", mesh={"data": data, "tensor": tensor})
        key = f"{data}x{tensor}"
        result[key] = {"difference": difference(run, model, inputs)} if key == "1x1" else measured(run, model, inputs)
    result["weights"] = module.weights.nbytes
    result["split"] = sum(tensor.nbytes for name, tensor in module.weights.items() if name.endswith("proj.weight"))
    return result


def embeddings_and_sequences() -> Any:
    """Split the vocabulary and the sequence too, and gather the logits."""
    model, inputs = llama()
    plan = MEGATRON | {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Replicate()),
        "model.layers.*.input_layernorm": SequenceParallel(),
        "model.layers.*.post_attention_layernorm": SequenceParallel(),
    }
    return measured(flambeau.load(compiled(model, inputs, plan), engine="xla"), model, inputs)


def fully_sharded() -> Any:
    """Split all weights along the axis of the batch."""
    model, inputs = llama()
    inputs = {"input_ids": inputs["input_ids"].repeat(2, 1)}
    module = compiled(model, inputs, Plan(fsdp="data"), {"data": 8})
    return measured(flambeau.load(module, engine="xla"), model, inputs) | {"weights": module.weights.nbytes}


def training() -> Any:
    """Train a Llama of two layers by steps that are split over data and tensors; with FSDP too."""
    import copy

    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4,
        vocab_size=64, use_cache=False,
    )  # fmt: skip
    first, ids = LlamaForCausalLM(config), torch.randint(0, 64, (4, 8))
    targets = torch.randint(0, 64, (4, 8))

    def loss(output: Any, wanted: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(output.logits.flatten(0, 1), wanted.flatten())

    found = {}
    for name, plan in (("megatron", Plan(MEGATRON)), ("fsdp", Plan(MEGATRON, fsdp="data"))):
        model, reference = copy.deepcopy(first), copy.deepcopy(first)
        mine, theirs = (torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (model, reference))
        batch = ({"input_ids": ids}, targets)
        step = flambeau.export_train_step(model, loss, mine, batch, output_type="stablehlo", mesh=MESH, plan=plan)
        run = flambeau.load(step, engine="xla")
        losses = []
        for _ in range(4):
            theirs.zero_grad()
            expected = loss(reference(**batch[0]), targets)
            expected.backward()
            theirs.step()
            losses.append((float(run(*batch, lr=1e-2)), float(expected.detach())))
        pairs = zip(model.parameters(), reference.parameters(), strict=True)
        parts = run.partitioned()
        found[name] = {
            "losses": losses, "difference": max(float((a - b).abs().max()) for a, b in pairs),
            "collectives": parts.collectives(), "bytes": parts.bytes_per_device(), "state": step.weights.nbytes,
        }  # fmt: skip
    return found


def state() -> Any:
    """Write a buffer and raise from a check, on many devices."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)
            self.register_buffer("calls", torch.zeros(8))

        def forward(self, x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return self.linear(x)[i] + self.calls

    model = Model()
    x, i = torch.randn(4, 8), torch.tensor([1, 3])
    plan = Plan({"linear": ColwiseParallel()}, inputs={"i": Replicate(), "x": {"data": Shard(0)}})
    module = flambeau.compile(model, (x, i), output_type="stablehlo", mesh=MESH, plan=plan)
    run = flambeau.load(module, engine="xla")
    with torch.no_grad():
        model.calls.zero_()
        first, second = run(x, i), run(x, i)
        message = ""
        try:
            run(x, i + 5)
        except RuntimeError as error:
            message = str(error)
        same = torch.allclose(second - 1, first, atol=1e-6) and torch.allclose(first, model.linear(x)[i] + 1, atol=1e-6)
    return {"same": same, "calls": model.calls.tolist(), "message": message}


def one_of_two_processes() -> Any:
    """Run the Llama over the devices of two processes."""
    import jax

    number, port = int(os.environ["PROCESS"]), os.environ["PORT"]
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=number)
    model, inputs = llama()
    run = flambeau.load(compiled(model, inputs, MEGATRON), engine="xla")
    return measured(run, model, inputs) | {"local": len(jax.local_devices()), "all": len(jax.devices())}


def shard_by_shard() -> Any:
    """Load a program of two processes from its files: each reads the rows of weights that its own devices have."""
    from pathlib import Path

    import jax
    import numpy as np

    path = Path(os.environ["FOLDER"]) / f"model{os.environ['PROCESS']}.mlir"
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(4))).eval()
    x = torch.randn(2, 256)
    plan = {str(i): ColwiseParallel() for i in range(4)}
    flambeau.compile(model, (x,), output_type="stablehlo", mesh={"tensor": 8}, plan=plan).save(path)
    read, are_mapped = 0, True
    make = jax.make_array_from_callback

    def counting(shape: Any, sharding: Any, part: Any) -> Any:
        def counted(index: Any) -> Any:
            nonlocal read, are_mapped
            found = part(index)
            read += found.nbytes
            base = found
            while isinstance(getattr(base, "base", None), np.ndarray):
                base = base.base
            are_mapped = are_mapped and isinstance(base, np.memmap)
            return found

        return make(shape, sharding, counted)

    jax.make_array_from_callback = counting
    try:
        run = flambeau.load(path, engine="xla")
    finally:
        jax.make_array_from_callback = make
    with torch.no_grad():
        difference = float((run(x) - model(x)).abs().max())
    return {
        "read": read, "are_mapped": are_mapped, "weights": sum(w.nbytes for w in run.weights.values()),
        "bytes": run.partitioned().bytes_per_device(), "difference": difference,
    }  # fmt: skip


def own_parts() -> Any:
    """Run a model whose parameters are DTensors of two ranks: each process gives its devices the part that it has."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    rank = int(os.environ["PROCESS"])
    store = dist.FileStore(os.path.join(os.environ["FOLDER"], "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8)), torch.randn(4, 8)
    with torch.no_grad():
        expected = model(x)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("rank",))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    module = flambeau.compile(model, (x,), output_type="stablehlo", mesh={"rank": 2, "device": 4})
    run = flambeau.load(module, engine="xla")
    with torch.no_grad():
        difference = float((run(x) - expected).abs().max())
    dist.destroy_process_group()
    return {"difference": difference, "collectives": run.partitioned().collectives()}


if __name__ == "__main__":
    print(json.dumps({name: globals()[name]() for name in sys.argv[1:]}))
