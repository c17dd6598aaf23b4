"""Which ops stay whole: those that a user names, and those that a frontend leaves to our own passes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any

from flambeau.lowering.targets import get_target


def kept_ops(keep: Collection[str]) -> Callable[[str], bool]:
    """Tell which ops a frontend leaves whole: those that are named, that we decompose ourselves, or that are simple."""
    from flambeau.dialects.torch.schema import selects
    from flambeau.frontends.expanded import is_whole
    from flambeau.passes.pipelines import decomposed_ops

    table, is_named = decomposed_ops(), selects(keep)
    return lambda name: is_named(name) or name in table or is_whole(name)


def check_names(keep: Collection[str]) -> None:
    """Raise ValueError if `keep` names an op that does not exist."""
    if isinstance(keep, str):
        raise TypeError(f"keep is a collection of names: keep=[{keep!r}]")
    if not keep:
        return
    import difflib

    from flambeau.dialects.torch import registry

    known = {*registry.snapshot().declarations, *registry.EXTENSIONS}
    known |= {".".join(name.split(".", 2)[:2]) for name in known}
    for name in keep:
        if name.removesuffix(".default") in known or _is_op_of_torch(name):
            continue
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else "names are like 'aten.gelu', or 'aten.add.Tensor'"
        raise ValueError(f"keep: there is no op {name!r}; {hint}")


def _is_op_of_torch(name: str) -> bool:
    """Tell whether PyTorch has an op that the snapshot lacks: a custom op, or one of another version."""
    torch = sys.modules.get("torch")
    namespace, _, rest = name.partition(".")
    base, _, overload = rest.partition(".")
    if torch is None or not base:
        return False
    try:
        packet = getattr(getattr(torch.ops, namespace), base)
    except AttributeError:
        return False
    return not overload or overload in packet.overloads()


TORCH_DIALECT = ("raw", "torch")
"""Output types that are no targets."""


def checked_options(
    output: str, options: Mapping[str, Any], keep: Collection[str], external: Collection[str] | Mapping[str, str]
) -> tuple[dict[str, Any], Collection[str]]:
    """Return the target's options, and what is kept whole; ValueError for options that it does not have.

    Ops that are left to the engine are an option of the target's; in the torch dialect they are kept whole.
    """
    if output in TORCH_DIALECT and options:
        raise ValueError(f"{output} has no option {next(iter(options))!r}: options are a target's")
    options = dict(options)
    if external:
        from flambeau.custom_ops import external_ops

        options["external"] = external_ops(external)
    if output in TORCH_DIALECT:
        return {}, (*keep, *left_to_engine(options))
    if options:
        get_target(output).check(options)
    return options, keep


def left_to_engine(options: Mapping[str, Any] | None) -> list[str]:
    """Name the ops that a target's options leave to the engine."""
    if not options or not options.get("external"):
        return []
    from flambeau.lowering.external import External

    return [External.parse(text).overload for text in options["external"]]
