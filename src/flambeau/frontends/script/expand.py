"""What PyTorch knows about ops that we have no rule for: their result types, and how they decompose.

Both run the op on fake tensors, which have shapes and dtypes and no contents. Sizes that are not known are symbols.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from flambeau.dialects.torch.emitter import TorchEmitter
from flambeau.dialects.torch.enums import MEMORY_FORMATS
from flambeau.dialects.torch.ops import BindSymbolicShapeOp, CopyToValueTensorOp, ListUnpackOp, SymbolicIntOp, TorchOp
from flambeau.dialects.torch.schema import Schema, SchemaType
from flambeau.dialects.torch.types import ListType, NonValueTensorType, TensorType, to_value
from flambeau.frontends.fx.importer import GraphImporter
from flambeau.infer.builder import python_value
from flambeau.infer.rules import Meta, Unknown
from flambeau.ir import dtypes
from flambeau.ir.builder import erase
from flambeau.ir.dtypes import BY_CODE
from flambeau.ir.module import Weights

_LIKELY = 7
"""The size with which a symbol is born; ops must not look at it."""


class Fakes:
    """Fake tensors of one op."""

    def __init__(self) -> None:
        self.env = ShapeEnv(specialize_zero_one=False)
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.count = 0

    def tensor(self, shape: Sequence[int | None], dtype: dtypes.DType) -> torch.Tensor:
        """Make a fake tensor; each size that is None is a symbol of its own."""
        self.count += 1
        sizes = [d if d is not None else _LIKELY + self.count + i for i, d in enumerate(shape)]
        real = torch.empty(sizes, dtype=dtype.torch, device="meta")
        if None not in shape:
            with self.mode:
                return torch.empty(sizes, dtype=dtype.torch)
        kinds = [DimDynamic.STATIC if d is not None else DimDynamic.DYNAMIC for d in shape]
        context: Any = StatelessSymbolicContext(dynamic_sizes=kinds)
        from torch._dynamo.source import ConstantSource

        source: Any = ConstantSource(f"_tensor{self.count}")
        made = self.mode.from_tensor(real, symbolic_context=context, source=source)
        with self.mode:
            return torch.empty(made.shape, dtype=dtype.torch)


def overload_of(name: str) -> Any:
    """Look up an overload such as `torch.ops.aten.add.Tensor`; None where the installed PyTorch lacks it."""
    namespace, base, *overload = name.split(".", 2)
    try:
        packet = getattr(getattr(torch.ops, namespace), base)
        return getattr(packet, overload[0] if overload else "default")
    except (AttributeError, RuntimeError):
        return None


def python_argument(type_: SchemaType, value: Any) -> Any:
    """Convert a constant of the torch dialect to PyTorch's argument: codes of dtypes and layouts to their objects."""
    if isinstance(value, list):
        return [python_argument(SchemaType(type_.base), v) for v in value]
    if isinstance(value, int) and not isinstance(value, bool):
        if type_.base == "ScalarType":
            return BY_CODE[value].torch if value in BY_CODE else value
        if type_.base == "Layout":
            return torch.strided
        if type_.base == "MemoryFormat":
            return _MEMORY_FORMATS.get(value, torch.contiguous_format)
    if type_.base == "Device" and isinstance(value, str):
        return torch.device("cpu")
    return value


_MEMORY_FORMATS = {code: getattr(torch, name) for name, code in MEMORY_FORMATS.items()}


def infer_with_pytorch(schema: Schema, metas: Sequence[Any]) -> Any:
    """Ask PyTorch's fake kernels for an op's results; None where they cannot say."""
    target = overload_of(schema.name)
    if target is None or schema.is_mutable:
        return None
    fakes = Fakes()

    def lift(value: Any) -> Any:
        if isinstance(value, Meta):
            return fakes.tensor(value.shape, value.dtype)
        if isinstance(value, list):
            return [lift(v) for v in value]
        if isinstance(value, Unknown):
            raise NotImplementedError
        return value

    try:
        values = [python_argument(a.type, lift(m)) for a, m in zip(schema.arguments, metas, strict=True)]
        positional = [v for a, v in zip(schema.arguments, values, strict=True) if not a.kwarg_only]
        named = {a.name: v for a, v in zip(schema.arguments, values, strict=True) if a.kwarg_only}
        with torch.no_grad(), fakes.mode, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is not the user who calls them
            return _metas(target(*positional, **named))
    except (NotImplementedError, RuntimeError, TypeError, ValueError, IndexError, AssertionError):
        # So fake kernels refuse what they cannot say; the type stays unknown, and whoever needs it says so.
        return None


def _metas(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        dtype = dtypes.from_torch(result.dtype)
        if dtype is None:
            raise NotImplementedError
        return Meta(tuple(d if isinstance(d, int) else None for d in result.shape), dtype)
    if isinstance(result, tuple):
        return tuple(_metas(r) for r in result)
    if isinstance(result, list):
        return [_metas(r) for r in result]
    if isinstance(result, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return Unknown(int if isinstance(result, torch.SymInt) else float)
    raise NotImplementedError


def expand_ops(module: ModuleOp, weights: Weights, keep: Callable[[str], bool]) -> None:
    """Replace the ops that nobody downstream takes by PyTorch's decompositions of them, in place."""
    for op in list(module.walk()):
        if isinstance(op, TorchOp) and op.schema is not None and not keep(op.overload) and _gives_tensors(op):
            _expand(op, op.schema, weights, keep)


def _gives_tensors(op: Operation) -> bool:
    return any(isinstance(r.type, TensorType | ListType) for r in op.results)


def _expand(op: TorchOp, schema: Schema, weights: Weights, keep: Callable[[str], bool]) -> None:
    target = overload_of(schema.name)
    if target is None or schema.is_mutable or schema.is_vararg:
        return
    fakes, graph, block = Fakes(), Graph(), Block()
    importer = GraphImporter(block, weights, keep)
    inputs: dict[SSAValue, Node] = {}

    def lift(type_: SchemaType, value: Any) -> Any:
        value = python_value(value) if isinstance(value, SSAValue) else value
        if isinstance(value, list):
            return [lift(SchemaType(type_.base), v) for v in value]
        if not isinstance(value, SSAValue):
            return python_argument(type_, value)
        if value not in inputs:
            kind = value.type
            if not isinstance(kind, TensorType) or kind.shape is None or kind.dtype is None:
                raise NotImplementedError
            inputs[value] = node = graph.placeholder(f"x{len(inputs)}")
            node.meta["val"] = fakes.tensor(kind.shape, kind.dtype)
            importer.values[node] = value
        return inputs[value]

    try:
        values = [lift(a.type, o) for a, o in zip(schema.arguments, op.operands, strict=True)]
        positional = tuple(v for a, v in zip(schema.arguments, values, strict=True) if not a.kwarg_only)
        named = {a.name: v for a, v in zip(schema.arguments, values, strict=True) if a.kwarg_only}
        node = graph.call_function(target, positional, named)
        with torch.no_grad(), fakes.mode, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = torch.fx.node.map_arg((positional, named), lambda n: n.meta["val"])
            node.meta["val"] = target(*plain[0], **plain[1])
        graph.output(node)
        result = importer.resolve(importer.import_nodes(graph, None))
    except Exception:
        # PyTorch raises whatever it likes for a call that is wrong. The op stays, and the lowering says so.
        return
    new = result if isinstance(result, list) and len(op.results) > 1 else [result]
    if importer.problems or len(new) != len(op.results):
        return
    _splice(op, block, new)


def _splice(op: TorchOp, block: Block, new: Sequence[Any]) -> None:
    """Put the ops of a block in the place of one op."""
    around = op.parent
    assert around is not None
    for inner in list(block.ops):
        inner.detach()  # type: ignore[no-untyped-call]
        if isinstance(inner, BindSymbolicShapeOp | SymbolicIntOp):
            # These symbols are the op's own, and mean nothing outside.
            inner.erase()
            continue
        inner.location = op.location
        around.insert_ops_before((inner,), op)
    emitter = TorchEmitter(around)
    emitter.before, emitter.location = op, op.location
    for old, value in zip(op.results, new, strict=True):
        if isinstance(value, list):
            for use in list(old.uses):
                if isinstance(use.operation, ListUnpackOp):
                    for unpacked, element in zip(use.operation.results, value, strict=True):
                        unpacked.replace_all_uses_with(element)
                    erase(use.operation)
            if old.uses:
                listed = emitter.list(value, old.type.element_type)  # type: ignore[attr-defined]
                old.replace_all_uses_with(listed)
        else:
            if isinstance(value.type, NonValueTensorType):
                value = emitter.value(CopyToValueTensorOp, (value,), to_value(value.type))
            old.replace_all_uses_with(value)
    erase(op)
