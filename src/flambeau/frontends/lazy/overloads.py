"""What is known of an overload from its schema: what it writes, whether it gives views, which numbers may change."""

from __future__ import annotations

from typing import Any

import torch

aten = torch.ops.aten

WITH_CHANGING_NUMBERS = frozenset({
    "add", "sub", "rsub", "mul", "div", "true_divide", "addcmul", "addcdiv", "lerp", "full", "xlogy",
})  # fmt: skip
"""Ops of arithmetic, whose numbers are inputs at once where an optimiser computes: outside of autograd."""

_OF_SHAPES = frozenset({"aten::arange", "aten::linspace", "aten::logspace", "aten::range", "aten::histc"})
"""Ops whose numbers say how many elements there are, or between what."""


class Overload:
    """An overload of an op, and how it is recorded."""

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.func = func
        self.name: str = str(func)
        self.written = [
            (i, a.name) for i, a in enumerate(schema.arguments) if a.alias_info is not None and a.alias_info.is_write
        ]
        """Position and name of the arguments that are written."""
        aliases = [r.alias_info for r in schema.returns]
        self.is_view = not self.written and any(a is not None for a in aliases)
        self.is_random = torch.Tag.nondeterministic_seeded in func.tags
        has_tensors = any("Tensor" in str(a.type) for a in schema.arguments)
        self.is_factory = not has_tensors and any(a.name == "device" for a in schema.arguments)
        self.is_composite = _has_kernel(func, "CompositeImplicitAutograd")
        self.is_loop = schema.name.startswith("aten::_foreach_") and _has_kernel(func, "CompositeExplicitAutograd")
        """Whether it goes over lists of tensors, one op after the other."""
        base = schema.name.partition("::")[2]
        self.lifts = base.rstrip("_") in WITH_CHANGING_NUMBERS
        may_change = not self.is_random and schema.name.rstrip("_") not in _OF_SHAPES
        self.numbers = {
            key: may_change and str(a.type) in _NUMBERS and (has_tensors or a.name == "fill_value")
            for i, a in enumerate(schema.arguments)
            for key in (i, a.name)
        }
        """Whether a number in this argument is one that may differ between steps, by position and by name."""
        self.returns_tensors = bool(schema.returns) and all("Tensor" in str(r.type) for r in schema.returns)

        self.rule: Any = None
        """What records it where its schema does not tell."""
        self.outs = {name for i, name in self.written if schema.arguments[i].kwarg_only}
        """Arguments, given by name, that it writes its results into."""
        lists = any("[]" in str(schema.arguments[i].type) for i, _ in self.written)
        self.functional: Any = functional_variant(func) if self.written and not lists else None
        """The overload that returns what this one writes; None if there is none."""
        self.defaults = _lost_defaults(schema, self.functional)
        """Arguments that must be passed to that one, though this one has defaults for them."""
        self.is_view_in_place = torch.Tag.inplace_view in func.tags
        """Whether it makes of its argument a view of it, in place."""
        self.view: Any = _view_variant(schema) if self.is_view_in_place else None
        """The overload that gives such a view; None if there is none."""


_NUMBERS = ("number", "Tensor", "float", "Optional[number]", "Optional[float]")


def _has_kernel(func: Any, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key))


_KNOWN: dict[int, Overload] = {}


def overload_of(func: Any) -> Overload:
    """Return what is known of an overload, of which there is one object, held here."""
    found = _KNOWN.get(id(func))
    return found if found is not None else _KNOWN.setdefault(id(func), Overload(func))


def functional_variant(func: Any) -> Any:
    """Find the overload that returns what this one writes; None if there is none."""
    schema = func._schema
    base = schema.name.partition("::")[2]
    if not schema.name.startswith("aten::"):
        return None
    written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    is_out = all(a.kwarg_only for a in schema.arguments if a.name in written)
    wanted = [_form(a) for a in schema.arguments if not (is_out and a.name in written)]
    names = [base] if is_out else [base.removesuffix("_"), f"{base.removesuffix('_')}_functional", f"{base}functional"]
    for name in names:
        packet = getattr(aten, name, None)
        for overload in packet.overloads() if packet is not None else ():
            found = getattr(packet, overload)
            arguments = found._schema.arguments
            if [_form(a) for a in arguments] == wanted and not any(a.alias_info for a in arguments):
                return found
    return None


def _view_variant(schema: Any) -> Any:
    """Find the overload that gives the view which this one makes of its argument; None if there is none."""
    packet = getattr(aten, schema.name.partition("::")[2].removesuffix("_"), None)
    wanted = [_form(a) for a in schema.arguments]
    for overload in packet.overloads() if packet is not None else ():
        found = getattr(packet, overload)
        if [_form(a) for a in found._schema.arguments] == wanted:
            return found
    return None


def _lost_defaults(schema: Any, variant: Any) -> dict[int, Any]:
    if variant is None:
        return {}
    required = {a.name for a in variant._schema.arguments if not a.has_default_value()}
    return {i: a.default_value for i, a in enumerate(schema.arguments) if a.has_default_value() and a.name in required}


def _form(argument: Any) -> tuple[str, str]:
    return argument.name, str(argument.type)
