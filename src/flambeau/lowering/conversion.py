"""Lowering a module: the walk that all targets share."""

from __future__ import annotations

from typing import Any

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    FunctionType,
    ModuleOp,
    UnregisteredOp,
    i64,
)
from xdsl.dialects.builtin import TensorType as BuiltinTensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.diagnostics import Unsupported
from flambeau.dialects.torch.ops import (
    BindSymbolicShapeOp,
    ConstantOp,
    ListConstructOp,
    LiteralOp,
    SymbolicIntOp,
    TorchOp,
)
from flambeau.dialects.torch.types import BOOL, FLOAT, INT, NONE, ListType, TensorType
from flambeau.ir import dtypes
from flambeau.ir.conversion import Conversion, RuleTable
from flambeau.ir.dtypes import BY_TORCH_TYPE, DType
from flambeau.lowering.builder import INDEX, LoweringBuilder, Size, Tensor, tensor_type
from flambeau.lowering.scalars import SCALAR_RULES

INT64_MAX = (1 << 63) - 1

POISONED = object()
"""The list that an op which could not be lowered should have given."""


class Lowering(Conversion):
    """Lowers torch functions with one target's rules."""

    def __init__(self, stage: str, rules: RuleTable, builder_class: type[LoweringBuilder]) -> None:
        super().__init__()
        self.stage = stage
        self.rules = rules
        self.builder_class = builder_class
        self.builder: LoweringBuilder
        self.ranges: dict[str, tuple[int, int]] = {}

    def convert_module(self, module: ModuleOp) -> ModuleOp:
        """The lowered module; the given one is left alone."""
        functions = [self.convert_function(op) for op in module.ops if isinstance(op, func.FuncOp)]
        self.finish()
        return ModuleOp(functions)

    def convert_function(self, function: func.FuncOp) -> func.FuncOp:
        old = function.body.block
        inputs = [convert_type(a.type) for a in old.args]
        block = Block(arg_types=inputs)
        b = self.builder = self.builder_class(block)
        self.values = {}
        for old_arg, new_arg in zip(old.args, block.args, strict=True):
            new_arg.name_hint = old_arg.name_hint
            self.values[old_arg] = self._argument(old_arg.type, new_arg)
        self.convert_block(old)
        results = [v.type for v in block.last_op.operands] if block.last_op is not None else []
        converted = func.FuncOp(
            function.sym_name.data, FunctionType.from_lists(inputs, results), Region(block), function.sym_visibility
        )
        b.location = function.location
        return converted

    def _argument(self, old_type: Attribute, value: SSAValue) -> Any:
        if isinstance(old_type, TensorType):
            return Tensor(value, _dtype(old_type))
        if old_type == INT:
            return self.builder.value(arith.IndexCastOp, (value,), INDEX)
        return value

    def convert_op(self, op: Operation) -> None:
        b = self.builder
        b.location = op.location
        if isinstance(op, ConstantOp):
            self.values[op.results[0]] = op.python_value
        elif isinstance(op, ListConstructOp):
            self.values[op.results[0]] = [self.values[v] for v in op.operands]
        elif isinstance(op, LiteralOp):
            self.values[op.results[0]] = self._literal(op)
        elif isinstance(op, SymbolicIntOp):
            self.values[op.results[0]] = self._symbol(op)
        elif isinstance(op, BindSymbolicShapeOp):
            self._bind(op)
        elif isinstance(op, func.ReturnOp):
            b.emit(func.ReturnOp, [self._returned(v) for v in op.operands])
        elif isinstance(op, TorchOp):
            self._apply(op)
        else:
            raise Unsupported(f"{op.name} is not part of the backend contract")

    def _apply(self, op: TorchOp) -> None:
        if any(self.values[v] is POISONED for v in op.operands):
            self.poison(op)
            return
        name = op.overload
        rule = self.rules.get(name) or SCALAR_RULES.get(name)
        if rule is None:
            raise Unsupported(
                "no lowering rule",
                f"Add one as docs/adding-an-op.md shows, or a decomposition; `flambeau registry show {name}` "
                "prints what PyTorch says about it.",
            )
        b = self.builder
        b.outs = tuple(
            (t.shape, _dtype(t)) for r in op.results if isinstance(t := r.type, TensorType) and t.shape is not None
        )
        if len(op.results) == 1 and isinstance(op.results[0].type, ListType):
            b.out_length = next((len(u.operation.results) for u in op.results[0].uses), None)
        self.record(op, rule(b, *[self.values[v] for v in op.operands]))

    def _symbol(self, op: SymbolicIntOp) -> str:
        """Remember the range of a symbol; gives its name."""
        name: str = op.properties["symbol_name"].data  # type: ignore[attr-defined]
        low, high = (op.properties[k].value.data for k in ("min_val", "max_val"))  # type: ignore[attr-defined]
        self.ranges[f"({name})"] = (low, high)
        return name

    def _bind(self, op: BindSymbolicShapeOp) -> None:
        x = self.values.get(op.operands[0])
        if not isinstance(x, Tensor):
            return
        names = [self.values[s] for s in op.operands[1:]]
        shape_map = op.properties["shape_expressions"].data  # type: ignore[attr-defined]
        is_argument = op.operands[0].owner is op.parent
        expressions: list[str | int] = []
        for expression in shape_map.results:
            text = str(expression)
            # Longest symbol first, so that s1 does not match inside s10.
            for i in reversed(range(len(names))):
                text = text.replace(f"s{i}", f"\0{i}\0")
            for i, name in enumerate(names):
                text = text.replace(f"\0{i}\0", f"({name})")
            expressions.append(int(text) if text.lstrip("-").isdigit() else text)
        if is_argument:
            # What PyTorch assumed when it traced must hold for the sizes that the caller passes.
            for i, expression in enumerate(expressions):
                known = self.builder.symbols.get(expression) if isinstance(expression, str) else None
                if known is not None and x._sizes[i] is None:
                    self.builder.same_size(
                        known,
                        self.builder.size(x, i),
                        f"dimension {i} of an argument does not have the size {expression}",
                    )
            for i, expression in enumerate(expressions):
                if isinstance(expression, str) and x._sizes[i] is None and expression not in self.builder.symbols:
                    self._check_range(expression, self.builder.size(x, i))
        self.builder.bind_symbols(x, expressions)

    def _check_range(self, symbol: str, size: Size) -> None:
        """Guard that a size is in the range which the program was exported for."""
        low, high = self.ranges.get(symbol, (0, INT64_MAX))
        # PyTorch assumes at least 2 where nobody said anything: that is no promise to the caller.
        if low > 2:
            self.builder.guard(self.builder.compare("sge", size, low), f"the size {symbol} must be at least {low}")
        if high < INT64_MAX:
            self.builder.guard(self.builder.compare("sle", size, high), f"the size {symbol} must be at most {high}")

    def _literal(self, op: LiteralOp) -> Tensor:
        old = op.results[0].type
        assert isinstance(old, TensorType)
        dtype = _dtype(old)
        type_ = convert_type(old)
        assert isinstance(type_, BuiltinTensorType)
        value = op.value
        attr: Attribute
        if isinstance(value, DenseResourceAttr) and dtype.size == 16:
            return self._pairs(value, dtype, old.shape or ())
        if isinstance(value, DenseResourceAttr):
            attr = DenseResourceAttr(value.resource_handle, type_)
        elif isinstance(value, DenseIntOrFPElementsAttr):
            attr = DenseIntOrFPElementsAttr(type_, value.data)
        else:
            raise Unsupported(f"a literal of kind {value.name}")
        return Tensor(self.builder.dense(attr, type_), dtype)

    def _pairs(self, value: DenseResourceAttr, dtype: DType, shape: tuple[int | None, ...]) -> Tensor:
        """A complex128 weight as pairs of f64: IREE 3.13 dies of parameters with elements of 16 bytes."""
        rule = self.rules.get("aten.view_as_complex")
        if rule is None:
            raise Unsupported(f"a weight of {dtype}")
        pairs = tensor_type((*shape, 2), dtype.real.builtin)
        self.builder.outs = ((shape, dtype),)
        attr = DenseResourceAttr(value.resource_handle, pairs)
        return rule(self.builder, Tensor(self.builder.dense(attr, pairs), dtype.real))

    def _returned(self, value: SSAValue) -> SSAValue:
        b = self.builder
        new = self.values[value]
        old_type = value.type
        if isinstance(new, Tensor):
            assert isinstance(old_type, TensorType)
            assert old_type.shape is not None
            return b.cast(new, old_type.shape).value
        if isinstance(new, SSAValue):
            return b.value(arith.IndexCastOp, (new,), i64) if new.type == INDEX else new
        if old_type in (INT, FLOAT, BOOL) and isinstance(new, (int, float)):
            return b.constant(new, SCALAR_DTYPES[old_type])
        raise Unsupported(f"a result of type {old_type} cannot be returned")

    def poison(self, op: Operation) -> None:
        for result in op.results:
            if isinstance(result.type, TensorType):
                new_type = convert_type(result.type)
                placeholder = UnregisteredOp.with_name("flambeau.unsupported").create(result_types=[new_type])
                self.builder.block.add_op(placeholder)
                self.values[result] = Tensor(placeholder.results[0], _dtype(result.type))
            elif isinstance(result.type, ListType):
                self.values[result] = POISONED
            elif result.type == NONE:
                self.values[result] = None
            else:
                self.values[result] = 1


def _dtype(type_: TensorType) -> DType:
    element = type_.element_type
    dtype = BY_TORCH_TYPE.get(element) if element is not None else None
    if dtype is None:
        raise Unsupported(f"a tensor of type {type_} has no known dtype")
    return dtype


SCALAR_DTYPES: dict[Attribute, DType] = {INT: dtypes.int64, FLOAT: dtypes.float64, BOOL: dtypes.bool_}


def convert_type(type_: Attribute) -> Attribute:
    """The builtin type of a torch type: `!torch.vtensor<[2,?],si64>` is `tensor<2x?xi64>`."""
    if isinstance(type_, TensorType):
        if type_.shape is None:
            raise Unsupported(f"{type_} has no static rank")
        return tensor_type(type_.shape, _dtype(type_).builtin)
    scalar = SCALAR_DTYPES.get(type_)
    if scalar is None:
        raise Unsupported(f"{type_} cannot cross a function's border")
    return scalar.builtin
