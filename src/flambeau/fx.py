"""The FX entry points under the names that torch-mlir's users know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flambeau.api import Module, OutputType
from flambeau.api import compile as _compile

__all__ = ["OutputType", "export_and_import", "stateless_fx_import"]


def export_and_import(
    f: Any,
    *args: Any,
    output_type: str | OutputType = OutputType.RAW,
    dynamic_shapes: Mapping[str, Any] | tuple[Any, ...] | None = None,
    func_name: str = "main",
    enable_ir_printing: bool = False,
    **kwargs: Any,
) -> Module:
    """Export `f` (an `nn.Module`, a function or an `ExportedProgram`) for these inputs and import it.

    Buffers that the program writes need no switch: they are arguments, and the signature says what is written back.
    """
    is_program = hasattr(f, "graph_signature")
    module = _compile(
        f,
        None if is_program else args,
        None if is_program else kwargs,
        output_type=output_type,
        dynamic_shapes=dynamic_shapes,
        function=func_name,
    )
    if enable_ir_printing:
        print(module)
    return module


def stateless_fx_import(
    gm: Any,
    output_type: str | OutputType = OutputType.RAW,
    model_name: str = "main",
    enable_graph_printing: bool = False,
    enable_ir_printing: bool = False,
) -> Module:
    """Import a plain `fx.GraphModule` of ATen ops whose placeholders carry `meta["val"]`."""
    if enable_graph_printing:
        gm.print_readable()
    module = _compile(gm, output_type=output_type, function=model_name)
    if enable_ir_printing:
        print(module)
    return module
