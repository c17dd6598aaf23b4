"""Passes and pipelines by name, as `flambeau opt` takes them; upstream's names work too."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module

from xdsl.dialects.builtin import ModuleOp

from flambeau.diagnostics import reporting

Pass = Callable[[ModuleOp], ModuleOp]

PASSES: dict[str, tuple[str, str]] = {
    "torch-prepare-for-globalize-object-graph": (
        "flambeau.passes.prepare_for_globalize_object_graph:prepare_for_globalize_object_graph",
        "method calls to function calls",
    ),
    "torch-globalize-object-graph": (
        "flambeau.passes.globalize_object_graph:globalize_object_graph",
        "objects to global slots",
    ),
    "symbol-dce": ("flambeau.passes.symbol_dce:eliminate_dead_symbols", "remove private symbols that nobody uses"),
    "inline": ("flambeau.passes.inline:inline_calls", "put functions where they are called"),
    "torch-adjust-calling-conventions": (
        "flambeau.passes.adjust_calling_conventions:adjust_calling_conventions",
        "type bounds to types, tuples to results",
    ),
    "torch-inline-global-slots": (
        "flambeau.passes.inline_global_slots:inline_global_slots",
        "slots that nobody writes to their initial values",
    ),
    "torch-erase-module-initializer": (
        "flambeau.passes.erase_module_initializer:erase_module_initializer",
        "remove an initialiser without slots",
    ),
    "torch-refine-public-return": (
        "flambeau.passes.refine_public_return:refine_public_return",
        "public functions return values of known type",
    ),
    "torch-reduce-op-variants": ("flambeau.passes.reduce_op_variants:reduce_op_variants", "in-place ops to value form"),
    "torch-maximize-value-semantics": (
        "flambeau.passes.maximize_value_semantics:maximize_value_semantics",
        "mutable tensors to values",
    ),
    "torch-refine-types": ("flambeau.passes.refine_types:refine_types", "shapes and dtypes through the program"),
    "torch-decompose-complex-ops": ("flambeau.passes.decompose:decompose", "apply our decompositions"),
    "torch-verify-backend-contract": (
        "flambeau.passes.backend_contract:require_backend_contract",
        "check that a lowering may take the program",
    ),
    "canonicalize": ("flambeau.passes.canonicalize:canonicalize", "compute what is known, take containers apart"),
    "dce": ("flambeau.passes.dead_code:eliminate_dead_code", "remove what nobody uses"),
    "cse": ("flambeau.passes.common:eliminate_common_subexpressions", "compute equal things once"),
    "convert-torch-to-linalg": ("flambeau.lowering.linalg.lower:lower_to_linalg", "torch to linalg-on-tensors"),
    "torch-function-to-torch-backend-pipeline": (
        "flambeau.passes.pipelines:to_backend_contract",
        "raw torch dialect to the backend contract",
    ),
    "torchscript-module-to-torch-backend-pipeline": (
        "flambeau.passes.pipelines:to_backend_contract",
        "a graph of TorchScript objects to the backend contract",
    ),
    "torch-lower-to-backend-contract": (
        "flambeau.passes.pipelines:to_backend_contract",
        "raw torch dialect to the backend contract",
    ),
    "torchdynamo-export-to-torch-backend-pipeline": (
        "flambeau.passes.pipelines:to_backend_contract",
        "raw torch dialect to the backend contract",
    ),
    "convert-torch-to-stablehlo": ("flambeau.lowering.stablehlo.lower:lower_to_stablehlo", "torch to StableHLO"),
    "convert-torch-to-tosa": ("flambeau.lowering.tosa.lower:lower_to_tosa", "torch to TOSA"),
    "torch-backend-to-stablehlo-backend-pipeline": (
        "flambeau.lowering.stablehlo.lower:lower_to_stablehlo",
        "backend contract to StableHLO",
    ),
    "torch-backend-to-tosa-backend-pipeline": (
        "flambeau.lowering.tosa.lower:lower_to_tosa",
        "backend contract to TOSA",
    ),
    "torch-backend-to-linalg-on-tensors-backend-pipeline": (
        "flambeau.lowering.linalg.lower:lower_to_linalg",
        "backend contract to linalg-on-tensors",
    ),
}
"""Names to (where the pass is, what it does)."""

# Parts of upstream's pipelines that have nothing to do here: the work is done elsewhere or not needed.
_NOTHING = frozenset({"torch-match-quantized-custom-ops", "torch-fuse-quantized-ops", "torch-scalarize-shapes"})


class UnknownPass(ValueError):
    """A pipeline names a pass that does not exist."""


def get_pass(name: str) -> Pass:
    """The pass with this name."""
    if name in _NOTHING:
        return lambda module: module
    if name not in PASSES:
        import difflib

        close = difflib.get_close_matches(name, PASSES, 1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(PASSES))}"
        raise UnknownPass(f"there is no pass {name!r}{hint}")
    home, function = PASSES[name][0].split(":")
    return getattr(import_module(home), function)


_NAME = re.compile(r"[A-Za-z][\w.-]*")


def parse_pipeline(text: str) -> list[str]:
    """The pass names of `a,b` or of MLIR's `builtin.module(func.func(a),b{option=1})`, in order."""
    return list(_pass_names(text))


def _pass_names(text: str) -> Iterator[str]:
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
            if at < len(text) and text[at] == "{":
                end = text.find("}", at)
                if end < 0:
                    raise UnknownPass(f"unbalanced '{{' in the pipeline {text!r}")
                at = end + 1
            yield match.group()
    if depth:
        raise UnknownPass(f"unbalanced '(' in the pipeline {text!r}")


def run_pipeline(module: ModuleOp, pipeline: str, after: Callable[[str, ModuleOp], None] | None = None) -> ModuleOp:
    """Run the passes of a pipeline; `after(name, module)` is called behind each."""
    for name in parse_pipeline(pipeline):
        run = get_pass(name)
        with reporting(name):
            module = run(module)
        if after is not None:
            after(name, module)
    return module
