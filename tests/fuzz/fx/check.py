"""Whether a random FX program gives at every stage what it gives in eager PyTorch, call after call."""

from __future__ import annotations

import os
import re
import time
import warnings
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from fuzz.campaign import Outcome
from fuzz.fx.programs import Program, grow
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import flambeau
from flambeau.diagnostics import CompileError
from flambeau.engines.errors import RunError

IREE_EVERY = int(os.environ.get("FUZZ_FX_IREE", "0"))
"""Every so many programs run on IREE too; 0 for none."""

SHRINK_SECONDS = 20

REFUSALS = [
    "cannot be expressed on values",  # a write through expand, or through a view of another dtype
    "changes the shape of .* itself",
    "share, and see it as elements of different kinds",
    "gives one of them a new value, which the others do not get",
    "whose memory another tensor of the model shares",
    r"forward\(\) assigns",
    "Python looks at its value",
    "a strided view of ",
    "a write through strides into",
    "`out` does not have the shape of the result",
    "a part whose size is not known",
    "whose strides only the run time knows",
    "this op gives several views, which are not followed",
    "may have been written through an alias, and the program does not tell",  # reshape of dynamic sizes
    "sizes that only the run time knows decide if it gives a view",
]
"""Why a program may be refused."""

CALL_REFUSALS = [
    "expected a tensor",
    "share memory, and the program writes",
    "several elements at one place",
    "has size 1, for which the rank differs",
    "has size 1, for which a copy is a view or a view a copy",
    "of an argument does not have the size",
    "bind_symbolic_shape",
    "a size is not one that the program was compiled for",
    "elements where . are expected",
]
"""Why a call may be refused: PyTorch has fixed a size, or memory is shared."""

TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 5e-2, torch.float64: 1e-9}


class Different(Exception):
    """A program does not do what eager PyTorch does."""


def check_seed(seed: int) -> Outcome:
    """Check the program of a seed; a failure is made small before it is told."""
    program = grow(seed)
    on_iree = bool(IREE_EVERY) and seed % IREE_EVERY == 0
    outcome = check(program, on_iree)
    if outcome.status != "failed":
        return outcome
    program, outcome = shrink(program, outcome, on_iree)
    return replace(outcome, reason=f"{outcome.reason}\n{program.text()}")


def shrink(program: Program, outcome: Outcome, on_iree: bool) -> tuple[Program, Outcome]:
    """Find the smallest program, in some seconds, that fails in the same way."""
    end = time.monotonic() + SHRINK_SECONDS
    goes_on = True
    while goes_on:
        goes_on = False
        for candidate in program.smaller():
            if time.monotonic() > end:
                return program, outcome
            found = check(candidate, on_iree)
            if found.status == "failed" and found.kind == outcome.kind:
                program, outcome, goes_on = candidate, found, True
                break
    return program, outcome


def check(program: Program, on_iree: bool = False) -> Outcome:
    """Compare results, arguments and state after each call at each stage."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            eager = expected_calls(program)
        except Exception as error:
            return Outcome("rejected", "eager", f"{type(error).__name__}: {error}"[:200])
        try:
            return _check_stages(program, eager, on_iree)
        except Different as error:
            if depends_on_order(program, eager):
                return Outcome("rejected", "eager", "its result depends on the order of writes")
            return Outcome("failed", str(error.args[0]), str(error.args[1]))


Call = tuple[list[Any], Any, list[Tensor], list[Tensor]]
"""The leaves of a result and its structure, the arguments and the state after the call."""


def expected_calls(program: Program, mode: Any = None) -> list[Call]:
    """Run the calls in eager PyTorch, perhaps under a mode, up to the first one that it refuses."""
    model = program.model()
    found: list[Call] = []
    for i in range(len(program.calls)):
        args = program.arguments(i)
        try:
            with mode or nullcontext():
                result = model(*args)
        except Exception:
            if i == 0:
                raise
            break
        found.append(_seen(result, args, model))
    return found


class ReadBeforeWritten(TorchDispatchMode):
    """Reads all operands of an op that writes before it writes, those that overlap what it writes too."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        names = {a.name: i for i, a in enumerate(func._schema.arguments) if a.alias_info and a.alias_info.is_write}
        written = [args[i] if i < len(args) else kwargs.get(name) for name, i in names.items()]
        places = [t for t in pytree.tree_leaves(written) if isinstance(t, Tensor)]

        def apart(value: Any) -> Any:
            return value.clone() if isinstance(value, Tensor) and _overlaps_in_part(value, places) else value

        args = [a if i in names.values() else pytree.tree_map(apart, a) for i, a in enumerate(args)]
        return func(*args, **{k: v if k in names else pytree.tree_map(apart, v) for k, v in kwargs.items()})


def _overlaps_in_part(read: Tensor, written: list[Tensor]) -> bool:
    """Whether a tensor is another view of the memory of one of those that are written."""

    def place(t: Tensor) -> Any:
        return t.storage_offset(), t.shape, t.stride(), t.dtype

    shared = [t for t in written if t.untyped_storage().data_ptr() == read.untyped_storage().data_ptr()]
    return any(place(t) != place(read) for t in shared)


def depends_on_order(program: Program, eager: list[Call]) -> bool:
    """Whether an op reads what it has written already: what it gives then is not defined."""
    try:
        for plain, other in zip(eager, expected_calls(program, ReadBeforeWritten()), strict=False):
            for i in (0, 2, 3):
                _same("", other[i], plain[i])
    except Different:
        return True
    return False


def _seen(result: Any, args: Any, model: nn.Module) -> Call:
    leaves, structure = pytree.tree_flatten(result)
    passed = [t.detach().clone() for t in pytree.tree_leaves(args) if isinstance(t, Tensor)]
    copies = [t.detach().clone() if isinstance(t, Tensor) else t for t in leaves]
    return copies, structure, passed, [t.detach().clone() for t in state_of(model)]


def state_of(model: nn.Module) -> list[Tensor]:
    """All tensors of a model."""
    own = {**model._parameters, **model._buffers, **{k: v for k, v in vars(model).items() if k[0] in "ad"}}
    return [t for t in pytree.tree_leaves([own[k] for k in sorted(own)]) if isinstance(t, Tensor)]


def _check_stages(program: Program, expected: list[Call], on_iree: bool) -> Outcome:
    model = program.model()
    start = [t.detach().clone() for t in state_of(model)]
    shapes = None
    if program.dynamic:
        auto = torch.export.Dim.AUTO
        shapes = pytree.tree_map(
            lambda t: {0: auto} if isinstance(t, Tensor) and t.dim() and t.shape[0] == 4 else None, program.arguments(0)
        )
    try:
        raw = flambeau.compile(model, program.arguments(0), dynamic_shapes=shapes, output_type="raw")
    except CompileError as error:
        return _refused("import", error)
    _same("state after compiling", state_of(model), start)
    refused = None
    for stage in ("raw", "torch", *(["linalg-on-tensors"] if on_iree else [])):
        for tensor, contents in zip(state_of(model), start, strict=True):
            tensor.detach().copy_(contents)
        try:
            module = flambeau.compile(raw, output_type=stage)
        except CompileError as error:
            return _refused(stage, error)
        if stage == "linalg-on-tensors":
            run = flambeau.load(module, profile="quick", device="local-sync")
        else:
            run = flambeau.load(module, engine="eager")
        raw = module if stage == "torch" else raw
        refused = _check_calls(program, stage, run, model, expected) or refused
    return refused or Outcome("same")


def _check_calls(program: Program, stage: str, run: Any, model: nn.Module, expected: list[Any]) -> Outcome | None:
    for i, call in enumerate(expected):
        args = program.arguments(i)
        try:
            with torch.no_grad():
                result = run(*args)
        except (ValueError, TypeError, RunError) as error:
            if any(re.search(r, str(error)) for r in CALL_REFUSALS):
                return Outcome("refused", "call", str(error)[:200])
            raise Different(stage, f"a call raises {type(error).__name__}: {error}") from error
        except Exception as error:
            raise Different(stage, f"a call raises {type(error).__name__}: {error}") from error
        leaves, structure, passed, state = _seen(result, args, model)
        if structure != call[1]:
            raise Different(stage, f"call {i}: the result is {structure}, not {call[1]}")
        _same(f"{stage}: result", leaves, call[0])
        _same(f"{stage}: argument", passed, call[2])
        _same(f"{stage}: state", state, call[3])
    return None


def _same(what: str, actual: list[Any], expected: list[Any]) -> None:
    for a, e in zip(actual, expected, strict=True):
        if not isinstance(e, Tensor):
            if a != e:
                raise Different(what, f"{a!r} is not {e!r}")
            continue
        tolerance = TOLERANCE.get(e.dtype, 1e-5)
        try:
            torch.testing.assert_close(a, e, rtol=tolerance, atol=tolerance, equal_nan=True)
        except AssertionError as error:
            raise Different(what, str(error)) from None


def _refused(stage: str, error: CompileError) -> Outcome:
    text = "; ".join(sorted({d.reason for d in error.diagnostics}))
    if all(d.stage == "export" and not d.reason.startswith("forward()") for d in error.diagnostics):
        return Outcome("rejected", "torch.export", text[:200])
    if all(any(re.search(r, d.reason) for r in REFUSALS) for d in error.diagnostics):
        return Outcome("refused", stage, text[:200])
    return Outcome("failed", f"{stage}: refused", f"{text[:600]}")
