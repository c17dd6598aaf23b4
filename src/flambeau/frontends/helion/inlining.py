"""The body of a function put where a builder stands: on IR, and on text for those who build text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue


class Inserts(Protocol):
    """What takes ops: Flambeau's `OpBuilder`, or xDSL's `Builder`."""

    def insert(self, op: Operation, /) -> Any: ...


def inline(function: func.FuncOp, operands: Sequence[SSAValue], builder: Inserts) -> list[SSAValue]:
    """Add copies of a function's ops where the builder stands; gives the values that the function returns.

    Values are values here, not names: nothing is renamed and nothing can be captured. The function stays as it is.
    """
    blocks = list(function.body.blocks)
    if len(blocks) != 1:
        raise ValueError(f"@{function.sym_name.data} has {len(blocks)} blocks; only one can be inlined")
    (block,) = blocks
    if [a.type for a in block.args] != [o.type for o in operands]:
        wanted, given = (", ".join(str(v.type) for v in values) for values in (block.args, operands))
        raise ValueError(f"@{function.sym_name.data} takes ({wanted}), not ({given})")
    values: dict[SSAValue, SSAValue] = dict(zip(block.args, operands, strict=True))
    inner: dict[Block, Block] = {}
    for op in block.ops:
        if isinstance(op, func.ReturnOp):
            return [values[v] for v in op.operands]
        builder.insert(op.clone(values, inner))
    raise ValueError(f"@{function.sym_name.data} does not return")


# --- Text ---


class EmitsText(Protocol):
    """What takes lines of text and gives names that are not in use."""

    def emit(self, line: str) -> Any: ...

    def fresh(self, prefix: str) -> str: ...


@dataclass
class TextBuilder:
    """Collects lines of MLIR text."""

    indent: int = 0
    lines: list[str] = field(default_factory=list)
    _counts: dict[str, int] = field(default_factory=dict)

    def emit(self, line: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.indent + line if line else "")

    def fresh(self, prefix: str) -> str:
        """Make a name that this builder has not given yet: `%t0`, `%t1`, ..."""
        number = self._counts.get(prefix, 0)
        self._counts[prefix] = number + 1
        return f"%{prefix}{number}"

    def text(self) -> str:
        return "\n".join(self.lines)


_NAME = r"%[\w$.-]+"
_TOKEN = re.compile(rf'"(?:\\.|[^"\\])*"|{_NAME}(?:#\d+)?|#[A-Za-z_][\w$.-]*|//[^\n]*')
_ALIAS = re.compile(r"^\s*(#[A-Za-z_][\w$.-]*)\s*=\s*(.*?)\s*$", re.MULTILINE)
_ASSIGNED = re.compile(rf"^\s*({_NAME}(?::\d+)?(?:\s*,\s*{_NAME}(?::\d+)?)*)\s*=\s")
_RETURN = re.compile(r"^\s*(?:func\.)?return\b")
_FUNCTION = re.compile(r"\bfunc\.func\b[^@]*@[\w$.-]+\s*\(")


def inline_text(mlir_text: str, operands: Sequence[str], builder: EmitsText) -> str | tuple[str, ...]:
    """Put the body of a module's one function into a builder of text; gives the name of the result, or names of all.

    Arguments become `operands`, results of ops `%tN`, arguments of blocks `%blk_argN`, attribute aliases (`#map`) what
    they stand for. Each name is replaced where it stands, in one pass: an operand may itself be called `%t0`. A text
    without a function is taken to be the body of one with the arguments `%arg0`, `%arg1`, ...
    """
    aliases = {m[1]: m[2] for m in _ALIAS.finditer(mlir_text)}
    arguments, body = _function(_ALIAS.sub("", mlir_text))
    if arguments is None:
        arguments = [f"%arg{i}" for i in range(len(operands))]
    if len(arguments) != len(operands):
        raise ValueError(f"the function takes {len(arguments)} arguments, not {len(operands)}")
    renaming = _Renaming(aliases, builder, dict(zip(arguments, operands, strict=True)))
    results: list[str] = []
    for line in textwrap.dedent(body).splitlines():
        if not line.strip():
            continue
        if _RETURN.match(line):
            return _one_or_all([renaming.use(m) for m in re.findall(rf"{_NAME}(?:#\d+)?", line.split(" : ")[0])])
        emitted = renaming.line(line.rstrip())
        builder.emit(emitted)
        if not line[0].isspace() and (found := _ASSIGNED.match(emitted)):
            results = [_without_count(name) for name in found[1].split(",")]
    return _one_or_all(results)


def _one_or_all(names: Sequence[str]) -> str | tuple[str, ...]:
    return names[0] if len(names) == 1 else tuple(names)


class _Renaming:
    """The names of a body and what they become."""

    def __init__(self, aliases: dict[str, str], builder: EmitsText, names: dict[str, str]) -> None:
        self.aliases = aliases
        self.builder = builder
        self.names = names
        self.taken = set(names.values())

    def fresh(self, prefix: str) -> str:
        name = self.builder.fresh(prefix)
        while name in self.taken:
            name = self.builder.fresh(prefix)
        return name

    def use(self, token: str) -> str:
        name, mark, part = token.partition("#")
        if name not in self.names:
            raise ValueError(f"{name} is used before it is defined")
        return self.names[name] + mark + part

    def line(self, line: str) -> str:
        head, rest = "", line
        defined: dict[str, str] = {}
        if found := _ASSIGNED.match(line):
            for part in found[1].split(","):
                defined[_without_count(part)] = self.fresh("t")
            head = re.sub(_NAME, lambda m: defined[m[0]], line[: found.end()])
            rest = line[found.end() :]
        is_block = line.lstrip().startswith("^")

        def replace(match: re.Match[str]) -> str:
            token, behind = match[0], rest[match.end() :]
            if token.startswith("#"):
                return self.attribute(token)
            if not token.startswith("%"):
                return token
            # MLIR writes `%x: f32` where a block names an argument and `%x : f32` where an op is given its type.
            if (behind.startswith(":") and (is_block or rest.endswith("{"))) or re.match(r"\s*=[^=]", behind):
                self.names[token] = self.fresh("blk_arg")
                return self.names[token]
            if token.partition("#")[0] not in self.names and rest.endswith("{"):
                self.names[token] = self.fresh("blk_arg")
            return self.use(token)

        rest = _TOKEN.sub(replace, rest)
        self.names.update(defined)
        return head + rest

    def attribute(self, token: str) -> str:
        text = self.aliases.get(token)
        return token if text is None else _TOKEN.sub(lambda m: self.attribute(m[0]), text)


def _without_count(name: str) -> str:
    return name.strip().partition(":")[0]


def _function(text: str) -> tuple[list[str] | None, str]:
    """Parse the argument names and the body of the function in a module; None and the whole text if there is none."""
    start = _FUNCTION.search(text)
    if start is None:
        return None, text
    end = _closing(text, start.end() - 1, "(", ")")
    arguments = re.findall(rf"({_NAME})\s*:", text[start.end() : end])
    opening = re.search(r"\{[ \t]*\n", text[end:])
    if opening is None:
        raise ValueError("the function has no body")
    first = end + opening.start()
    return arguments, text[end + opening.end() : _closing(text, first, "{", "}")].rstrip()


def _closing(text: str, start: int, opening: str, closing: str) -> int:
    """Find the position of the bracket that closes the one at `start`, ignoring strings and comments."""
    depth = 0
    for match in re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|.', re.DOTALL).finditer(text, start):
        depth += (match[0] == opening) - (match[0] == closing)
        if depth == 0:
            return match.start()
    raise ValueError(f"{opening!r} is not closed")
