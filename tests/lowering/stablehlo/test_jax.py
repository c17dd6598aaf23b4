"""What JAX makes of our StableHLO: its MLIR reads and verifies the text, and XLA computes what PyTorch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from support import assert_same
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import flambeau

jax = pytest.importorskip("jax")

from jax.extend import backend, mlir  # noqa: E402
from jax.interpreters.mlir import make_ir_context  # noqa: E402
from jaxlib.mlir import ir  # noqa: E402


class Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


class Lookup(nn.Module):
    """Weights of several types, one of them too long to be written number by number."""

    def __init__(self) -> None:
        super().__init__()
        numbers = torch.arange(200)
        self.register_buffer("bools", numbers % 3 == 0)
        self.register_buffer("halves", (numbers / 7).to(torch.float16))
        self.register_buffer("brains", (numbers / 7).to(torch.bfloat16))
        self.register_buffer("doubles", numbers / torch.tensor(7, dtype=torch.float64))
        self.register_buffer("integers", numbers.pow(2).to(torch.int32))
        self.register_buffer("pairs", torch.complex(numbers / 7, -numbers / 3))
        self.register_buffer("one", torch.tensor(0.1))

    def forward(self, i: Tensor) -> list[Tensor]:
        return [b[i] for b in (self.bools, self.halves, self.brains, self.doubles, self.integers, self.pairs)] + [
            self.one
        ]


class Case(NamedTuple):
    model: nn.Module
    args: tuple[Tensor, ...]
    dynamic: tuple[Any, ...] | None = None
    keep: tuple[str, ...] = ()


def ramp(*shape: int) -> Tensor:
    return torch.arange(float(torch.Size(shape).numel())).mul(0.7).sin().reshape(shape)


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def pooled() -> nn.Module:
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 6, 3, stride=2, padding=1, groups=3)
    return nn.Sequential(convolution, nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)).eval()


def attention(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, x * 2, x + 1, is_causal=True)


def rows(x: Tensor, i: Tensor, new: Tensor) -> list[Tensor]:
    at = i[:, None].expand(-1, 8)
    return [
        x[i],
        x.gather(0, at),
        x.index_add(0, i, new),
        x.scatter_reduce(0, at, new, "amax"),
        x.index_copy(0, i, new),
    ]


def windows(x: Tensor) -> list[Tensor]:
    return [F.avg_pool2d(x, 2, padding=1), F.max_pool2d(x, 2, stride=1), x.cumsum(2), F.adaptive_avg_pool2d(x, (2, 3))]


def ordered(x: Tensor) -> list[Any]:
    return [x.sort(-1), x.topk(3, -1), x.argmax(1), x.var(0), x.logsumexp(1), (x > 0).any(1), x.double().erf()]


def branch(x: Tensor) -> Tensor:
    return torch.where(x > 0, x.pow(2), x.exp()).clamp(-1, 1).to(torch.int64) // 2


BATCH = torch.export.Dim("batch")
KEPT = ("aten.layer_norm", "aten.gelu", "aten.scaled_dot_product_attention")

STATIC = {
    "mlp": Case(mlp(), (ramp(2, 3, 8),)),
    "convolution and pool": Case(pooled(), (ramp(2, 3, 16, 16),)),
    "attention": Case(Function(attention), (ramp(2, 2, 5, 8),)),
    "gather and scatter": Case(Function(rows), (ramp(5, 8), torch.tensor([0, 3, 2]), ramp(3, 8) * 2)),
    "windows": Case(Function(windows), (ramp(1, 2, 6, 8),)),
    "sort": Case(Function(ordered), (ramp(4, 6),)),
    "pointwise": Case(Function(branch), (ramp(4, 6) * 3,)),
    "weights": Case(Lookup(), (torch.tensor([0, 199, 3, 100]),)),
    "composites": Case(mlp(), (ramp(2, 3, 8),), keep=KEPT),
    "a composite of attention": Case(Function(attention), (ramp(2, 2, 5, 8),), keep=KEPT),
}
DYNAMIC = {
    "dynamic batch": Case(mlp(), (ramp(2, 3, 8),), ({0: BATCH},)),
    "dynamic composites": Case(mlp(), (ramp(2, 3, 8),), ({0: BATCH},), keep=KEPT),
    "dynamic attention": Case(Function(attention), (ramp(2, 2, 5, 8),), (({0: BATCH},),)),
}


def lowered(case: Case) -> flambeau.Module:
    return flambeau.compile(
        case.model, case.args, output_type="stablehlo", dynamic_shapes=case.dynamic, keep=case.keep, verify=True
    )


def run(text: str, args: tuple[Tensor, ...]) -> list[Tensor]:
    """Compile for XLA's CPU and call."""
    client = backend.get_backend("cpu")
    options = backend.get_compile_options(num_replicas=1, num_partitions=1)
    program = client.compile_and_load(text, client.local_devices()[:1], options)
    # Without this, 64-bit numbers become 32-bit ones.
    with jax.enable_x64(True):
        inputs = [jax.dlpack.from_dlpack(a.contiguous()) for a in args]
        results = program.execute_sharded(inputs).disassemble_into_single_device_arrays()
        return [torch.from_numpy(numpy_of(r[0])) if r[0].dtype == bool else torch.from_dlpack(r[0]) for r in results]


def numpy_of(array: Any) -> Any:
    import numpy as np

    return np.array(array)


@pytest.mark.parametrize("name", [*STATIC, *DYNAMIC])
def test_jax_reads_and_verifies_every_form(name: str) -> None:
    module = lowered((STATIC | DYNAMIC)[name])
    printed = set()
    for generic in (True, False):
        for weights in ("inline", "literal"):
            with make_ir_context() as context:
                assert not context.allow_unregistered_dialects
                parsed = ir.Module.parse(module.text(weights=weights, generic=generic))
                assert parsed.operation.verify()
                printed.add((weights, str(parsed)))
    assert len({w for w, _ in printed}) == len(printed), "the pretty and the generic form are one program"


@pytest.mark.parametrize("name", STATIC)
def test_xla_computes_what_pytorch_computes(name: str) -> None:
    case = STATIC[name]
    text = lowered(case).text(weights="literal", generic=True)
    with torch.no_grad():
        expected = pytree.tree_leaves(case.model(*case.args))
    assert_same(run(text, case.args), expected)


def test_composites_survive_a_portable_artefact() -> None:
    """StableHLO's own format for programs that outlive a version has them with their attributes."""
    text = lowered(STATIC["composites"]).text(weights="literal")
    artefact = mlir.serialize_portable_artifact(text, "1.10.0")
    assert b"aten.layer_norm" in artefact
    with make_ir_context():
        again = str(mlir.deserialize_portable_artifact(artefact))
    assert 'stablehlo.composite "aten.gelu"' in again
    assert 'approximate = "none"' in again
    assert "normalized_shape = [16]" in again
