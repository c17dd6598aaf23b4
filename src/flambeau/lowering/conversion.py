"""Lowering a module: the walk that all targets share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import (
    DenseIntOrFPElementsAttr,
    DenseResourceAttr,
    FunctionType,
    ModuleOp,
    UnregisteredOp,
    f64,
    i1,
    i64,
)
from xdsl.dialects.builtin import TensorType as BuiltinTensorType
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineBinaryOpExpr, AffineConstantExpr, AffineExpr, AffineSymExpr

from flambeau.diagnostics import Unsupported, user_rule
from flambeau.dialects.torch.ops import (
    BindSymbolicShapeOp,
    ConstantOp,
    IfOp,
    IfYieldOp,
    ListConstructOp,
    LiteralOp,
    LoopConditionOp,
    LoopOp,
    RuntimeAssertOp,
    StaticInfoCastOp,
    SymbolicIntOp,
    TorchOp,
)
from flambeau.dialects.torch.types import BOOL, FLOAT, INT, NONE, ListType, TensorType
from flambeau.infer.builder import unknown_numbers
from flambeau.ir import dtypes
from flambeau.ir.conversion import Conversion, RuleTable
from flambeau.ir.dtypes import BY_TORCH_TYPE, INT64_MAX, DType
from flambeau.ir.plugins import over
from flambeau.lowering.builder import INDEX, LoweringBuilder, RuleContext, Size, Tensor, static, tensor_type
from flambeau.lowering.mixed import CONVERSIONS, is_builtin, lower_mixed
from flambeau.lowering.scalars import SCALAR_RULES, as_float
from flambeau.lowering.whole.rules import layered
from flambeau.passes.decompose import legalize

POISONED = object()
"""The list that an op which could not be lowered should have given."""


class Lowering(Conversion):
    """Lowers torch functions with one target's rules."""

    unknown_numbers = staticmethod(unknown_numbers)

    def __init__(
        self,
        stage: str,
        rules: RuleTable,
        make_builder: Callable[[Block], LoweringBuilder],
        external: RuleTable | None = None,
    ) -> None:
        """Take a target's rules; those that others have added come before them, and `external` before all."""
        super().__init__()
        self.stage = stage
        self.rules = layered(rules.name, over(rules), external) if external else over(rules)
        self.make_builder = make_builder
        self.builder: LoweringBuilder
        self.ranges: dict[str, tuple[int, int]] = {}

    def convert_module(self, module: ModuleOp) -> ModuleOp:
        """Lower a copy of a module. What the rules do not take whole is decomposed first."""
        module = legalize(module, self.rules)
        functions = [self.convert_function(op) for op in module.ops if isinstance(op, func.FuncOp)]
        self.finish()
        return ModuleOp(functions)

    def convert_function(self, function: func.FuncOp) -> func.FuncOp:
        old = function.body.block
        inputs = [_argument_type(a) for a in old.args]
        block = Block(arg_types=inputs)
        b = self.builder = self.make_builder(block)
        b.rules = self.rules
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
        elif isinstance(op, IfOp):
            self._if(op)
        elif isinstance(op, LoopOp):
            self._loop(op)
        elif isinstance(op, IfYieldOp | LoopConditionOp):
            return
        elif isinstance(op, StaticInfoCastOp):
            self.values[op.results[0]] = self._cast(op)
        elif isinstance(op, RuntimeAssertOp):
            b.guard(self.values[op.operands[0]], op.properties["message"].data)  # type: ignore[attr-defined]
        elif isinstance(op, func.ReturnOp):
            b.emit(func.ReturnOp, [self._returned(v) for v in op.operands])
        elif isinstance(op, TorchOp) and not isinstance(op, CONVERSIONS):
            self._apply(op)
        else:
            self._record_all(op, lower_mixed(b, op, self.values))

    def _apply(self, op: TorchOp) -> None:
        if any(self.values[v] is POISONED for v in op.operands):
            self.poison(op)
            return
        name = op.overload
        rule = self.rules.get(name) or SCALAR_RULES.get(name)
        if rule is None:
            raise Unsupported("no lowering rule", _how_to_add(op))
        b, self.rule = self.builder, rule
        b.context = _context(op)
        self.record(op, rule(b, *[self.values[v] for v in op.operands]))
        for result in op.results:
            if isinstance(result.type, TensorType):
                _require(self.values[result], result.type, b.narrowed, user_rule(rule))

    # --- Branches and loops ---

    def _if(self, op: IfOp) -> None:
        condition = self.values[op.condition]
        if isinstance(condition, bool):
            self._record_all(op, self._region(op.then_block if condition else op.else_block))
            return
        types = [border_type(r.type) for r in op.results]
        regions = []
        for old in (op.then_block, op.else_block):
            block = Block()
            with self._inside(block):
                results = self._region(old)
                self.builder.emit(scf.YieldOp, self._operands(results, op.results))
            regions.append(Region(block))
        new = self.builder.emit(scf.IfOp, (condition,), types, regions=regions)
        self._record_all(op, self._carried(new.results, op.results))

    def _loop(self, op: LoopOp) -> None:
        b = self.builder
        trip, going, *inits = [self.values[o] for o in op.operands]
        end = op.body.last_op
        assert end is not None
        counted = isinstance(end.operands[0].owner, ConstantOp) and end.operands[0].owner.python_value is True
        first = self._operands(inits, op.results)
        if going is True and counted:
            block = Block(arg_types=[INDEX, *(v.type for v in first)])
            b.counts_to(block.args[0], trip)
            with self._inside(block):
                b.emit(scf.YieldOp, self._operands(self._body(op, block.args[0], block.args[1:])[1:], op.results))
            bounds = [b.index(0), b.index(trip), b.index(1)]
            new: Operation = b.emit(scf.ForOp, [*bounds, *first], [v.type for v in first], regions=[Region(block)])
            self._record_all(op, self._carried(new.results, op.results))
            return
        start = [b.index(0), self._flag(going), *first]
        types = [v.type for v in start]
        before, after = Block(arg_types=types), Block(arg_types=types)
        with self._inside(before):
            flag: SSAValue = before.args[1]
            # TorchScript gives a `while` the largest number there is as its trip count.
            if not isinstance(trip, int) or trip < INT64_MAX:
                in_range = b.compare("slt", before.args[0], trip)
                flag = b.value(arith.AndIOp, (self._flag(in_range), flag), i1)
            b.emit(scf.ConditionOp, (flag, *before.args))
        with self._inside(after):
            again, *results = self._body(op, after.args[0], after.args[2:])
            following = b.index(b.add(after.args[0], 1))
            b.emit(scf.YieldOp, (following, self._flag(again), *self._operands(results, op.results)))
        new = b.emit(scf.WhileOp, start, types, regions=[Region(before), Region(after)])
        self._record_all(op, self._carried(new.results[2:], op.results))

    def _body(self, op: LoopOp, index: SSAValue, carried: Sequence[SSAValue]) -> list[Any]:
        """Lower the body of a loop: whether it goes on, and the next values."""
        self.values[op.body.args[0]] = index
        self.values.update(zip(op.body.args[1:], self._carried(carried, op.results), strict=True))
        return self._region(op.body)

    @contextmanager
    def _inside(self, block: Block) -> Iterator[None]:
        outer = self.builder.block
        self.builder.block = block
        try:
            yield
        finally:
            self.builder.block = outer

    def _region(self, block: Block) -> list[Any]:
        """Lower a block where the builder stands; gives the operands of its terminator."""
        self.convert_block(block)
        assert block.last_op is not None
        return [self.values[o] for o in block.last_op.operands]

    def _record_all(self, op: Operation, results: Sequence[Any]) -> None:
        self.values.update(zip(op.results, results, strict=True))

    def _flag(self, value: bool | SSAValue) -> SSAValue:
        return self.builder.constant(value, dtypes.bool_) if isinstance(value, bool) else value

    def _operands(self, values: Sequence[Any], like: Sequence[SSAValue]) -> list[SSAValue]:
        """Convert values to operands of a terminator or a loop, with the types that the program gives them."""
        return [self._operand(v, r.type) for v, r in zip(values, like, strict=True)]

    def _operand(self, value: Any, type_: Attribute) -> SSAValue:
        b = self.builder
        if isinstance(value, Tensor):
            assert isinstance(type_, TensorType)
            assert type_.shape is not None
            return b.cast(value, type_.shape).value
        if type_ == INT:
            return b.index(value)
        if type_ == FLOAT:
            return as_float(b, value).value
        if type_ == BOOL:
            return self._flag(value)
        raise Unsupported(f"a branch or a loop cannot give a {type_}")

    def _carried(self, values: Sequence[SSAValue], like: Sequence[SSAValue]) -> list[Any]:
        return [
            Tensor(v, _dtype(r.type)) if isinstance(r.type, TensorType) else v
            for v, r in zip(values, like, strict=True)
        ]

    def _cast(self, op: StaticInfoCastOp) -> Any:
        x, type_ = self.values[op.operands[0]], op.results[0].type
        assert isinstance(type_, TensorType)
        if type_.shape is None:
            return x
        for i, size in enumerate(type_.shape):
            if size is not None and static(x._sizes[i]) is None:
                self.builder.same_size(self.builder.size(x, i), size, f"dimension {i} must be {size}")
        return self.builder.cast(x, type_.shape)

    def _symbol(self, op: SymbolicIntOp) -> str:
        """Remember the range of a symbol; gives its name."""
        name: str = op.properties["symbol_name"].data  # type: ignore[attr-defined]
        if any(not isinstance(use.operation, BindSymbolicShapeOp) for use in op.results[0].uses):
            raise Unsupported(f"the symbol {name} only names sizes: it has no value", "aten.size.int gives a size.")
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
        expressions = [_named(expression, names) for expression in shape_map.results]
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
        if isinstance(value, DenseResourceAttr):
            attr = DenseResourceAttr(value.resource_handle, type_)
        elif isinstance(value, DenseIntOrFPElementsAttr):
            attr = DenseIntOrFPElementsAttr(type_, value.data)
        else:
            raise Unsupported(f"a literal of kind {value.name}")
        return Tensor(self.builder.dense(attr, type_), dtype)

    def _returned(self, value: SSAValue) -> SSAValue:
        b = self.builder
        new = self.values[value]
        old_type = value.type
        if isinstance(new, Tensor) and isinstance(old_type, TensorType) and old_type.shape is not None:
            return b.cast(new, old_type.shape).value
        if isinstance(new, SSAValue):
            return b.value(arith.IndexCastOp, (new,), i64) if old_type == INT and new.type == INDEX else new
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
            elif result.type == BOOL:
                self.values[result] = True
            else:
                self.values[result] = 1


def _how_to_add(op: TorchOp) -> str:
    """Say what to do about an op without a rule: one of PyTorch's, or one of somebody else's."""
    if op.schema is None:
        return (
            "Add one with @flambeau.lower or @flambeau.decompose, as docs/custom-ops.md shows; or leave it to the "
            f"engine, compile(..., external=[{op.overload!r}])."
        )
    return (
        f"Add one as docs/adding-an-op.md shows, or a decomposition; `flambeau registry show {op.overload}` "
        "prints what PyTorch says about it."
    )


def _context(op: TorchOp) -> RuleContext:
    """Collect the result types that the rule of an op may ask for."""
    results = tuple(
        (t.shape, _dtype(t)) for r in op.results if isinstance(t := r.type, TensorType) and t.shape is not None
    )
    if len(op.results) == 1 and isinstance(op.results[0].type, ListType):
        return RuleContext(results, next((len(u.operation.results) for u in op.results[0].uses), None))
    return RuleContext(results)


def _require(value: Any, type_: TensorType, narrowed: Mapping[DType, DType], rule: str) -> None:
    """Raise if a rule's result is not of the type that the program declares; `rule` is the rule's place."""
    place = f" (the rule is at {rule})" if rule else ""
    if not isinstance(value, Tensor):
        raise Unsupported(f"the rule gives {value!r} where the program has a {type_}{place}")
    shape = type_.shape
    if shape is None:
        return
    fits = len(shape) == len(value.shape) and all(
        a == b or a is None or b is None for a, b in zip(shape, value.shape, strict=True)
    )
    dtype = _dtype(type_)
    if not fits or value.dtype not in (dtype, narrowed.get(dtype)):
        sizes = ",".join("?" if d is None else str(d) for d in value.shape)
        raise Unsupported(f"this gives a tensor [{sizes}] of {value.dtype}, and the program says {type_}{place}")


def _dtype(type_: TensorType) -> DType:
    element = type_.element_type
    dtype = BY_TORCH_TYPE.get(element) if element is not None else None
    if dtype is None:
        raise Unsupported(f"a tensor of type {type_} has no known dtype")
    return dtype


SCALAR_DTYPES: dict[Attribute, DType] = {INT: dtypes.int64, FLOAT: dtypes.float64, BOOL: dtypes.bool_}


def _argument_type(argument: SSAValue) -> Attribute:
    """Return the builtin type of a function's argument; Unsupported, with its name, if it has none."""
    if is_builtin(argument.type):
        return argument.type
    try:
        return convert_type(argument.type)
    except Unsupported as e:
        name = f" %{argument.name_hint}" if argument.name_hint else ""
        raise Unsupported(f"the argument{name}: {e.reason}", e.hint) from e


def border_type(type_: Attribute) -> Attribute:
    """Return the builtin type of a value that a branch or a loop yields; Unsupported if it has none."""
    if isinstance(type_, TensorType):
        return convert_type(type_)
    found = {INT: INDEX, FLOAT: f64, BOOL: i1}.get(type_)
    if found is None:
        raise Unsupported(f"a branch or a loop cannot give a {type_}")
    return found


def _named(expression: AffineExpr, names: Sequence[str]) -> str | int:
    """Write a size in the names of its symbols, `((s0) * 2)`: equal sizes have equal texts. Constants are numbers."""
    if isinstance(expression, AffineConstantExpr):
        return expression.value
    if isinstance(expression, AffineSymExpr):
        return f"({names[expression.position]})"
    assert isinstance(expression, AffineBinaryOpExpr)
    return f"({_named(expression.lhs, names)} {expression.kind.value} {_named(expression.rhs, names)})"


def convert_type(type_: Attribute) -> Attribute:
    """Convert a torch type to the builtin one: `!torch.vtensor<[2,?],si64>` to `tensor<2x?xi64>`."""
    if isinstance(type_, TensorType):
        if type_.shape is None:
            raise Unsupported(f"{type_} has no static rank")
        return tensor_type(type_.shape, _dtype(type_).builtin)
    scalar = SCALAR_DTYPES.get(type_)
    if scalar is None:
        raise Unsupported(f"{type_} cannot cross a function's border")
    return scalar.builtin
