"""Errors for people: what went wrong, where in their Python, what to do."""

from __future__ import annotations

import inspect
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from xdsl.ir import Attribute, Operation

from flambeau.ir.locations import UNKNOWN, frames_of, module_path, user_frame


@dataclass(frozen=True)
class Diagnostic:
    """One thing that a stage could not do, with all that is known about it."""

    stage: str
    """`export`, `import`, `passes`, `lower to linalg-on-tensors`, ..."""
    reason: str
    op: str = ""
    """The op's name, `aten.foo.default`, when the trouble is with an op."""
    schema: str = ""
    operands: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    location: Attribute = UNKNOWN
    hint: str = ""

    @property
    def file(self) -> str | None:
        frame = user_frame(self.location)
        return frame.file if frame else None

    @property
    def line(self) -> int | None:
        frame = user_frame(self.location)
        return frame.line if frame else None

    @property
    def stack(self) -> tuple[str, ...]:
        """The Python lines that led here, innermost first."""
        return tuple(str(f) for f in frames_of(self.location))

    def place(self) -> str:
        """Describe the user's line, its text and its module, as lines of text; empty when nothing is known."""
        frame = user_frame(self.location)
        path = module_path(self.location)
        if frame is None:
            return f"  in module {path}" if path else ""
        lines = [f"  at {frame.place}" + (f" in {frame.function}" if frame.function else "")]
        if frame.source:
            lines += [f"      {line}" for line in frame.excerpt()]
        if path:
            lines.append(f"  in module {path}")
        return "\n".join(lines)

    def key(self) -> tuple[str, str, str]:
        return (self.stage, self.op, self.reason)


@dataclass
class CompileError(Exception):
    """A program could not be compiled. `diagnostics` holds every reason, not only the first."""

    diagnostics: Sequence[Diagnostic]
    summary: str = ""
    context: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(str(self))

    def __str__(self) -> str:
        groups: dict[tuple[str, str, str], list[Diagnostic]] = {}
        for d in self.diagnostics:
            groups.setdefault(d.key(), []).append(d)
        head = self.summary or f"{len(self.diagnostics)} problem{'s' if len(self.diagnostics) != 1 else ''}"
        return "\n\n".join([head, *(_group_text(group) for group in groups.values())])

    def save_repro(self, path: str | os.PathLike[str]) -> None:
        """Write the program that failed as a .mlir file, with the command that fails on it; weights are left out."""
        module, pipeline = self.context.get("module"), self.context.get("pipeline")
        if module is None:
            raise ValueError("the program failed before it was MLIR: there is nothing to write")
        from flambeau.ir.printing import pretty_text

        name = os.fspath(path)
        head = [f"flambeau opt {name} -p {pipeline}", "", *str(self).splitlines()]
        lines = [f"// {line}".rstrip() for line in head]
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join([*lines, "", pretty_text(module, locations=True)]))

    def report(self, repro: str | os.PathLike[str] | None = None) -> str:
        """Write a report of this failure in Markdown, to be posted as an issue; what only a person knows is left open.

        `repro` is where `save_repro` has written the program.
        """
        ops = sorted({d.op for d in self.diagnostics if d.op})
        title = f"cannot {self.diagnostics[0].stage}: {', '.join(ops) or self.diagnostics[0].reason}"
        packages = ("flambeau", "torch", "xdsl", "iree-base-compiler", "jax")
        versions = [f"| {name} | {found} |" for name in packages if (found := _version(name))]
        where = f"attached: {os.fspath(repro)}" if repro is not None else "`error.save_repro('repro.mlir')` writes it"
        lines = [f"# {title}", "", "## What I wanted to do", "", "(the model, the target, the hardware)", ""]
        lines += ["## What happened", "", "```text", str(self), "```", "", "## The program", "", where, ""]
        lines += ["## Versions", "", "| | |", "|-|-|", f"| Python | {platform.python_version()} |", *versions, ""]
        lines += ["## What would make my life easier", "", "(a rule, a decomposition, a better message, ...)", ""]
        return "\n".join(lines)

    def __reduce__(self) -> Any:
        return (type(self), (self.diagnostics, self.summary))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


_SHOWN = 3


def _group_text(group: Sequence[Diagnostic]) -> str:
    first = group[0]
    title = f"{first.op}: {first.reason}" if first.op else first.reason
    lines = [f"[{first.stage}] {title}" + (f" ({len(group)} times)" if len(group) > 1 else "")]
    if first.schema:
        lines.append(f"  schema: {first.schema}")
    places: set[str] = set()
    for d in group:
        place = d.place()
        if place in places:
            continue
        places.add(place)
        if len(places) > _SHOWN:
            continue
        if d.operands or d.results:
            lines.append(f"  called with ({', '.join(d.operands)}) -> ({', '.join(d.results)})")
        if place:
            lines.append(place)
    if len(places) > _SHOWN:
        lines.append(f"  and at {len(places) - _SHOWN} more places")
    if first.hint:
        lines.append(f"  help: {first.hint}")
    return "\n".join(lines)


class Unsupported(Exception):
    """Raised by a rule for a case that it does not cover; the text says which case."""

    def __init__(self, reason: str, hint: str = "", location: Attribute = UNKNOWN) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.location = location
        """Where the trouble is, for an op that does not know its own place."""


def diagnostic_for(op: Operation, stage: str, reason: str, hint: str = "") -> Diagnostic:
    """Make the diagnostic for a torch op, with its types and place."""
    schema = getattr(op, "schema", None)
    overload = getattr(op, "overload", "") or op.name
    declaration = _custom_declaration(overload)
    if schema is not None:
        qualified = f"{schema.namespace}::{schema.base_name}"
        declaration = qualified + (f".{schema.overload_name}" if schema.overload_name else "") + schema.text
    return Diagnostic(
        stage=stage,
        reason=reason,
        op=overload,
        schema=declaration,
        operands=tuple(_short(o.type) for o in op.operands),
        results=tuple(_short(r.type) for r in op.results),
        location=op.location,
        hint=hint,
    )


@contextmanager
def reporting(stage: str) -> Iterator[None]:
    """Give whatever goes wrong inside as a CompileError that names the op, its place, and whose mistake it is.

    This is the net under passes and lowerings. What a verifier or a rule can say itself, it says better.
    """
    try:
        yield
    except CompileError:
        raise
    except Exception as e:
        raise CompileError([failure(e, stage)], summary=f"cannot {stage}") from e


def failure(error: Exception, stage: str, op: Operation | None = None, rule: Any = None) -> Diagnostic:
    """Make the diagnostic for an exception of a pass or a rule; `op` is the one that was being looked at."""
    op = op if op is not None else _current_op(error.__traceback__)
    if isinstance(error, Unsupported):
        found = diagnostic_for(op, stage, error.reason, error.hint) if op is not None else None
        return found or Diagnostic(stage, error.reason, location=error.location, hint=error.hint)
    frames = list(_frames(error.__traceback__))
    what = "nested too deeply" if isinstance(error, RecursionError) else f"{type(error).__name__}: {error}"
    theirs = next((f for f in reversed(frames) if not _is_library(f[0].f_code.co_filename)), None)
    if theirs is not None and any(_is_ours(f.f_code.co_filename) for f, _ in frames[: frames.index(theirs)]):
        frame, line = theirs
        place = f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
        reason, hint = f"the rule failed at {place}: {what}", ""
    elif place := user_rule(rule):
        reason, hint = f"the rule at {place} failed: {what}", ""
    else:
        frame, line = next((f for f in reversed(frames) if _is_ours(f[0].f_code.co_filename)), frames[-1])
        reason = f"internal error in {Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}, line {line}: {what}"
        hint = REPORT
    try:
        return diagnostic_for(op, stage, reason, hint) if op is not None else Diagnostic(stage, reason, hint=hint)
    except Exception:
        # What is broken may be the op itself, so that its types cannot be printed.
        return Diagnostic(stage, reason, op=op.name if op is not None else "", location=op.location, hint=hint)  # type: ignore[union-attr]


def user_rule(rule: Any) -> str:
    """Return the place of a rule that is not Flambeau's own; empty for one that is."""
    code = getattr(inspect.unwrap(rule), "__code__", None) if rule is not None else None
    if code is None or _is_library(code.co_filename):
        return ""
    return f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"


REPORT = (
    "This is a mistake in Flambeau. Please report it with the program: `error.save_repro(path)` writes it, "
    "or `flambeau compile --repro FILE`."
)


def _frames(traceback: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while traceback is not None:
        yield traceback.tb_frame, traceback.tb_lineno
        traceback = traceback.tb_next


_HERE = str(Path(__file__).parent)


def _is_ours(file: str) -> bool:
    return file.startswith(_HERE)


def _is_library(file: str) -> bool:
    """Tell whether a file is Flambeau's, Python's, or that of an installed package."""
    return _is_ours(file) or file.startswith(("<", sys.prefix, sys.base_prefix)) or "site-packages" in file


def _current_op(traceback: TracebackType | None) -> Operation | None:
    """Find the op that the innermost function was working on: its local `op`, or any op that it holds; else None."""
    for frame, _ in reversed(list(_frames(traceback))):
        held = [v for v in frame.f_locals.values() if isinstance(v, Operation) and v.location != UNKNOWN]
        op = frame.f_locals.get("op")
        if held:
            return op if any(op is v for v in held) else held[-1]
    return None


def _custom_declaration(name: str) -> str:
    """Return the schema of a custom op, which only PyTorch knows, and has been imported for; empty if there is none."""
    torch = sys.modules.get("torch")
    namespace, _, rest = name.partition(".")
    base, _, overload = rest.partition(".")
    if torch is None or not rest:
        return ""
    schemas = torch._C._jit_get_schemas_for_operator(f"{namespace}::{base}")
    return next((str(s) for s in schemas if s.overload_name == overload), "")


def _short(type_: Attribute) -> str:
    return str(type_).removeprefix("!torch.")
