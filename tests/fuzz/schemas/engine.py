"""Calls on an engine: many as functions of one program, in a child process, since compilers and programs may die."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from fuzz.campaign import Outcome
from fuzz.schemas import cases, engine_bugs, exclusions
from fuzz.schemas.cases import Case
from fuzz.schemas.check import REFUSALS, Answer, ask, ask_with, build, difference, failed, flat
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, StringAttr

from flambeau.api import Module, OutputType, lower
from flambeau.engines.errors import EngineError, RunError
from flambeau.engines.iree import IreeEngine
from flambeau.ir import dtypes
from flambeau.ir.module import Argument, Output, Signature, TensorSpec, Weights
from flambeau.passes.pipelines import to_backend_contract

BATCH = 40
"""How many calls are compiled together."""
OTHER_SIZES = 3
"""At how many other sizes a program is run whose sizes are left to the run time."""
SECONDS = 240
"""How long a program may take."""


@dataclass
class Prepared:
    """A call that is lowered."""

    seed: int
    case: Case
    answer: Answer
    tensors: list[torch.Tensor]
    function: func.FuncOp
    signature: Signature
    hidden: Sequence[frozenset[int]]
    """Which dims of each tensor are left to the run time; empty where none is."""

    @property
    def dynamic(self) -> bool:
        return bool(self.hidden)

    @property
    def name(self) -> str:
        return f"case{self.seed}"


def case_of(seed: int) -> Case:
    """Generate the case of a seed, of an overload that can be lowered."""
    return cases.generate(seed, cases.lowered_overloads())


def open_dims(seed: int, tensors: Sequence[torch.Tensor]) -> list[frozenset[int]]:
    """Which dims of each tensor are left to the run time: in one case of three, some."""
    rng = Random(seed ^ 0x5EED)
    if rng.random() > 0.35:
        return []
    share = rng.choice((0.3, 0.7, 1.0))
    return [frozenset(i for i in range(t.dim()) if rng.random() < share) for t in tensors]


def prepare(seed: int, target: str) -> Prepared | Outcome:
    """Lower the case of a seed, or say what became of it before that."""
    case = case_of(seed)
    answer = ask(case)
    if any(r is None for r in flat(answer.results)):
        return Outcome("excluded", "a result that is None")
    tensors = [t for v in case.values() for t in (v if isinstance(v, list) else [v]) if isinstance(t, torch.Tensor)]
    if target == "tosa" and not all(map(_is_narrow, [*tensors, *flat(answer.results)])):
        return Outcome("excluded", "64-bit integers are computed in 32 bits")
    hidden = open_dims(seed, tensors)
    try:
        raw, given = build(case, answer, hidden)
        module = lower_op(to_backend_contract(raw), target)
    except REFUSALS as error:
        if answer.error:
            return Outcome("rejected")
        reason = re.sub(r"\s+", " ", str(error))[:300]
        return Outcome("refused", case.name, f"{type(error).__name__}: {reason}\n{case}")
    except Exception as error:
        if answer.error:
            return Outcome("rejected")
        return failed("exception", f"{type(error).__name__}: {error}", case)
    function = next(op for op in module.ops if isinstance(op, func.FuncOp))
    function.properties["sym_name"] = StringAttr(f"case{seed}")
    results = [_spec(r, hidden != []) for r in flat(answer.results)]
    if answer.error:
        results = [TensorSpec((None,), dtypes.float32)] * len(function.function_type.outputs.data)
    arguments = tuple(Argument(f"x{i}", _open(t, hidden, i)) for i, t in enumerate(given))
    signature = Signature(arguments, tuple(results), tuple(Output(i) for i in range(len(results))))
    return Prepared(seed, case, answer, given, function, signature, hidden)


def lower_op(module: ModuleOp, target: str) -> ModuleOp:
    """Lower a module of the torch dialect."""
    return lower(Module(module, Weights({}), {"main": Signature((), (), ())}, OutputType.TORCH), OutputType(target)).op


def _is_narrow(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.int64 or value.numel() == 0:
        return True
    return int(value.max()) < 2**31 and int(value.min()) >= -(2**31)


def _spec(x: torch.Tensor, dynamic: bool) -> TensorSpec:
    dtype = dtypes.from_torch(x.dtype)
    assert dtype is not None
    return TensorSpec(tuple(None if dynamic else d for d in x.shape), dtype)


def _open(x: torch.Tensor, hidden: Sequence[frozenset[int]], at: int) -> TensorSpec:
    dtype = dtypes.from_torch(x.dtype)
    assert dtype is not None
    return TensorSpec(tuple(None if hidden and i in hidden[at] else d for i, d in enumerate(x.shape)), dtype)


def run_batch(seeds: Sequence[int], target: str) -> dict[int, Outcome]:
    """Run many cases; map their seeds to what became of them."""
    outcomes: dict[int, Outcome] = {}
    ready: list[Prepared] = []
    for seed in seeds:
        found = prepare(seed, target)
        if isinstance(found, Outcome):
            outcomes[seed] = found
        else:
            ready.append(found)
    outcomes |= _together(ready)
    return {seed: engine_bugs.known(target, case_of(seed), outcome) for seed, outcome in outcomes.items()}


def _together(ready: Sequence[Prepared]) -> dict[int, Outcome]:
    """Compile and run in a child process; what makes it fail is found by halves."""
    if not ready:
        return {}
    outcomes: dict[int, Outcome] = {}
    current, message = -1, ""
    for line in _child(ready):
        current, message = line["seed"], line.get("reason", "")
        if "status" in line:
            outcomes[current] = Outcome(line["status"], line["stage"], message)
            current = -1
    left = [p for p in ready if p.seed not in outcomes]
    if not left:
        return outcomes
    if current >= 0:
        died = next(p for p in left if p.seed == current)
        outcomes[current] = Outcome("crashed", f"run {died.case.name}", f"{died.case}\n{message}{_note(died)}")
        return outcomes | _together([p for p in left if p.seed != current])
    if len(left) == 1:
        return outcomes | {
            left[0].seed: Outcome("crashed", f"compile {left[0].case.name}", f"{left[0].case}{_note(left[0])}")
        }
    half = len(left) // 2
    return outcomes | _together(left[:half]) | _together(left[half:])


def _note(p: Prepared) -> str:
    return "\n(sizes left to the run time)" if p.dynamic else ""


def _child(ready: Sequence[Prepared]) -> Iterator[dict[str, Any]]:
    """Run cases in a child process; yield the lines that it writes: which case it is at, and what became of it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.setpgid(0, 0)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 2)
        try:
            with os.fdopen(writing, "w") as file:
                for line in _lines(ready):
                    file.write(json.dumps(line) + "\n")
                    file.flush()
        finally:
            os._exit(0)
    os.close(writing)
    end = time.monotonic() + SECONDS
    pending = b""
    try:
        while (left := end - time.monotonic()) > 0 and select.select([reading], [], [], left)[0]:
            data = os.read(reading, 1 << 16)
            if not data:
                break
            *whole, pending = (pending + data).split(b"\n")
            yield from map(json.loads, whole)
    finally:
        os.close(reading)
        for kill in (os.killpg, os.kill):  # It may not have become the leader of its group yet.
            with suppress(OSError):
                kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _lines(ready: Sequence[Prepared]) -> Iterator[dict[str, Any]]:
    signatures = {p.name: p.signature for p in ready}
    module = Module(
        ModuleOp([p.function.clone() for p in ready]), Weights({}), signatures, OutputType.LINALG_ON_TENSORS
    )
    try:
        program = IreeEngine().compile(module, device="local-sync", profile="quick", cache=False)
    except EngineError as error:
        if len(ready) == 1 and ready[0].answer.error:
            yield _line(ready[0], Outcome("rejected"))
        elif len(ready) == 1:
            yield _line(ready[0], failed(f"compile{_dynamic(ready[0])}", _short(error), ready[0].case))
        return
    for p in ready:
        yield {"seed": p.seed}
        try:
            outcome = _outcome(p, program)
        except Exception as error:
            outcome = failed("exception", f"{type(error).__name__}: {error}", p.case)
        yield _line(p, outcome)


_NO_BROADCASTING = re.compile(
    r"do not match for broadcasting|the expanded size does not match|"
    r"input\d+ shape dimension \d+ mismatch; expected \d+ but have 1;"
)
"""Sizes that are left to the run time do not broadcast: that is a promise of programs with dynamic sizes."""


_OTHER_SIZE = re.compile(
    rf"{_NO_BROADCASTING.pattern}|shape dimension \d+ mismatch; expected \d+ but have \d+|"
    "does not have the size|another number of parts than the program was compiled for"
)
"""Nor is a size taken that another argument, whose size is known, does not have: even where PyTorch does not look."""


_EMPTY = re.compile("index out of range|mismatching contracting dimension")
"""Of what is empty PyTorch checks less: what it would read is not there anyway."""


def _dynamic(p: Prepared) -> str:
    return " (dynamic)" if p.dynamic else ""


def _outcome(p: Prepared, program: Any) -> Outcome:
    try:
        got = program.call_flat(p.name, p.tensors, as_torch=True)
    except (RunError, EngineError, RuntimeError, ValueError) as error:
        if p.answer.error:
            return Outcome("rejected")
        if _EMPTY.search(str(error)) and any(t.numel() == 0 for t in p.tensors):
            return Outcome("refused", "indices of what is empty are looked at too")
        # How many elements a mask has is left to the run time too.
        if (p.dynamic or "index" in p.case.base) and _NO_BROADCASTING.search(str(error)):
            return Outcome("refused", "sizes that are not known do not broadcast")
        return failed(f"run{_dynamic(p)}", f"raises {_short(error)}", p.case)
    if p.answer.error:
        if exclusions.is_gap(p.answer.error):
            return Outcome("rejected")
        return failed(f"accepted{_dynamic(p)}", f"eager raises {p.answer.error[:200]}", p.case)
    if wrong := difference(got, p.answer.results, p.case):
        return failed(f"value{_dynamic(p)}", wrong, p.case)
    return _at_other_sizes(p, program) if p.dynamic else Outcome("same")


def _at_other_sizes(p: Prepared, program: Any) -> Outcome:
    """Call a program whose sizes are left to the run time with other sizes than those that it was made of."""
    rng = Random(p.seed ^ 0x512E5)
    base = p.case.base
    may_grow = base not in exclusions.TIES | exclusions.DISTINCT_ROWS | exclusions.IN_ORDER
    for _ in range(OTHER_SIZES):
        sizes: dict[int, int] = {}
        tensors = [_resized(t, hidden, sizes, may_grow, rng) for t, hidden in zip(p.tensors, p.hidden, strict=True)]
        if base in exclusions.NOT_OF_NOTHING and any(t.numel() <= 1 for t in tensors):
            continue
        rest = iter(tensors)
        values = [_with(v, rest) for v in p.case.values()]
        shapes = f"at sizes {', '.join(str(list(t.shape)) for t in tensors)}"
        got, error = [], ""
        try:
            got = program.call_flat(p.name, tensors, as_torch=True)
        except (RunError, EngineError, RuntimeError, ValueError) as raised:
            error = _short(raised)
        if _OTHER_SIZE.search(error):
            continue  # PyTorch is not asked: where it does not look at the sizes, it may die of them.
        answer = ask_with(p.case, values)
        if "conv" in base and any(t.numel() == 0 for t in (*tensors, *flat(answer.results))):
            continue  # What a convolution of nothing is, or one that gives nothing, differs from kernel to kernel.
        if error:
            if answer.error or (_EMPTY.search(error) and any(t.numel() == 0 for t in tensors)):
                continue
            return failed("run at other sizes", f"{shapes} raises {error}", p.case)
        if answer.error:
            # Many ops of PyTorch refuse what is empty, for no other reason than that it is.
            if exclusions.is_gap(answer.error) or any(t.numel() == 0 for t in (*tensors, *got)):
                continue
            return failed("accepted at other sizes", f"{shapes} eager raises {answer.error[:200]}", p.case)
        if wrong := difference(got, answer.results, p.case, values):
            return failed("value at other sizes", f"{shapes} {wrong}", p.case)
    return Outcome("same")


def _resized(
    x: torch.Tensor, hidden: frozenset[int], sizes: dict[int, int], may_grow: bool, rng: Random
) -> torch.Tensor:
    """Change a tensor's sizes along its hidden dims, equal ones mostly alike; elements are repeated."""
    for dim in sorted(hidden):
        old = x.shape[dim]
        larger = (old + 1, old + 1, 2 * old) if may_grow else (old,)
        new = sizes.setdefault(old, rng.choice((0, min(old, 1), max(old - 1, 0), *larger)))
        if rng.random() < 0.05:
            new = old
        if old == 0 and new:
            x = torch.ones((*x.shape[:dim], new, *x.shape[dim + 1 :]), dtype=x.dtype)
        elif new != old:
            x = x.index_select(dim, torch.arange(new) % max(old, 1))
    return x


def _with(value: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """Replace the tensors in an argument."""
    if isinstance(value, list):
        return [_with(v, tensors) for v in value]
    return next(tensors) if isinstance(value, torch.Tensor) else value


def _line(p: Prepared, outcome: Outcome) -> dict[str, Any]:
    return {"seed": p.seed, "status": outcome.status, "stage": outcome.stage, "reason": outcome.reason}


def _short(error: BaseException) -> str:
    return re.sub(r"\s+", " ", str(error))[:240]


_DONE: dict[tuple[str, int], dict[int, Outcome]] = {}


def _check(seed: int, target: str) -> Outcome:
    """Return the outcome of a seed: its whole batch is run when the first one is asked for."""
    first = seed - seed % BATCH
    key = (target, first)
    if key not in _DONE:
        _DONE.clear()
        _DONE[key] = run_batch(range(first, first + BATCH), target)
    return _DONE[key][seed]


def check_linalg_on_tensors(seed: int) -> Outcome:
    """Check the case of a seed on IREE, by linalg."""
    return _check(seed, "linalg-on-tensors")


def check_stablehlo(seed: int) -> Outcome:
    """Check the case of a seed on IREE, by StableHLO."""
    return _check(seed, "stablehlo")


def check_tosa(seed: int) -> Outcome:
    """Check the case of a seed on IREE, by TOSA."""
    return _check(seed, "tosa")
