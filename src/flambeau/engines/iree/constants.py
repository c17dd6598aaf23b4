"""Constants that are reduced, as tensors of their own.

IREE 3.13 computes a constant together with its reduction, and loses the bounds of the loop on the way: the sum of 125
ones is 8, or the program does not compile. It does so where the size is dynamic, and in StableHLO where the constant is
converted before. So dynamic constants become IREE's own op for them, and a barrier keeps static ones apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ComplexType, DenseIntOrFPElementsAttr, ModuleOp, TensorType, UnregisteredOp
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import FillOp, GenericOp
from xdsl.dialects.tensor import DimOp
from xdsl.ir import Operation, SSAValue

from flambeau.engines.iree.rewriting import builder_before, dtype_of, set_apart
from flambeau.engines.iree.stablehlo_ops import sizes_of
from flambeau.ir.builder import erase
from flambeau.lowering.builder import INDEX
from flambeau.lowering.linalg.builder import LinalgBuilder
from flambeau.lowering.whole.values import shape_in, shape_of

_SPLAT = UnregisteredOp.with_name("flow.tensor.splat")
_LITERALS = {"tosa.const": "values", "stablehlo.constant": "value", "arith.constant": "value"}
_MOVES = frozenset({f"tensor.{name}" for name in ("extract_slice", "expand_shape", "collapse_shape", "cast")})
_BROADCAST = "stablehlo.dynamic_broadcast_in_dim"


def constants_to_tensors(module: ModuleOp) -> ModuleOp:
    """Rewrite a copy of the module; return the module itself if there is nothing to do."""
    if not any(_reduced_constants(module)):
        return module
    module = module.clone()
    constants, reductions = _reduced_constants(module)
    for op in reductions:
        for i in range(len(_inputs(op))):
            set_apart(op, i)
    for op in constants:
        _replace(op)
    return module


def _reduced_constants(module: ModuleOp) -> tuple[list[Operation], list[Operation]]:
    """Find the constants of dynamic size that are reduced, and the reductions of static constants alone."""
    made_of: dict[SSAValue, frozenset[Operation]] = {}
    constants: dict[Operation, None] = {}
    reductions: list[Operation] = []
    for op in module.walk():
        if _is_count(op) or (op.name in _LITERALS and _number(op.results[0]) is not None):
            made_of[op.results[0]] = frozenset()
        elif _is_constant(op):
            made_of[op.results[0]] = frozenset({op})
        elif (inputs := _inputs(op)) and all(v in made_of for v in inputs):
            found = frozenset().union(*(made_of[v] for v in inputs))
            if not _is_reduction(op):
                made_of |= dict.fromkeys(op.results, found)
            elif any(None in shape_of(v) for v in inputs):
                constants |= dict.fromkeys(found)
            elif op.name == "stablehlo.reduce":
                reductions.append(op)
    return list(constants), reductions


def _is_count(op: Operation) -> bool:
    """Tell whether an op yields positions (an iota)."""
    if isinstance(op, GenericOp):
        return len(op.results) == 1 and not op.inputs and not _is_reduction(op)
    return op.name in ("stablehlo.iota", "stablehlo.dynamic_iota")


def _is_reduction(op: Operation) -> bool:
    if isinstance(op, GenericOp):
        return any(kind.data is IteratorType.REDUCTION for kind in op.iterator_types)
    return op.name == "stablehlo.reduce" or op.name.startswith("tosa.reduce_")


def _inputs(op: Operation) -> list[SSAValue]:
    """List the tensors that an op is computed from; empty for ops that are of no interest."""
    if isinstance(op, GenericOp):
        return list(op.inputs)
    if op.name == _BROADCAST or op.name in _MOVES:
        return list(op.operands[:1])
    if op.name == "stablehlo.reduce":
        return list(op.operands[: len(op.results)])
    if op.name.partition(".")[0] in ("stablehlo", "tosa"):
        return [v for v in op.operands if isinstance(v.type, TensorType)]
    return []


def _is_constant(op: Operation) -> bool:
    """Tell whether an op yields one number everywhere, in a tensor of dynamic size."""
    type_ = op.results[0].type if op.results else None
    if not isinstance(type_, TensorType) or isinstance(type_.element_type, ComplexType) or None not in shape_in(type_):
        return False
    if isinstance(op, FillOp):
        return True
    return op.name in (_BROADCAST, "tosa.select") and _number(op.results[0]) is not None


def _number(value: SSAValue) -> DenseIntOrFPElementsAttr | None:
    """Return the splat literal that a value repeats, else None. TOSA repeats by a select of a number or itself."""
    op = value.owner
    if not isinstance(op, Operation):
        return None
    if op.name in _LITERALS:
        literal = op.properties.get(_LITERALS[op.name])
        if not isinstance(literal, DenseIntOrFPElementsAttr) or not literal.data.data:
            return None
        return literal if literal.is_splat() else None
    if op.name == _BROADCAST:
        return _number(op.operands[0])
    return _number(op.operands[1]) if op.name == "tosa.select" and op.operands[1] is op.operands[2] else None


def _replace(op: Operation) -> None:
    b = builder_before(op)
    result = op.results[0]
    open_dims = [i for i, size in enumerate(shape_of(result)) if size is None]
    if isinstance(op, FillOp):
        number = op.operands[0]
    else:
        literal = _number(result)
        assert literal is not None
        number = b.constant(literal.get_values()[0], dtype_of(result))  # type: ignore[arg-type]
    if op.name == _BROADCAST:
        given = sizes_of(op.operands[1], b)
        sizes = [b.index(given[i]) for i in open_dims]
    else:
        tensors = [v for v in op.operands if isinstance(v.type, TensorType)]
        sizes = [_size(b, tensors, i) for i in open_dims]
    splat = _SPLAT.create(operands=[number, *sizes], result_types=[result.type], location=op.location)
    b.insert(splat)
    result.replace_all_uses_with(splat.results[0])
    erase(op)


def _size(b: LinalgBuilder, tensors: Sequence[SSAValue], dim: int) -> SSAValue:
    source = next(v for v in tensors if shape_of(v)[dim] is None)
    return b.value(DimOp, (source, b.index(dim)), INDEX)
