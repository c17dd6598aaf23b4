"""Branches and loops of static programs, in the words of the target alone, and that they compute what PyTorch does."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import torch
from frontends.script_models import BeamStep, Generator, LanguageModel
from frontends.test_fx_control_flow import branch, counted, nested
from frontends.test_torchscript import Conditional, EarlyReturn
from support import Together, assert_same
from torch import Tensor
from torch.utils import _pytree as pytree

import flambeau


def both(x: Tensor, n: Tensor) -> Tensor:
    i = 0
    while i < int(n) and bool(x.sum() < 100.0):
        x = x + 1
        i += 1
    return x + i


def either(x: Tensor, n: Tensor) -> Tensor:
    i = 0
    while (i < int(n) and bool(x.sum() < 100.0)) or (i < 2 and not bool(x.max() > 1000.0)):
        x = x + i
        i += 1
    return x


def breaks(x: Tensor, n: Tensor) -> Tensor:
    k = 0
    for _ in range(int(n)):
        if bool(x.sum() > 12.0):
            break
        if bool(x[0] == 2.0):
            x = x + 2
            continue
        x = x + 1
        k += 1
    return x + k


def flags(x: Tensor, n: Tensor) -> Tensor:
    was_big, was_odd = False, False
    for _ in range(int(n)):
        was_big = was_big or bool(x.sum() > 7.0)
        was_odd = not was_odd
        x = x + 1
    if was_odd:
        x = x + 3
    return x + int(was_big)


def swaps(x: Tensor, n: Tensor) -> Tensor:
    a, b, p, q = x + 1, x * 2, False, True
    for i in range(int(n)):
        a, b = b, a
        p, q = q, p
        if p:
            a = a + i
    if q:
        a = a * 3
    return a - b


def triangle(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n)):
        for j in range(i):
            k = 0
            while bool(x.sum() < 40.0) and k < 3:
                x = x + k + j
                k += 1
        x = x - 1
    return x


def two_loops(x: Tensor, n: Tensor) -> tuple[Tensor, Tensor]:
    a, b = x + 1, x * 2
    for _ in range(int(n)):
        a = a.cumsum(0)
    for _ in range(int(n)):
        b = b.flip(0).cumsum(0)
    return a, b


def written(x: Tensor, n: Tensor) -> Tensor:
    for i in range(int(n)):
        if bool(x[i % 3] > 1.0):
            x[i % 3] += i
    return x


def halves(x: Tensor, n: Tensor) -> Tensor:
    total = 0.5
    for i in range(int(n)):
        total = total * 2 + i
    return x * total


IN_PYTHON: list[Callable[..., Any]] = [both, either, breaks, flags, swaps, triangle, two_loops, written]
"""Programs of TorchScript on a tensor and a number of turns, which the data have."""
WIDE: list[Callable[..., Any]] = [halves]
"""Those that carry Python floats, which have 64 bits."""
MODELS: dict[str, tuple[torch.nn.Module, tuple[Tensor, ...]]] = {
    "generator": (Generator(), (torch.ones(2, 6), torch.tensor(3))),
    "language model": (LanguageModel(), (torch.ones(2, 5, dtype=torch.int64),)),
    "beam step": (BeamStep(), (torch.ones(4), torch.ones(4, 6))),
    "conditional": (Conditional(), (torch.ones(3),)),
    "early return": (EarlyReturn(), (torch.ones(3),)),
}
EXPORTED: list[Callable[..., Any]] = [branch, counted, nested]
STARTS = ((0.0, 5), (0.0, 0), (100.0, 5), (31.0, 7), (-4.0, 2), (1.0, 1))
HOLDS_TOGETHER = ("func", "builtin")

NAMES = [*(f.__name__ for f in (*IN_PYTHON, *WIDE)), *MODELS, *(f"exported {f.__name__}" for f in EXPORTED)]


@cache
def compiled(name: str, target: str) -> flambeau.Module:
    """Compile the program of that name to a target."""
    if name in MODELS:
        model, args = MODELS[name]
        return flambeau.compile(model.eval(), args, frontend="script", output_type=target, verify=True)
    if name.startswith("exported "):
        (function,) = (f for f in EXPORTED if name.endswith(f" {f.__name__}"))
        return flambeau.compile(function, (torch.ones(4),), output_type=target, verify=True)
    (function,) = (f for f in (*IN_PYTHON, *WIDE) if f.__name__ == name)
    args = torch.zeros(3), torch.tensor(5)
    return flambeau.compile(function, args, frontend="script", output_type=target, verify=True)


def foreign(module: flambeau.Module, *own: str) -> set[str]:
    """Find the ops of a module that are of other dialects."""
    return {op.name for op in module.op.walk() if op.name.split(".")[0] not in (*own, *HOLDS_TOGETHER)}


@pytest.mark.parametrize("name", NAMES)
def test_a_static_program_is_a_portable_artefact(name: str) -> None:
    mlir = pytest.importorskip("jax.extend.mlir")
    module = compiled(name, "stablehlo")
    assert not foreign(module, "stablehlo", "chlo")
    assert mlir.serialize_portable_artifact(module.text(weights="literal"), "1.10.0")


def test_a_branch_and_a_loop_of_stablehlo() -> None:
    names = {op.name for op in compiled("exported nested", "stablehlo").op.walk()}
    assert {"stablehlo.if", "stablehlo.while"} <= names


@pytest.mark.parametrize("name", NAMES)
def test_a_static_program_is_tosa_and_checks(name: str) -> None:
    """Python's floats have 64 bits, which TOSA has not: a program that carries them keeps its scalars."""
    module = compiled(name, "tosa")
    found = foreign(module, "tosa")
    assert "scf.for" in found if name in {f.__name__ for f in WIDE} else found <= {"cf.assert", "tensor.extract"}
    constants = [op for op in module.op.walk() if op.name in ("tosa.const", "tosa.const_shape")]
    assert all(op.results[0].uses for op in constants), "a region has the constants that it needs, and no others"


VALIDATION = (
    "builtin.module(tosa-attach-target{specification_version=1.1.draft level=none profiles=pro_int,pro_fp "
    "extensions=controlflow,int64},tosa-validate{strict-op-spec-alignment})"
)


@pytest.mark.peer
@pytest.mark.parametrize("name", NAMES)
def test_mlir_finds_the_program_in_accordance_with_the_specification_of_tosa(name: str) -> None:
    """The specification wants regions that use nothing from outside, and MLIR's validation checks that."""
    from torch_mlir.ir import Context, Module
    from torch_mlir.passmanager import PassManager

    module = compiled(name, "tosa")
    for generic in (True, False):
        with Context():
            parsed = Module.parse(module.text(weights="inline", generic=generic))
            assert parsed.operation.verify()
            PassManager.parse(VALIDATION).run(parsed.operation)


def test_a_program_with_open_sizes_keeps_scalars() -> None:
    module = flambeau.compile(
        branch, (torch.ones(4),), dynamic_shapes=({0: torch.export.Dim("n", min=2)},), output_type="stablehlo"
    )
    assert "scf.if" in foreign(module, "stablehlo")


def test_a_check_in_a_branch_is_a_composite() -> None:
    def guarded(x: Tensor, i: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            x = x[i]
        return x

    args = torch.ones(3), torch.tensor([0, 2, 1])
    module = flambeau.compile(guarded, args, frontend="script", output_type="stablehlo", verify=True)
    assert not foreign(module, "stablehlo")
    (check,) = (op for op in module.op.walk() if op.name == "stablehlo.composite")
    parent = check.parent_op()
    assert parent is not None
    assert parent.name == "stablehlo.if"


RUN = [*(f.__name__ for f in IN_PYTHON), *MODELS]
ON_IREE = {t: Together({name: partial(compiled, name, t) for name in RUN}) for t in ("stablehlo", "tosa")}


@pytest.mark.engine
@pytest.mark.parametrize("target", ["stablehlo", "tosa"])
@pytest.mark.parametrize("program", IN_PYTHON, ids=lambda p: p.__name__)
def test_iree_computes_what_pytorch_computes(program: Callable[..., Any], target: str) -> None:
    run = ON_IREE[target][program.__name__]
    for start, n in STARTS:
        given = [(torch.arange(3.0) + start, torch.tensor(n)) for _ in range(2)]
        assert_same(run(*given[0]), program(*given[1]), f"{start}, {n}")


@pytest.mark.engine
@pytest.mark.parametrize("target", ["stablehlo", "tosa"])
@pytest.mark.parametrize("name", MODELS)
def test_iree_runs_the_models(name: str, target: str) -> None:
    (model, args), run = MODELS[name], ON_IREE[target][name]
    with torch.no_grad():
        expected = model(*(a.clone() for a in args))
    assert_same(run(*(a.clone() for a in args)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("program", [*IN_PYTHON, *WIDE], ids=lambda p: p.__name__)
def test_xla_computes_what_pytorch_computes(program: Callable[..., Any]) -> None:
    pytest.importorskip("jax")
    from lowering.stablehlo.test_jax import run

    text = compiled(program.__name__, "stablehlo").text(weights="literal", generic=True)
    for start, n in STARTS[:4]:
        given = torch.arange(3.0) + start, torch.tensor(n)
        results = run(text, given)
        expected = pytree.tree_leaves(program(*given))
        # What is written is a result too, behind the others.
        assert_same(results[: len(expected)], expected, f"{start}, {n}")
