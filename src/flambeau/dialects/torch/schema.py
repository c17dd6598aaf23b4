"""Op schemas: PyTorch's own declaration of an operator, parsed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flambeau.dialects.torch.enums import MEAN, MEMORY_FORMATS

REQUIRED = object()
"""The default of an argument that has none."""


@dataclass(frozen=True)
class AliasInfo:
    """What PyTorch says about the storage behind an argument or result: `Tensor(a!)`."""

    sets: tuple[str, ...]
    is_write: bool
    after: tuple[str, ...]


@dataclass(frozen=True)
class SchemaType:
    """An argument type of PyTorch's schema language."""

    base: str
    """`Tensor`, `int`, `float`, `bool`, `Scalar`, `str`, `Device`, ..."""
    is_optional: bool = False
    is_list: bool = False
    elements_optional: bool = False
    size: int | None = None
    """`int[2]`: one int stands for a list of so many."""

    @property
    def is_tensor(self) -> bool:
        return self.base == "Tensor"

    def __str__(self) -> str:
        text = self.base + ("?" if self.elements_optional else "")
        if self.is_list:
            text += f"[{self.size or ''}]"
        return text + ("?" if self.is_optional else "")


@dataclass(frozen=True)
class Argument:
    """An argument or a result of an operator."""

    name: str
    type: SchemaType
    default: Any = REQUIRED
    kwarg_only: bool = False
    alias: AliasInfo | None = None

    @property
    def is_written(self) -> bool:
        """Whether the operator writes to it."""
        return self.alias is not None and self.alias.is_write


@dataclass(frozen=True, eq=False)
class Schema:
    """One overload of a PyTorch operator. The registry makes each once, so they compare by identity."""

    name: str
    """`aten.add.Tensor`: namespace, operator and overload; the overload is left out where it is the default one."""
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]
    is_vararg: bool = False
    is_varret: bool = False
    text: str = ""
    """The declaration as PyTorch prints it."""

    @property
    def namespace(self) -> str:
        return self.name.split(".", 1)[0] if "." in self.name else ""

    @property
    def base_name(self) -> str:
        """`add` of `aten.add.Tensor`."""
        return self.name.split(".")[1] if "." in self.name else self.name

    @property
    def overload_name(self) -> str:
        parts = self.name.split(".", 2)
        return parts[2] if len(parts) > 2 else ""

    @cached_property
    def is_mutable(self) -> bool:
        """Whether the operator writes to one of its arguments."""
        return any(a.is_written for a in self.arguments)

    @cached_property
    def is_inplace_variant(self) -> bool:
        """`relu_`: writes its first argument and returns it."""
        return (
            self.base_name.endswith("_")
            and not self.base_name.endswith("__")
            and bool(self.arguments)
            and self.arguments[0].is_written
        )

    @cached_property
    def is_view(self) -> bool:
        """Whether a result may share storage with an argument that is not written."""
        return not self.is_mutable and any(r.alias is not None for r in self.returns)

    @cached_property
    def has_value_semantics(self) -> bool:
        """Whether the operator neither writes nor aliases, and gives tensors or lists of them."""
        if self.is_mutable or self.is_view or self.is_vararg or self.is_varret:
            return False
        return any(r.type.is_tensor for r in self.returns)

    @cached_property
    def is_read_only(self) -> bool:
        """Whether the operator only looks at its tensors: no write, no alias, no tensor result."""
        return not self.is_mutable and not self.is_view and not any(r.type.is_tensor for r in self.returns)

    @cached_property
    def index(self) -> dict[str, int]:
        """Argument names to positions."""
        return {a.name: i for i, a in enumerate(self.arguments)}

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any] | None:
        """Put a call's arguments in the schema's order, with defaults; None if their number or names do not fit."""
        if len(args) > len(self.arguments) or any(k not in self.index for k in kwargs):
            return None
        rest = [kwargs.get(a.name, a.default) for a in self.arguments[len(args) :]]
        return None if any(v is REQUIRED for v in rest) else [*args, *rest]


def selects(names: Collection[str]) -> Callable[[str], bool]:
    """Make a predicate that tells whether an op is among names; one without an overload, `aten.add`, stands for all."""
    chosen = {name.removesuffix(".default") for name in names}

    def selected(overload: str) -> bool:
        return overload in chosen or ".".join(overload.split(".", 2)[:2]) in chosen

    return selected if chosen else lambda overload: False


_TOKEN = re.compile(
    r"""\s*(
        -> | \.\.\.                            # punctuation of several characters
        | [A-Za-z_][\w.]*                      # names
        | -?\d+\.?\d*(?:e[+-]?\d+)? | -inf    # numbers
        | "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*'  # strings
        | [()\[\]{},=!|*?]
    )""",
    re.VERBOSE,
)

_KEYWORD_DEFAULTS: dict[str, Any] = {
    **MEMORY_FORMATS,
    "None": None,
    "True": True,
    "False": False,
    "Mean": MEAN,
    "long": 4,
    "strided": 0,
    "inf": float("inf"),
    "-inf": float("-inf"),
}


class _Tokens:
    def __init__(self, text: str) -> None:
        self.tokens = list(self._split(text))
        self.at = 0

    @staticmethod
    def _split(text: str) -> Iterator[str]:
        position = 0
        text = text.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(f"cannot read the schema at {text[position:]!r}")
            yield match.group(1)
            position = match.end()

    def peek(self, offset: int = 0) -> str:
        at = self.at + offset
        return self.tokens[at] if at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        if not token:
            raise ValueError(f"the schema ends too early: {' '.join(self.tokens)}")
        self.at += 1
        return token

    def accept(self, token: str) -> bool:
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise ValueError(f"expected {token!r}, got {self.peek()!r} in {' '.join(self.tokens)}")


def parse_schema(name: str, text: str) -> Schema:
    """Read `(Tensor self, *, Scalar alpha=1) -> Tensor`."""
    tokens = _Tokens(text)
    tokens.expect("(")
    arguments: list[Argument] = []
    kwarg_only = is_vararg = is_varret = False
    while not tokens.accept(")"):
        if tokens.accept(","):
            continue
        if tokens.accept("*"):
            kwarg_only = True
        elif tokens.accept("..."):
            is_vararg = True
        else:
            arguments.append(_argument(tokens, len(arguments), kwarg_only))
    tokens.expect("->")
    returns: list[Argument] = []
    if tokens.accept("..."):
        is_varret = True
    elif tokens.peek() == "(":
        tokens.next()
        while not tokens.accept(")"):
            if tokens.accept(","):
                continue
            if tokens.accept("..."):
                is_varret = True
            else:
                returns.append(_argument(tokens, None, False))
    else:
        returns.append(_argument(tokens, None, False))
    return Schema(name, tuple(arguments), tuple(returns), is_vararg, is_varret, text)


def _argument(tokens: _Tokens, position: int | None, kwarg_only: bool) -> Argument:
    type_, alias = _type(tokens)
    name = "" if tokens.peek() in (",", ")", "") else tokens.next()
    if not name and position is not None:
        name = f"_{position}"
    default = _literal(tokens) if tokens.accept("=") else REQUIRED
    if type_.is_list and type_.size and default is not REQUIRED and default is not None:
        default = [default] * type_.size if not isinstance(default, list) else default
    return Argument(name, type_, default, kwarg_only, alias)


def _type(tokens: _Tokens) -> tuple[SchemaType, AliasInfo | None]:
    if tokens.peek() == "(":
        # A tuple type inside a list, e.g. `(str, Tensor)[]`: kept opaque, nothing lowers it.
        depth, parts = 0, []
        while True:
            token = tokens.next()
            depth += {"(": 1, ")": -1}.get(token, 0)
            parts.append(token)
            if depth == 0:
                break
        base = "".join(parts)
    else:
        base = tokens.next()
        if base in ("Dict", "Future", "RRef", "Await") and tokens.peek() == "(":
            base += "".join(_balanced(tokens))
    base = {"SymInt": "int", "SymFloat": "float", "SymBool": "bool", "number": "Scalar"}.get(base, base)
    alias = _alias(tokens)
    is_list = elements_optional = is_optional = False
    size: int | None = None
    while tokens.peek() in ("?", "["):
        if tokens.accept("?"):
            if tokens.peek() == "[" and not is_list:
                elements_optional = True
            else:
                is_optional = True
            continue
        tokens.expect("[")
        if is_list:
            base += "[]"
        is_list = True
        if tokens.peek() != "]":
            size = int(tokens.next())
        tokens.expect("]")
        alias = _alias(tokens) or alias
    return SchemaType(base, is_optional, is_list, elements_optional, size), alias


def _balanced(tokens: _Tokens) -> Iterator[str]:
    depth = 0
    while True:
        token = tokens.next()
        depth += {"(": 1, ")": -1}.get(token, 0)
        yield token
        if depth == 0:
            return


def _alias(tokens: _Tokens) -> AliasInfo | None:
    # `(a!)`, `(a -> *)`, `(a|b)`, `(a0!)` of a custom op: a lower-case letter or `*` comes first.
    if tokens.peek() != "(" or not re.fullmatch(r"[a-z]\d*|\*", tokens.peek(1)):
        return None
    inner = list(_balanced(tokens))[1:-1]
    before = inner[: inner.index("->")] if "->" in inner else inner
    after = inner[inner.index("->") + 1 :] if "->" in inner else inner
    sets = tuple(t for t in before if t not in ("!", "|"))
    return AliasInfo(sets, "!" in inner, tuple(t for t in after if t not in ("!", "|")))


def _literal(tokens: _Tokens) -> Any:
    token = tokens.next()
    if token == "[":
        items = []
        while not tokens.accept("]"):
            if not tokens.accept(","):
                items.append(_literal(tokens))
        return items
    if token in _KEYWORD_DEFAULTS:
        return _KEYWORD_DEFAULTS[token]
    if token[:1] in "\"'":
        return ast.literal_eval(token)
    try:
        return int(token)
    except ValueError:
        try:
            return float(token)
        except ValueError:
            return token
