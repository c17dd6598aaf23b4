"""lower(), decompose(), register_dialect(): ops of your own, from your own files and packages."""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from xdsl.ir import Dialect

from flambeau.dialects.context import NAMES
from flambeau.dialects.torch import registry
from flambeau.dialects.torch.schema import Schema, parse_schema
from flambeau.ir.conversion import RuleTable
from flambeau.ir.plugins import DECOMPOSITIONS, Registration, add_dialect, register
from flambeau.lowering.external import External
from flambeau.lowering.targets import OURS, get_target, names

RuleT = TypeVar("RuleT", bound=Callable[..., Any])

RESERVED = ("aten", "prim", "prims", "quantized_decomposed", "higher_order")
"""Libraries whose ops are PyTorch's own."""


def lower(op: str, *, target: str | Sequence[str] | None = None, override: bool = False) -> Callable[[RuleT], RuleT]:
    """Decorate a function that lowers an op: `@flambeau.lower("mylib::gate", target="linalg-on-tensors")`.

    It is called with the target's builder and the op's arguments, named as in the op's schema, and gives the op's
    results. Without a target it is for linalg-on-tensors, StableHLO and TOSA, whose builders have the same verbs.
    `override` replaces a rule that there is already; rules for ops of PyTorch's own are not added without it.
    """
    overload = overload_named(op)
    tables = [_table_of(t) for t in ([target] if isinstance(target, str) else target or OURS)]
    return _registrar(overload, tables, override)


def decompose(op: str, *, override: bool = False) -> Callable[[RuleT], RuleT]:
    """Decorate a function that writes an op in terms of others: `@flambeau.decompose("mylib::gate")`.

    It is called with a `TorchBuilder` and the op's arguments, named as in the op's schema, and serves all targets that
    have no rule for the op. `override` is as for `lower`.
    """
    return _registrar(overload_named(op), [DECOMPOSITIONS], override)


def register_dialect(dialect: Dialect) -> Dialect:
    """Let Flambeau read programs with the ops of a dialect of your own, as rules may build them."""
    if dialect.name in NAMES:
        raise ValueError(f"there is a dialect {dialect.name!r} already")
    add_dialect(dialect)
    return dialect


def overload_named(name: str) -> str:
    """Return an overload as the dialect spells it, `mylib.gate` for `mylib::gate`; ValueError for no name of an op."""
    found = re.fullmatch(r"([A-Za-z_]\w*)(?:::|\.)(\w+)(?:\.(\w+))?", name) if isinstance(name, str) else None
    if found is None:
        raise ValueError(f"an op is named 'library::op', or 'library::op.overload', not {name!r}")
    library, base, overload = found.groups()
    return f"{library}.{base}" + (f".{overload}" if overload not in (None, "default") else "")


def external_ops(external: Collection[str] | Mapping[str, str]) -> tuple[str, ...]:
    """Write ops that are left to the engine as targets take them; a mapping gives their names there.

    ValueError for an op that there is not, or one that writes to its arguments.
    """
    if isinstance(external, str):
        raise TypeError(f"external is a collection of names: external=[{external!r}]")
    found = []
    for name in external:
        overload = overload_named(name)
        schema = schema_of(overload)
        if schema is None and "torch" in sys.modules:
            raise _no_op(overload)
        if schema is not None and schema.is_mutable:
            raise ValueError(f"external: {overload} writes to its arguments, and an external function computes values")
        symbol = external[name] if isinstance(external, Mapping) else overload
        if not re.fullmatch(r"[A-Za-z_][\w.$]*", symbol):
            raise ValueError(f"external: {symbol!r} is not the name of a function")
        found.append(str(External(overload, symbol, tuple(a.name for a in schema.arguments) if schema else ())))
    return tuple(found)


def _table_of(target: str) -> str:
    """Return the name of a target's table; ValueError if there is no such target, or it takes no rules."""
    name = target if target in names() else str(target).lower().replace("_", "-")
    table = get_target(name).native()
    if not isinstance(table, RuleTable) or table.name != name:
        raise ValueError(
            f"the target {name!r} takes no rules of others: its `native` gives no RuleTable with the name {name!r}"
        )
    return name


def _registrar(overload: str, tables: Sequence[str], override: bool) -> Callable[[RuleT], RuleT]:
    if overload.split(".")[0] in RESERVED and not override:
        raise ValueError(
            f"{overload} is an op of PyTorch's own, which Flambeau has rules for: say override=True to replace them"
        )

    def add(rule: RuleT) -> RuleT:
        def check() -> bool:
            schema = schema_of(overload)
            if schema is not None:
                _check(overload, schema, rule)
            return schema is not None

        if not check() and "torch" in sys.modules:
            raise _no_op(overload)
        register([Registration(table, overload, rule, check) for table in tables], override)
        return rule

    return add


def schema_of(overload: str) -> Schema | None:
    """Return the schema of an overload; None if neither the snapshot nor PyTorch, where it is imported, has it."""
    known = registry.schema(overload)
    if known is not None or "torch" not in sys.modules:
        return known
    library, base, *rest = overload.split(".")
    text = _schemas(f"{library}::{base}").get(rest[0] if rest else "")
    return None if text is None else parse_schema(overload, text[text.index("(") :])


def _schemas(op: str) -> dict[str, str]:
    """Map the names of an op's overloads to their schemas; PyTorch must be imported."""
    torch: Any = sys.modules["torch"]
    return {str(s.overload_name): str(s) for s in torch._C._jit_get_schemas_for_operator(op)}


def _no_op(overload: str) -> ValueError:
    """Make the error for an op that PyTorch does not have."""
    torch: Any = sys.modules["torch"]
    library, base, *rest = overload.split(".")
    op = f"{library}::{base}"
    if schemas := _schemas(op):
        listed = ", ".join(sorted(f"{op}.{name}" if name else op for name in schemas))
        return ValueError(f"{op} has no overload {rest[0] if rest else 'default'!r}; there is {listed}")
    near = difflib.get_close_matches(op, {s.name for s in torch._C._jit_get_all_schemas()}, 1)
    hint = f"did you mean {near[0]!r}?" if near else "import the library that defines it first"
    return ValueError(f"PyTorch has no op {op}; {hint}")


def _check(overload: str, schema: Schema, rule: Callable[..., Any]) -> None:
    """Raise ValueError if a rule's parameters, behind the builder, are not those of the op; or if the op writes."""
    written = [a.name for a in schema.arguments if a.is_written]
    if written:
        raise ValueError(
            f"{overload} writes to its argument {written[0]!r}, and rules compute values. Flambeau looks into the "
            "kernel of such an op when it is called; write the rule for an op that returns what this one writes"
        )
    _, *given = inspect.signature(rule).parameters.values()
    if given and given[-1].kind is inspect.Parameter.VAR_POSITIONAL:
        return
    have = [p.name for p in given if p.kind is not inspect.Parameter.VAR_KEYWORD]
    want = [a.name for a in schema.arguments]
    if [n.strip("_") for n in have] != [n.strip("_") for n in want]:
        place = inspect.unwrap(rule).__code__
        raise ValueError(
            f"the rule for {overload} at {place.co_filename}:{place.co_firstlineno} has the parameters "
            f"({', '.join(have)}) behind the builder, and the op has ({', '.join(want)}): {overload}{schema.text}"
        )
