"""Run a program with Python, with TorchScript, and behind each pass: all must agree.

What a program gives is its results and what it wrote to its arguments, of two calls one after the other, so that what
it writes to its buffers shows too.
"""

from __future__ import annotations

import re
import signal
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Optional

import torch
from fuzz import campaign
from fuzz.script.variables import Program, Spec
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp

import flambeau
from flambeau import torchscript
from flambeau.diagnostics import CompileError
from flambeau.dialects.torch.types import to_non_value
from flambeau.engines.eager.interpreter import Interpreter
from flambeau.frontends.script.annotations import ExampleArgs
from flambeau.frontends.script.compile import import_script_module
from flambeau.opt import get_pass
from flambeau.passes.adjust_calling_conventions import TYPE_BOUND, adjust_calling_conventions
from flambeau.passes.canonicalize import canonicalize
from flambeau.passes.maximize_value_semantics import maximize_value_semantics
from flambeau.passes.refine_types import refine_types

CALLS = 2


def typed(module: ModuleOp) -> ModuleOp:
    """Give the arguments the types that they are bound to, but leave them mutable, so that writes are seen."""
    for function in module.ops:
        if isinstance(function, func.FuncOp) and function.arg_attrs is not None:
            function.arg_attrs = ArrayAttr(
                DictionaryAttr({k: to_non_value(v) if k == TYPE_BOUND else v for k, v in attributes.data.items()})
                for attributes in function.arg_attrs.data
            )
    return adjust_calling_conventions(module)


SECONDS = 60
"""A program that takes longer is one that hangs."""

IN_ORDER = (
    "torch-prepare-for-globalize-object-graph", "torch-globalize-object-graph", "symbol-dce", "inline",
    "torch-inline-global-slots", "torch-reduce-op-variants",
)  # fmt: skip
"""Passes that run one after the other."""
ON_TOP: dict[str, Sequence[Callable[[ModuleOp], ModuleOp]]] = {
    "adjust calling conventions": (typed,),
    "canonicalize": (canonicalize,),
    "canonicalize with types": (typed, canonicalize),
    "refine types": (typed, refine_types),
    "maximize value semantics": (maximize_value_semantics,),
    "maximize value semantics with types": (typed, refine_types, maximize_value_semantics),
    "all three": (typed, canonicalize, refine_types, maximize_value_semantics),
}
"""Passes that run on a copy of what those give."""
LIMITS = re.compile(
    r"rank is not known|number of parts is not known|dims are not constants|a part whose size is not known"
    r"|which element of a list or dictionary this is|containers that do not fit together|is first a !torch.none"
)
"""What passes cannot do alone: types come out of containers only where these are taken apart, elements are known only
where loops are unrolled."""
DOCUMENTED = re.compile(
    r"may have been written through an alias"
    r"|has \d+ elements after one branch and \d+ after the other"
    r"|grows or shrinks in a loop whose trip count is not known"
    r"|cannot be expressed on values: several of its elements are one in memory"
    r"|a dictionary has other keys after one branch"
    r"|the keys of a dictionary change in a loop"
    r"|which element of a list or dictionary this is, is known only at run time"
    r"|is written to a tensor of \w+, which PyTorch refuses"  # where it is done, and it may be in a branch
)
"""What a program may be refused for."""


STATUSES = ("failed", "rejected", "refused", "refused alone", "limited", "same")
"""What can become of a program, the worst first. `refused alone`: by a pass alone, but not by all together. `limited`:
the same, for one of `LIMITS`; all other stages agree."""


class Rejected(Exception):
    """PyTorch does not accept a program, or what it does is not defined."""


class Outcome(campaign.Outcome):
    """What became of a program; the status is one of `STATUSES`."""

    @property
    def is_compiled(self) -> bool:
        """Whether all passes together take the program, and rightly."""
        return self.status in ("refused alone", "limited", "same")


@dataclass
class Observed:
    """What a caller sees of a call."""

    results: list[Any]
    arguments: list[torch.Tensor]


# --- Python and TorchScript ---


def inputs(specs: Sequence[Spec], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [spec.make(generator) for spec in specs]


class Buffers(torch.nn.Module):
    """The object of a program with buffers."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        for i, value in enumerate(inputs(program.buffers, 99)):
            self.register_buffer(f"b{i}", value)


def in_python(program: Program) -> Callable[..., Any]:
    """Define the program in Python; return its entry."""
    names: dict[str, Any] = {"torch": torch, "Optional": Optional, "Tensor": torch.Tensor}
    exec(compile(program.source, "<program>", "exec"), names)
    if not program.buffers:
        return names[program.entry]
    methods = {n: v for n, v in names.items() if n.startswith(("g", "forward")) and callable(v)}
    return type("Model", (Buffers,), methods)(program)


def in_torchscript(program: Program) -> Any:
    """Compile the program by TorchScript."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not program.buffers:
            return getattr(torch.jit.CompilationUnit(program.source), program.entry)
        # TorchScript would give objects of one class one type, and all programs' methods to it.
        module = torch.jit.script(type("Model", (Buffers,), {})(program))
        module.define(program.source)
        return module


class Watch(TorchDispatchMode):
    """Rejects writes whose outcome depends on the order in which elements are written."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        written = [
            (i, a)
            for i, (a, s) in enumerate(zip(args, func._schema.arguments, strict=False))
            if s.alias_info is not None and s.alias_info.is_write and isinstance(a, torch.Tensor)
        ]
        for i, target in written:
            if any(n > 1 and stride == 0 for n, stride in zip(target.shape, target.stride(), strict=True)):
                raise Rejected("a write to one element several times")
            for j, other in enumerate(pytree.tree_leaves((args, kwargs or {}))):
                if j != i and isinstance(other, torch.Tensor) and _overlaps(target, other):
                    raise Rejected("a write that reads what it writes")
        return func(*args, **(kwargs or {}))


def _overlaps(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return False
    return not (a.shape == b.shape and a.stride() == b.stride() and a.storage_offset() == b.storage_offset())


def observe(run: Callable[..., Any], program: Program, *, writes: bool = True) -> list[Observed]:
    """Call a program."""
    seen = []
    for seed in range(CALLS):
        arguments = inputs(program.arguments, seed)
        with torch.no_grad():
            results = pytree.tree_leaves(run(*arguments))
        results = [r.detach().clone() if isinstance(r, torch.Tensor) else r for r in results]
        seen.append(Observed(results, arguments if writes else []))
    return seen


def expected(program: Program) -> list[Observed]:
    """Run the program in PyTorch both ways, in Python and in TorchScript; Rejected where it refuses."""
    try:
        with Watch():
            plain = observe(in_python(program), program)
        script = observe(in_torchscript(program), program)
    except Rejected:
        raise
    except Exception as error:
        raise Rejected(f"{type(error).__name__}: {error}") from error
    for call in plain:
        for value in (*call.results, *call.arguments):
            if not isinstance(value, torch.Tensor | int | float):
                raise Rejected(f"a result that is a {type(value).__name__}")
            tensor = torch.as_tensor(value)
            is_special = any(s.special for s in program.arguments)
            if not is_special and not bool(torch.isfinite(tensor).all()):
                raise Rejected("numbers that are too large")
            if bool((tensor.abs() > 1e6).logical_and(tensor.isfinite()).any()):
                raise Rejected("numbers that are too large")
    if difference(script, plain):
        raise Rejected("TorchScript and Python do not agree")
    return plain


def difference(actual: Sequence[Observed], wanted: Sequence[Observed], tolerance: float = 1e-6) -> str:
    """Where two runs are not the same; empty if they are."""
    for n, (a, w) in enumerate(zip(actual, wanted, strict=True)):
        for what, left, right in (("result", a.results, w.results), ("argument", a.arguments, w.arguments)):
            if what == "argument" and not left:
                continue
            if len(left) != len(right):
                return f"call {n} gives {len(left)} {what}s instead of {len(right)}"
            for i, (x, y) in enumerate(zip(left, right, strict=True)):
                if not _is_close(x, y, tolerance):
                    return f"wrong {what}\n  {what} {i} of call {n} is\n{x}\n  instead of\n{y}"
    return ""


def _is_close(x: Any, y: Any, tolerance: float) -> bool:
    if isinstance(x, torch.Tensor) != isinstance(y, torch.Tensor):
        return False
    if not isinstance(x, torch.Tensor):
        is_same = x == y or (x != x and y != y)
        return type(x) is type(y) and (is_same or abs(x - y) <= tolerance * max(1.0, abs(y)))
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    return torch.allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)


# --- Our stages ---


@contextmanager
def time_limit(seconds: int = SECONDS) -> Iterator[None]:
    """Raise TimeoutError after so many seconds, so that a program that hangs fails like any other."""

    def stop(signal_number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def runs(program: Program) -> Iterator[tuple[str, Callable[[], Callable[..., Any]]]]:
    """Yield the names of the stages, and functions that make the program as it is behind them."""
    bounds = ExampleArgs.of(tuple(inputs(program.arguments, 0))).bounds
    state: dict[str, Any] = {}

    def imported() -> Callable[..., Any]:
        state["module"], state["weights"] = import_script_module(in_torchscript(program), bounds)
        return called(state["module"])

    def called(module: ModuleOp) -> Callable[..., Any]:
        module.verify()
        interpreter = Interpreter(module, {n: _copied(w) for n, w in state["weights"].items()})
        return lambda *arguments: interpreter.call("forward", arguments)

    def passed(name: str) -> Callable[..., Any]:
        state["module"] = get_pass(name)().run(state["module"])
        return called(state["module"])

    def alone(name: str) -> Callable[..., Any]:
        module = state["module"].clone()
        for step in ON_TOP[name]:
            module = step(module)
        return called(module)

    def compiled() -> Callable[..., Any]:
        examples = tuple(inputs(program.arguments, 0))
        module = torchscript.compile(in_torchscript(program), examples, "torch", verify=True)
        return flambeau.load(module, engine="eager")

    yield "import", imported
    for name in IN_ORDER:
        yield name, lambda name=name: passed(name)
    for name in ON_TOP:
        yield name, lambda name=name: alone(name)
    yield "compile", compiled


def _copied(weight: Any) -> Any:
    return weight.clone() if isinstance(weight, torch.Tensor) else weight.copy()


def check(program: Program) -> Outcome:
    """Run a program behind every stage; the worst that happened is told."""
    outcomes = list(check_stages(program))
    found = min(outcomes, key=lambda o: STATUSES.index(o.status))
    return found if found.status != "same" else Outcome("same")


def check_stages(program: Program) -> Iterator[Outcome]:
    """Check a program at each stage; yield what became of it."""
    try:
        with time_limit():
            wanted = expected(program)
    except (Rejected, TimeoutError) as error:
        yield Outcome("rejected", reason=str(error))
        return
    for stage, make in runs(program):
        try:
            with time_limit():
                run = make()
                wrong = difference(observe(run, program), wanted)
            yield Outcome("failed", stage, wrong) if wrong else Outcome("same", stage)
        except CompileError as error:
            outcome = refused(error, stage)
            if outcome.status == "failed" and stage in ON_TOP and is_limit(error):
                outcome = Outcome("limited", stage, outcome.reason)
            yield outcome
            if stage in ("import", *IN_ORDER):
                return
        except Exception as error:
            yield Outcome("failed", stage, f"{type(error).__name__}: {error}")
            if stage in ("import", *IN_ORDER):
                return


def refused(error: CompileError, stage: str) -> Outcome:
    """Make the outcome of a program that was not compiled: one documented reason suffices, as others may follow."""
    for diagnostic in error.diagnostics:
        if DOCUMENTED.search(diagnostic.reason):
            return Outcome("refused alone" if stage in ON_TOP else "refused", stage, diagnostic.reason)
    return Outcome("failed", stage, f"CompileError: {error.diagnostics[0].reason}\n{error}")


def is_limit(error: CompileError) -> bool:
    return any(LIMITS.search(d.reason) for d in error.diagnostics)


# --- On IREE ---

ENGINE_BUGS = re.compile(r"expected rank to be smaller or equal to the other rank")
"""What IREE makes of correct programs: it folds reshapes of unit dims into slices that cannot be."""


def together(programs: Sequence[Program]) -> Program:
    """Programs without buffers as one, which gives all that they give and what they wrote."""
    texts, calls, names = [], [], []
    for n, program in enumerate(programs):
        texts.append(re.sub(r"\b(f|g\d)\(", rf"p{n}_\1(", program.source))
        mine = [f"p{n}_x{i}" for i in range(len(program.arguments))]
        names += mine
        calls.append(f"p{n}_f({', '.join(mine)})")
    head = f"def f({', '.join(names)}):\n    return ({', '.join(calls)},)\n"
    return Program("\n".join([*texts, head]), tuple(s for p in programs for s in p.arguments))


def check_on_iree(program: Program, profile: str = "quick") -> Outcome:
    """Lower a program to linalg and run it."""
    try:
        wanted = expected(program)
    except Rejected as error:
        return Outcome("rejected", reason=str(error))
    stage = "linalg"
    try:
        examples = tuple(inputs(program.arguments, 0))
        module = torchscript.compile(in_torchscript(program), examples, "linalg-on-tensors")
        stage = "iree"
        run = flambeau.load(module, engine="iree", profile=profile, device="local-sync")
        wrong = difference(observe(run, program), wanted, 1e-4)
    except CompileError as error:
        return refused(error, stage)
    except Exception as error:
        if stage == "iree" and ENGINE_BUGS.search(str(error)):
            return Outcome("rejected", stage, str(error))
        return Outcome("failed", stage, f"{type(error).__name__}: {error}")
    return Outcome("failed", stage, wrong) if wrong else Outcome("same")


@dataclass
class Tally:
    """Counts of what became of programs."""

    counts: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        self.counts[outcome.status] += 1

    @property
    def accepted(self) -> int:
        """Programs that PyTorch accepts."""
        return sum(self.counts.values()) - self.counts["rejected"]

    def share(self, status: str) -> float:
        """Of the programs that PyTorch accepts; of all of them for those that it rejects."""
        whole = sum(self.counts.values()) if status == "rejected" else self.accepted
        return self.counts[status] / max(whole, 1)
