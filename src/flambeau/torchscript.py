"""TorchScript programs: scripted or traced modules, and `.pt` archives.

`compile` has the signature that torch-mlir's users know. Archives are read with `torch.jit.load`, never with pickle.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from flambeau.api import Module, OutputType, lower, paused_gc, stage
from flambeau.diagnostics import CompileError, reporting
from flambeau.dialects.specs import spec_of
from flambeau.frontends.script.annotations import (
    ArgumentBound,
    ExampleArgs,
    TensorPlaceholder,
    annotate_args,
    annotated_bounds,
    export,
)
from flambeau.frontends.script.compile import import_script_module, load_archive, script_module
from flambeau.frontends.script.expand import expand_ops, infer_with_pytorch
from flambeau.frontends.script.state import initial_tensor
from flambeau.ir.module import Argument, Mutation, Output, Signature, Weights
from flambeau.keeping import kept_ops
from flambeau.passes.evaluate.values import Known
from flambeau.passes.script import Result, ScriptBorder, flatten, specialize

__all__ = ["ExampleArgs", "OutputType", "TensorPlaceholder", "annotate_args", "compile", "export", "load_archive"]


def compile(
    model: Any,
    example_args: Any = None,
    output_type: str | OutputType = OutputType.TORCH,
    use_tracing: bool = False,
    *,
    function: str = "forward",
    keep: Collection[str] = (),
    verify: bool = False,
) -> Module:
    """Take a TorchScript program to MLIR.

    `model` is an `nn.Module` or a function, which is scripted, or traced with `use_tracing`; a `ScriptModule`; or the
    path of an archive that `torch.jit.save` wrote. `example_args` are tensors, `TensorPlaceholder`s for sizes that are
    to stay open, numbers, and lists, tuples or dictionaries of them; without them, the types that `annotate_args` gave.
    Ops named in `keep` are not decomposed in the torch dialect, and are composites in StableHLO.
    """
    output = OutputType.get(output_type)
    timings: dict[str, float] = {}
    if isinstance(model, (str, os.PathLike)):
        model = load_archive(model)
    with stage(timings, "script"):
        script = script_module(model, example_args, use_tracing)
    examples = ExampleArgs.of(example_args) if example_args is not None else None
    bounds = examples.bounds if examples is not None else tuple(annotated_bounds(model) or ())
    given = _defaults(script, bounds)
    with paused_gc():
        with stage(timings, "import"):
            described = [b if not isinstance(b, Known) else None for b in given]
            op, weights = import_script_module(script, described, function)
        module = Module(op, weights, {}, OutputType.RAW, timings)
        if output is not OutputType.RAW:
            in_spec = pytree.tree_structure((examples.values, {})) if examples is not None else None
            module = lower(lower_objects(module, {function: given}, {function: in_spec}, keep), output, keep=keep)
    if verify:
        module.verify()
    return module


def lower_objects(
    module: Module,
    bounds: Mapping[str, Sequence[Any]] | None = None,
    in_specs: Mapping[str, Any] | None = None,
    keep: Collection[str] = (),
) -> Module:
    """Lower a graph of objects to flat functions with signatures. Without `bounds`, those in the program count."""
    op, timings = module.op, dict(module.timings)
    before = op.clone()
    try:
        with stage(timings, "passes"), reporting("run torchscript-module-to-torch-backend-pipeline"):
            borders = specialize(flatten(op), bounds, infer_with_pytorch)
            expand_ops(op, module.weights, kept_ops(keep))
    except CompileError as e:
        e.context.update(module=before, pipeline="torchscript-module-to-torch-backend-pipeline")
        raise
    signatures = {
        name: signature_of(border, module.weights, (in_specs or {}).get(name)) for name, border in borders.items()
    }
    return Module(op, module.weights, signatures, OutputType.RAW, timings)


def examples(args: Any, dynamic_shapes: Any) -> Any:
    """Open the dims of example arguments that `dynamic_shapes` (as torch.export takes them) names."""
    if dynamic_shapes is None or args is None:
        return args
    given = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    shapes = list(dynamic_shapes.values()) if isinstance(dynamic_shapes, Mapping) else list(dynamic_shapes)
    if len(shapes) != len(given):
        raise ValueError(f"dynamic_shapes has {len(shapes)} entries for {len(given)} arguments")
    return tuple(_open(value, shape) for value, shape in zip(given, shapes, strict=True))


def _open(value: Any, shape: Any) -> Any:
    if not shape or not isinstance(value, torch.Tensor):
        return value
    pairs = shape.items() if isinstance(shape, Mapping) else enumerate(shape)
    return TensorPlaceholder.like(value, dynamic_axes=[i for i, d in pairs if d is not None and not isinstance(d, int)])


def _defaults(script: Any, bounds: tuple[ArgumentBound, ...]) -> list[Any]:
    """Complete the bounds of all arguments: those that nobody passes have their defaults."""
    is_function = isinstance(script, torch.jit.ScriptFunction)
    forward: Any = script if is_function else script.forward
    arguments = forward.schema.arguments[0 if is_function else 1 :]
    if len(bounds) > len(arguments):
        raise TypeError(f"forward takes {len(arguments)} arguments, and {len(bounds)} examples are given")
    missing = [a.name for a in arguments[len(bounds) :] if not a.has_default_value()]
    if missing and bounds:
        raise TypeError(f"forward has no example for its argument {missing[0]!r}")
    return [*bounds, *(Known(a.default_value) if a.has_default_value() else None for a in arguments[len(bounds) :])]


def signature_of(border: ScriptBorder, weights: Weights, in_spec: Any) -> Signature:
    """Make the signature by which Python calls a specialised function."""
    arguments = []
    for leaf in border.leaves:
        resource = initial_tensor(leaf.name, leaf.state, weights) if leaf.state is not None else None
        arguments.append(Argument(leaf.name, spec_of(leaf.type), resource))
    leaves, out_spec = pytree.tree_flatten(border.structure, is_leaf=lambda v: isinstance(v, Result))
    return Signature(
        arguments=tuple(arguments),
        results=(),  # `lower` knows their types, when the passes have found them.
        outputs=tuple(Output(leaf.index, leaf.constant) for leaf in leaves),
        mutations=tuple(Mutation(result, argument) for result, argument in border.mutations),
        in_spec=in_spec,
        out_spec=out_spec,
        inputs=tuple(border.inputs) if in_spec is not None else None,
        fixed=tuple(border.fixed) if in_spec is not None else (),
    )
