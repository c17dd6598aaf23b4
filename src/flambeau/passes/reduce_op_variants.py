"""ReduceOpVariants: in-place ops become their value forms and a write; value ops take and give values."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic, Unsupported, diagnostic_for
from flambeau.dialects.torch import registry
from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.ops import CopyToNonValueTensorOp, CopyToValueTensorOp, OverwriteTensorContentsOp, TorchOp
from flambeau.dialects.torch.types import (
    DictType,
    ListType,
    NonValueTensorType,
    TensorType,
    to_non_value,
    to_value,
    vtensor,
)
from flambeau.infer.builder import meta_of, python_value, rules
from flambeau.infer.promotion import refuse_lossy_write
from flambeau.infer.rules import InferenceError
from flambeau.ir.builder import erase
from flambeau.ir.module_pass import TorchPass
from flambeau.passes.evaluate.view_ops import metadata_writes, updates_statistics

# Ops whose value forms compute in a wider dtype if they are not told which, and those in place in that of the tensor.
_IN_OWN_DTYPE = frozenset({"aten.cumsum", "aten.cumprod"})

# Ops on tensor objects rather than on what they hold.
_ON_OBJECTS = frozenset(
    {
        "aten.__is__",
        "aten.__isnot__",
        "prim.TupleIndex",
        "prim.TupleUnpack",
        "prim.unchecked_cast",
        "aten.requires_grad_",
    }
)


def reduce_op_variants(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place."""
    problems: list[Diagnostic] = []
    for function in module.ops:
        if not isinstance(function, func.FuncOp) or not function.body.blocks:
            continue
        emitter = TorchEmitter(function.body.blocks[0])
        for op in list(function.walk()):
            if isinstance(op, TorchOp) and op.schema is not None and _touches_tensors(op):
                assert op.parent is not None
                emitter.block = op.parent
                _reduce(op, emitter, problems)
    if problems:
        raise CompileError(problems, summary="in-place ops without a value form")
    return module


class ReduceOpVariants(TorchPass):
    """Turn in-place ops into their value form."""

    name = "torch-reduce-op-variants"
    run = staticmethod(reduce_op_variants)


def _touches_tensors(op: Operation) -> bool:
    return any(isinstance(v.type, NonValueTensorType) for v in (*op.operands, *op.results))


def _writes_a_container(op: TorchOp) -> bool:
    """Tell whether what an op writes are lists or dictionaries."""
    assert op.schema is not None
    written = [v.type for v, a in zip(op.operands, op.schema.arguments, strict=False) if a.is_written]
    return bool(written) and all(isinstance(t, ListType | DictType) for t in written)


def _reduce(op: TorchOp, emitter: TorchEmitter, problems: list[Diagnostic]) -> None:
    schema = op.schema
    assert schema is not None
    emitter.before, emitter.location = op, op.location
    if (
        schema.name in _ON_OBJECTS
        or schema.name in metadata_writes()
        or _writes_a_container(op)
        or updates_statistics(op)
    ):
        # Value semantics needs to see these as they are.
        return
    if schema.is_inplace_variant:
        name = registry.value_form(schema.name)
        if name is None:
            problems.append(diagnostic_for(op, "reduce op variants", "this in-place op has no value form in PyTorch"))
            return
        written = op.operands[0]
        operands = _read(emitter, op.operands)
        wanted = registry.schema(name)
        assert wanted is not None
        # The value form may take more arguments, all of them optional.
        operands = operands[: len(wanted.arguments)]
        operands += [emitter.constant(a.default) for a in wanted.arguments[len(operands) :]]
        try:
            new = _computed(emitter, name, operands, to_value(written.type))
        except Unsupported as error:
            problems.append(diagnostic_for(op, "reduce op variants", error.reason))
            return
        emitter.emit(OverwriteTensorContentsOp, (new, written))
        for result in op.results:
            result.replace_all_uses_with(written)
        erase(op)
    elif schema.has_value_semantics or schema.is_read_only:
        operands = _read(emitter, op.operands)
        results = emitter.op(schema.name, operands, [to_value(r.type) for r in op.results])
        for old, new in zip(op.results, results, strict=True):
            if isinstance(old.type, NonValueTensorType):
                new = emitter.value(CopyToNonValueTensorOp, (new,), to_non_value(new.type))
            old.replace_all_uses_with(new)
        erase(op)
    elif schema.is_mutable:
        problems.append(
            diagnostic_for(op, "reduce op variants", "this op writes to its arguments and has no value form")
        )


def _computed(emitter: TorchEmitter, name: str, operands: list[SSAValue], type_: Attribute) -> SSAValue:
    """Compute what is to be written in the dtype that PyTorch computes in, then convert it to the tensor's."""
    rule = rules().get(name)
    assert isinstance(type_, TensorType)
    if name in _IN_OWN_DTYPE and type_.dtype is not None and python_value(operands[-1]) is None:
        operands = [*operands[:-1], emitter.constant(type_.dtype)]
    try:
        dtype = getattr(rule(*map(meta_of, operands)), "dtype", type_.dtype) if rule is not None else type_.dtype
    except InferenceError:
        dtype = type_.dtype
    if type_.dtype is None or dtype is None or dtype is type_.dtype:
        return emitter.op(name, operands, [type_])[0]
    refuse_lossy_write(dtype, type_.dtype)
    (wide,) = emitter.op(name, operands, [vtensor(type_.shape, dtype.torch_type)])
    false, none = emitter.constant(False), emitter.constant(None)
    return emitter.op("aten.to.dtype", (wide, emitter.constant(type_.dtype), false, false, none), [type_])[0]


def _read(emitter: TorchEmitter, operands: Iterable[SSAValue]) -> list[SSAValue]:
    return [
        emitter.value(CopyToValueTensorOp, (o,), to_value(o.type)) if isinstance(o.type, NonValueTensorType) else o
        for o in operands
    ]
