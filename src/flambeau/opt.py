"""Passes and pipelines by name, as `flambeau opt` and `xdsl-opt` take them; upstream's names work too."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from importlib import import_module

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec, ParameterListType, ParameterType

from flambeau.diagnostics import reporting
from flambeau.ir.module_pass import TorchPass

PASSES = {
    "torch-prepare-for-globalize-object-graph":
        "passes.prepare_for_globalize_object_graph:PrepareForGlobalizeObjectGraph",
    "torch-globalize-object-graph": "passes.globalize_object_graph:GlobalizeObjectGraph",
    "symbol-dce": "passes.symbol_dce:SymbolDce",
    "inline": "passes.inline:Inline",
    "torch-adjust-calling-conventions": "passes.adjust_calling_conventions:AdjustCallingConventions",
    "torch-inline-global-slots": "passes.inline_global_slots:InlineGlobalSlots",
    "torch-erase-module-initializer": "passes.erase_module_initializer:EraseModuleInitializer",
    "torch-refine-public-return": "passes.refine_public_return:RefinePublicReturn",
    "torch-reduce-op-variants": "passes.reduce_op_variants:ReduceOpVariants",
    "torch-maximize-value-semantics": "passes.maximize_value_semantics:MaximizeValueSemantics",
    "torch-refine-types": "passes.refine_types:RefineTypes",
    "torch-decompose-complex-ops": "passes.pipelines:DecomposeComplexOps",
    "torch-shape-refinement-pipeline": "passes.refine_types:RefineTypes",
    "torch-simplify-shape-calculations": "passes.refine_types:RefineTypes",
    "torch-simplify-dtype-calculations": "passes.refine_types:RefineTypes",
    "torch-verify-backend-contract": "passes.backend_contract:VerifyBackendContract",
    "torch-verify-backend-contract-no-decompositions": "passes.backend_contract:VerifyBackendContract",
    "torch-verify-linalg-on-tensors-backend-contract": "lowering.verify:VerifyLinalgOnTensors",
    "torch-verify-stablehlo-backend-contract": "lowering.verify:VerifyStablehlo",
    "torch-verify-tosa-backend-contract": "lowering.verify:VerifyTosa",
    "canonicalize": "passes.canonicalize:Canonicalize",
    "dce": "passes.dead_code:DeadCodeElimination",
    "cse": "passes.common_subexpressions:CommonSubexpressionElimination",
    "torch-lower-to-backend-contract": "passes.pipelines:LowerToBackendContract",
    "torch-function-to-torch-backend-pipeline": "passes.pipelines:LowerToBackendContract",
    "torch-simplification-pipeline": "passes.pipelines:LowerToBackendContract",
    "torchdynamo-export-to-torch-backend-pipeline": "passes.pipelines:LowerToBackendContract",
    "torchscript-module-to-torch-backend-pipeline": "passes.pipelines:LowerToBackendContract",
    "convert-torch-to-linalg": "lowering.passes:ConvertTorchToLinalg",
    "convert-torch-to-stablehlo": "lowering.passes:ConvertTorchToStablehlo",
    "convert-torch-to-tosa": "lowering.passes:ConvertTorchToTosa",
    "torch-backend-to-linalg-on-tensors-backend-pipeline": "lowering.passes:ConvertTorchToLinalg",
    "torch-backend-to-stablehlo-backend-pipeline": "lowering.passes:ConvertTorchToStablehlo",
    "torch-backend-to-tosa-backend-pipeline": "lowering.passes:ConvertTorchToTosa",
}  # fmt: skip
"""Names to where the pass is; it is imported when it is asked for."""

_REFINED = "types are refined by rules in Python (torch-refine-types), with no functions to add, simplify or drop"
_AT_ONCE = "a target is lowered to by one pass, convert-torch-to-linalg, -stablehlo or -tosa"
_QUANTISED = "quantised ops are lowered as they are"
NOTHING = {
    "torch-match-quantized-custom-ops": _QUANTISED,
    "torch-fuse-quantized-ops": _QUANTISED,
    "torch-unpack-quant-tensor": _QUANTISED,
    "torch-convert-custom-quant-op": _QUANTISED,
    "torch-scalarize-shapes": "the passes compute sizes where they meet them",
    "torch-restructure-non-constant-axes": "rules take axes that are not constant, or say why not",
    "torch-recompose-complex-ops": "an op that a target takes whole was never taken apart",
    "torch-reify-shape-calculations": _REFINED,
    "torch-reify-dtype-calculations": _REFINED,
    "torch-drop-abstract-interp-calculations": _REFINED,
    "convert-torch-to-arith": _AT_ONCE,
    "convert-torch-to-scf": _AT_ONCE,
    "convert-torch-to-tensor": _AT_ONCE,
    "convert-torch-to-tmtensor": "its ops come with convert-torch-to-linalg{tm_tensor=true}",
    "convert-torch-conversion-to-mlprogram": _AT_ONCE,
    "torch-func-backend-type-conversion": _AT_ONCE,
    "torch-finalizing-backend-type-conversion": _AT_ONCE,
}
"""Parts of upstream's pipelines that leave a program as it is here, and why."""


class UnknownPass(ValueError):
    """A pipeline names a pass that does not exist, or gives one an option that it cannot take."""


def get_pass(name: str) -> type[TorchPass]:
    """Return the pass with this name; UnknownPass if there is none."""
    if name not in PASSES:
        import difflib

        close = difflib.get_close_matches(name, PASSES, 1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(PASSES))}"
        raise UnknownPass(f"there is no pass {name!r}{hint}")
    home, _, class_name = PASSES[name].partition(":")
    return named(getattr(import_module(f"flambeau.{home}"), class_name), name)


def named(cls: type[TorchPass], name: str) -> type[TorchPass]:
    """Give a pass another name: xDSL makes a pass only of a text that has its own name."""
    return cls if cls.name == name else type(cls.__name__, (cls,), {"name": name, "__doc__": cls.__doc__})


_NAME = re.compile(r"[A-Za-z][\w.-]*")


def parse_pipeline(text: str) -> list[ArgSpec]:
    """Parse `a,b` or MLIR's `builtin.module(func.func(a),b{option=1})` into passes with their options, in order."""
    return list(_pass_specs(text))


def _pass_specs(text: str) -> Iterator[ArgSpec]:
    at, depth = 0, 0
    text = text.strip()
    while at < len(text):
        if text[at] in ", \t\n":
            at += 1
        elif text[at] == ")":
            depth -= 1
            at += 1
            if depth < 0:
                raise UnknownPass(f"unbalanced ')' in the pipeline {text!r}")
        else:
            match = _NAME.match(text, at)
            if match is None:
                raise UnknownPass(f"cannot read the pipeline {text!r} at {text[at:]!r}")
            at = match.end()
            if at < len(text) and text[at] == "(":
                depth += 1
                at += 1
                continue
            options = ""
            if at < len(text) and text[at] == "{":
                end = text.find("}", at)
                if end < 0:
                    raise UnknownPass(f"unbalanced '{{' in the pipeline {text!r}")
                options, at = text[at + 1 : end], end + 1
            yield ArgSpec(match.group(), dict(map(_option, options.split())))
    if depth:
        raise UnknownPass(f"unbalanced '(' in the pipeline {text!r}")


def _option(text: str) -> tuple[str, ParameterListType]:
    """Parse `key=a,b` into the key and its values."""
    key, _, values = text.partition("=")
    return key.replace("-", "_"), tuple(_parameter(v) for v in values.split(",") if v)


def _parameter(text: str) -> ParameterType:
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else text.strip("\"'")


def make_pass(spec: ArgSpec) -> TorchPass:
    """Make the pass of a pipeline's text. Options that it does not have are ignored: upstream's pass may have them."""
    cls = get_pass(spec.name)
    fields = {field.name for field in dataclasses.fields(cls)}
    try:
        return cls.from_spec(ArgSpec(spec.name, {k: v for k, v in spec.parameters.items() if k in fields}))
    except ValueError as error:
        raise UnknownPass(f"{spec.name}: {error}") from error


def run_pipeline(module: ModuleOp, pipeline: str, after: Callable[[str, ModuleOp], None] | None = None) -> ModuleOp:
    """Run the passes of a pipeline; `after(name, module)` is called behind each."""
    passes = [(spec.name, make_pass(spec) if spec.name not in NOTHING else None) for spec in parse_pipeline(pipeline)]
    for name, made in passes:
        if made is not None:
            with reporting(name):
                module = made.run(module)
        if after is not None:
            after(name, module)
    return module
