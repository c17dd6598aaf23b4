"""The evaluator: one walk over a function that re-emits it on what is known of its values.

Note [Evaluating]. Folding numbers, taking containers apart, inferring types, taking branches that are known, unrolling
loops and turning writes into values all need each other: a list's length decides a loop, the loop decides a shape, the
shape decides a branch. So they are not passes that are repeated until nothing changes any more, but one walk, in order,
that knows all of it at each op. A pass is an evaluator with some of these features.

Note [Storages and views]. Every mutable tensor is a view of a storage, which has a current value. A read applies the
chain of view ops to that value; a write goes back up the chain (views.py). In branches and loops, a storage that is
written becomes a result of the branch or loop like any other value. Where two storages may be one (a branch gave one
tensor or another), they are linked: a write to one is also a write to the other where the link's condition holds.
Where nothing tells whether a link holds, a write makes the other storage stale: to look at it is an error that names
both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue, Use

from flambeau.diagnostics import CompileError, Diagnostic, Unsupported, diagnostic_for
from flambeau.dialects.torch.constants import ConstantOp, LiteralOp
from flambeau.dialects.torch.control_flow import IfOp, LoopOp
from flambeau.dialects.torch.emitter import Device, TorchEmitter
from flambeau.dialects.torch.global_slots import GlobalSlotGetOp, GlobalSlotSetOp, InitializeGlobalSlotsOp
from flambeau.dialects.torch.ops import (
    ConstantDeviceOp,
    CopyToNonValueTensorOp,
    CopyToValueTensorOp,
    DerefineOp,
    DictConstructOp,
    ListConstructOp,
    ListUnpackOp,
    OverwriteTensorContentsOp,
    StaticInfoCastOp,
    TorchOp,
    TupleConstructOp,
    TupleUnpackOp,
    UninitializedOp,
    create_op,
)
from flambeau.dialects.torch.schema import Schema
from flambeau.dialects.torch.types import (
    ANY,
    BOOL,
    FLOAT,
    INT,
    NUMBER,
    ListType,
    NonValueTensorType,
    OptionalType,
    TensorType,
    TupleType,
    VTensorType,
    intern,
    is_subtype,
    list_of,
    to_value,
    tuple_of,
)
from flambeau.infer.builder import NUMBERS
from flambeau.infer.builder import rules as infer_rules
from flambeau.infer.rules import InferenceError, Meta, Unknown
from flambeau.ir.locations import UNKNOWN
from flambeau.passes.evaluate.branches import Branches
from flambeau.passes.evaluate.loops import Loops
from flambeau.passes.evaluate.queries import RULES
from flambeau.passes.evaluate.rules import NotKnown, Raised
from flambeau.passes.evaluate.scalars import scalar_twin
from flambeau.passes.evaluate.tensors import METADATA_WRITES, Tensors
from flambeau.passes.evaluate.values import (
    Both,
    Dict,
    Either,
    Heap,
    Known,
    List,
    Maybe,
    Storage,
    Tuple,
    Uninitialized,
    View,
)

Oracle = Callable[[Schema, Sequence[Any]], Any]
"""Says what an op without a shape rule gives, as a rule would."""


@dataclass(frozen=True)
class Features:
    """What an evaluator does."""

    infer: bool = False
    """Refine the types of tensors and numbers."""
    fold: bool = False
    """Compute with known numbers, take known branches, unroll loops."""
    containers: bool = False
    """Follow tuples, lists, dictionaries and optionals."""
    tensors: bool = False
    """Turn tensors that can be written into values."""


EVERYTHING = Features(infer=True, fold=True, containers=True, tensors=True)


class Stopped(Exception):
    """A problem that makes the rest of the walk meaningless; it has been recorded."""


class Border:
    """How a function's arguments and results look to the evaluator: as they were."""

    owns_slots = False
    """Whether the border keeps account of what is in the global slots."""

    def arguments(self, e: Evaluator, old: Block) -> None:
        """Give the new function its arguments."""
        for argument in old.args:
            new = e.t.block.insert_arg(argument.type, len(e.t.block.args))
            new.name_hint = argument.name_hint
            e.values[argument] = e.argument(new) if argument.uses else new

    def results(self, e: Evaluator, op: func.ReturnOp) -> Sequence[SSAValue]:
        """What the new function returns."""
        for storage in e.visible:
            e.look(storage)
        return [e.fit(e.values[o], o.type) for o in op.operands]


class Evaluator(Tensors, Branches, Loops):
    """Evaluates functions. A subclass may set `border`."""

    def __init__(self, stage: str, features: Features, border: Border | None = None, oracle: Oracle | None = None):
        self.stage = stage
        self.features = features
        self.border = border or Border()
        self.oracle = oracle
        self.heap = Heap()
        self.values: dict[SSAValue, Any] = {}
        self.twins: dict[SSAValue, Any] = {}
        """The number in a tensor without dims, where it is known as a number of the program."""
        self.problems: dict[Operation, Diagnostic] = {}
        self.visible: list[Storage] = []
        """The storages that others see when the function is done."""
        self.slots: dict[str, List] = {}
        """What is in the global slots that the border knows: lists of one element."""
        self.slot_types: dict[str, Attribute] = {}
        """What is in the global slots that are never set."""
        self.opaque: set[SSAValue] = set()
        """Lists that are not followed and may be written."""
        self.part_types: dict[SSAValue, list[Attribute]] = {}
        """The types of the elements of lists that are not followed."""
        self.dense: set[SSAValue] = set()
        """Values that PyTorch would hold contiguously in memory."""
        self.depth = 0
        self.attempts = 0
        self.t: TorchEmitter
        self.entry: Block
        self.refines_mutable = True
        """Whether the types of mutable tensors can be relied on: not where the program changes shapes in place."""

    # --- The walk ---

    def run(self, module: ModuleOp) -> ModuleOp:
        """Evaluate all functions of a module, in place."""
        self.slot_types = types_of_slots(module)
        for op in module.ops:
            if isinstance(op, func.FuncOp) and not op.is_declaration:
                self.run_function(op)
        if self.problems:
            raise CompileError(list(self.problems.values()), summary=_summary(self.stage, len(self.problems)))
        return module

    def run_function(self, function: func.FuncOp) -> None:
        """Evaluate a function; its body is replaced."""
        if len(function.body.blocks) != 1:
            raise CompileError([diagnostic_for(function, self.stage, "a function with several blocks")])
        old, new = function.body.block, Block()
        self.t, self.entry = TorchEmitter(new), new
        self.t.location = function.location
        self.values, self.twins, self.visible, self.slots = {}, {}, [], {}
        is_metadata_written = any(getattr(op, "overload", "") in METADATA_WRITES for op in function.walk())
        self.refines_mutable = self.features.tensors or not is_metadata_written
        self.border.arguments(self, old)
        try:
            self.walk(old)
        except Stopped:
            return
        except Raised as raised:
            self.problems[raised.op] = diagnostic_for(
                raised.op, self.stage, f"the program always raises: {raised.message}"
            )
        if not self.problems:
            region = function.body
            region.detach_block(old)
            region.add_block(new)
            inputs = [a.type for a in new.args]
            outputs = [o.type for o in new.last_op.operands] if new.last_op is not None else []
            function.function_type = FunctionType.from_lists(inputs, outputs)

    def walk(self, block: Block) -> list[Any]:
        """Evaluate the ops of a block into the current one; gives the operands of its terminator."""
        op = block.first_op
        assert op is not None
        while op is not block.last_op:
            self.t.location = op.location
            self.step(op)
            op = op.next_op
            assert op is not None
        self.t.location = op.location
        if isinstance(op, func.ReturnOp):
            self.guarded(op, lambda: self.t.emit(func.ReturnOp, self.border.results(self, op)))
        return [self.values[o] for o in op.operands]

    def step(self, op: Operation) -> None:
        """Evaluate one op."""
        self.guarded(op, lambda: self.evaluate(op))

    def guarded(self, op: Operation, action: Callable[[], Any]) -> None:
        """Turn what an op cannot do into a diagnostic, and go on to find more."""
        try:
            action()
        except Unsupported as e:
            where = e.__dict__.setdefault("op", op)
            if self.attempts:
                raise
            problem = diagnostic_for(where, self.stage, e.reason, e.hint)
            if problem.location is UNKNOWN:
                problem = replace(problem, location=e.location)
            self.problems.setdefault(op, problem)
            if op.regions:
                # What is on the heap is not known any more: further problems would only be consequences.
                raise Stopped from e
            for result in op.results:
                value = self.t.value(UninitializedOp, (), to_value(result.type))
                self.values[result] = self.wrapped(value, result.type)

    def evaluate(self, op: Operation) -> None:
        if isinstance(op, ConstantOp):
            value = op.python_value
            self.values[op.results[0]] = Known(Device(value) if isinstance(op, ConstantDeviceOp) else value)
        elif isinstance(op, IfOp):
            self.if_(op)
        elif isinstance(op, LoopOp):
            self.loop(op)
        elif not isinstance(op, TorchOp):
            self.emit_again(op)
        elif isinstance(op, StaticInfoCastOp) and self.features.infer and self.keeps_better_type(op):
            return
        elif not self.by_rule(op) and not (self.features.tensors and self.on_tensors(op)):
            self.default(op)

    def keeps_better_type(self, op: StaticInfoCastOp) -> bool:
        """Evaluate a cast that says nothing new; False for one that does."""
        value = self.values[op.operands[0]]
        have = self.view_type(value) if isinstance(value, View) else getattr(value, "type", None)
        want = op.results[0].type
        if isinstance(value, View):
            want = to_value(want)
        if have is None or not is_subtype(have, want):
            return False
        self.values[op.results[0]] = value
        return True

    def by_rule(self, op: TorchOp) -> bool:
        """Evaluate an op on containers and the like; False where it has to stay an op."""
        rule = RULES.get(op.overload) if self.features.containers else None
        if rule is None:
            return False
        values = [self.values[o] for o in op.operands]
        try:
            result = rule(self, op, *values)
        except NotKnown:
            if self.features.tensors:
                self.some_element(op, values)
            return False
        self.record(op, result)
        return True

    def some_element(self, op: TorchOp, values: Sequence[Any]) -> None:
        """Refuse an op on a container that is followed, where nothing tells which element it reads or writes."""
        containers = [v for v in values if isinstance(v, List | Dict | Tuple) and any(self.tensors_in(v))]
        if not containers or op.schema is None:
            return
        if op.schema.is_mutable or any(r.alias is not None for r in op.schema.returns):
            raise Unsupported(
                "which element of a list or dictionary this is, is known only at run time",
                "Use an index that does not depend on data, or stack the tensors and index the stack.",
            )

    def tensors_in(self, value: Any) -> Iterator[View]:
        """The tensors that a value holds."""
        if isinstance(value, View):
            yield value
        elif isinstance(value, Tuple):
            for item in value.items:
                yield from self.tensors_in(item)
        elif isinstance(value, List | Dict):
            for item in value.content:
                yield from self.tensors_in(item[1] if isinstance(value, Dict) else item)

    def record(self, op: Operation, result: Any) -> None:
        """Remember the results of an op."""
        if len(op.results) == 1:
            self.values[op.results[0]] = result
        elif op.results:
            self.values.update(zip(op.results, result, strict=True))

    # --- Ops that stay ---

    def default(self, op: TorchOp) -> None:
        """Infer what an op gives; what is known is a value, for the rest the op stays."""
        schema = op.schema
        if schema is None or isinstance(
            op, LiteralOp | ListConstructOp | TupleConstructOp | TupleUnpackOp | ListUnpackOp
        ):
            self.emit_again(op)
            return
        if schema.is_mutable and self.features.tensors:
            raise Unsupported("this op writes to its arguments and has no value form")
        args = [self.values[o] for o in op.operands]
        answers = self.inferred(schema, args) if self.features.infer or self.features.fold else None
        if self.features.fold and answers is not None and not any(map(_is_open, answers)):
            self.record(op, [self.known(a, r.type) for a, r in zip(answers, op.results, strict=True)])
            if len(op.results) == 1:
                self.values[op.results[0]] = self.values[op.results[0]][0]
            return
        operands = [self.materialize(a) for a in args]
        types = self.result_types(op, answers)
        new = create_op(op.overload, operands, types, op.location)
        self.t.insert(new)
        if self.features.tensors and self.gives_dense(schema, args):
            self.dense.update(new.results)
        for old, result in zip(op.results, new.results, strict=True):
            result.name_hint = old.name_hint
            self.values[old] = self.taken_apart(old, result, answers)
        if self.features.fold and len(new.results) == 1:
            twin = scalar_twin(self, op.overload, new.results[0].type, operands, args)
            if twin is not None:
                self.twins[new.results[0]] = twin

    def gives_dense(self, schema: Schema, args: Sequence[Any]) -> bool:
        if schema.is_view:
            return schema.name == "aten.contiguous"
        return _is_dense(schema.name) and all(map(self.is_contiguous, args))

    def taken_apart(self, old: SSAValue, result: SSAValue, answers: Sequence[Any] | None) -> Any:
        """The result of an op as a value; a list of tensors whose length is known becomes a list of values."""
        if not isinstance(old.type, ListType):
            return self.wrapped(result, old.type)
        element = old.type.element_type
        parts: list[Attribute] | None = None
        if not isinstance(element, TensorType):
            return result
        if answers is not None and isinstance(answers[0], list):
            parts = [self.tensor_type(element, m) for m in answers[0]]
        else:
            unpack = next((u.operation for u in old.uses if isinstance(u.operation, ListUnpackOp)), None)
            if unpack is not None:
                parts = [to_value(r.type) if self.features.tensors else r.type for r in unpack.results]
        if parts is None:
            return result
        if not self.features.containers:
            self.part_types[result] = parts
            return result
        unpacked = self.t.emit(ListUnpackOp, (result,), parts)
        return List(tuple(self.wrapped(r, element) for r in unpacked.results), self.depth, element_type=element)

    def known(self, answer: Any, type_: Attribute) -> Any:
        """A Python value that a rule computed."""
        if isinstance(answer, list):
            element = type_.element_type if isinstance(type_, ListType) else INT
            return List(tuple(self.known(a, element) for a in answer), self.depth, element_type=element)
        return Known(answer)

    def emit_again(self, op: Operation) -> None:
        """Emit an op as it was, on the new operands."""
        if op.regions:
            raise Unsupported(f"{op.name} has regions that are not followed")
        types = [r.type for r in op.results]
        if isinstance(op, TupleConstructOp | TupleUnpackOp | ListUnpackOp):
            # Without the rules for containers, the elements may still have better types.
            operands = [self.materialize(self.values[o]) for o in op.operands]
            types = self.types_in_container(op, operands) or types
        elif isinstance(op, CopyToValueTensorOp | CopyToNonValueTensorOp):
            operands = [self.materialize(self.values[o]) for o in op.operands]
            if not isinstance(operands[0].type, TensorType):
                raise Unsupported(f"{op.name} takes a tensor, and this is a {operands[0].type}")
            types = [intern(type(types[0]), operands[0].type.data)]
        elif isinstance(op, OverwriteTensorContentsOp):
            written = self.materialize(self.values[op.operands[1]])
            new_content = self.converted(self.materialize(self.values[op.operands[0]]), to_value(written.type))
            operands = [self.cast(new_content, to_value(written.type)), written]
        elif isinstance(op, GlobalSlotGetOp):
            operands = []
            if (
                self.features.infer
                and self.refines_mutable
                and is_subtype(self.slot_types.get(op.slot_name, ANY), types[0])
            ):
                types = [self.slot_types[op.slot_name]]
        elif isinstance(op, ListConstructOp):
            element = op.results[0].type.element_type  # type: ignore[attr-defined]
            operands = [self.materialize(self.values[o]) for o in op.operands]
            operands = [o if is_subtype(o.type, element) else self.cast(o, element) for o in operands]
        else:
            operands = [self.fit(self.values[o], o.type) for o in op.operands]
        new = type(op).create(
            operands=operands,
            result_types=types,
            properties=op.properties,
            attributes=op.attributes,
            successors=op.successors,
            location=op.location,
        )
        self.t.insert(new)
        if isinstance(op, ListConstructOp) and not all(_only_reads(use) for use in op.results[0].uses):
            self.opaque.add(new.results[0])
        for old, result in zip(op.results, new.results, strict=True):
            result.name_hint = old.name_hint
            value: SSAValue = result
            if self.features.tensors and isinstance(old.type, NonValueTensorType):
                value = self.t.value(CopyToValueTensorOp, (result,), to_value(old.type))
            self.values[old] = self.wrapped(value, old.type)

    def types_in_container(self, op: Operation, operands: Sequence[SSAValue]) -> list[Attribute] | None:
        """The result types of an op that packs or unpacks; None where nothing better is known."""
        if isinstance(op, TupleConstructOp):
            return [tuple_of([o.type for o in operands])]
        if isinstance(op, TupleUnpackOp):
            type_ = operands[0].type
            return list(type_.data) if isinstance(type_, TupleType) else None
        return self.part_types.get(operands[0])

    # --- Types ---

    def meta(self, value: Any) -> Any:
        """A value as inference rules see it."""
        if isinstance(value, Known):
            return str(value.value) if isinstance(value.value, Device) else value.value
        if isinstance(value, Tuple | List):
            items = value.items if isinstance(value, Tuple) else value.content
            return [self.meta(v) for v in items]
        if isinstance(value, View):
            return self._meta_of_type(self.view_type(value))
        if isinstance(value, SSAValue):
            owner = value.owner
            if isinstance(owner, ConstantOp):
                return owner.python_value
            if isinstance(owner, ListConstructOp) and value not in self.opaque:
                return [self.meta(v) for v in owner.operands]
            return self._meta_of_type(value.type)
        raise NotKnown

    def _meta_of_type(self, type_: Attribute) -> Any:
        if isinstance(type_, TensorType):
            if type_.shape is None or type_.dtype is None:
                raise NotKnown
            return Meta(type_.shape, type_.dtype)
        if type_ in NUMBERS:
            return Unknown(NUMBERS[type_])
        raise NotKnown

    def inferred(self, schema: Schema, args: Sequence[Any]) -> list[Any] | None:
        """What an op gives, result by result; None where nothing is known."""
        rule = infer_rules().get(schema.name)
        if rule is None and self.oracle is None:
            return None
        try:
            metas = [self.meta(a) for a in args]
        except NotKnown:
            return None
        try:
            if rule is not None:
                answer = rule(*metas)
            elif self.oracle is None or (answer := self.oracle(schema, metas)) is None:
                # An oracle that gives None cannot say.
                return None
        except InferenceError as e:
            if all(_is_static(m) for m in metas):
                raise Unsupported(str(e)) from e
            return None
        if answer is None and len(schema.returns) != 1:
            return None
        return list(answer) if isinstance(answer, tuple) else [answer]

    def tensor_type(self, declared: Attribute, answer: Any) -> Attribute:
        """The type of a tensor that is declared as one thing and inferred as another: both hold."""
        assert isinstance(declared, TensorType)
        cls = VTensorType if self.features.tensors else type(declared)
        if not isinstance(answer, Meta) or (cls is NonValueTensorType and not self.refines_mutable):
            return intern(cls, declared.data)
        shape, element = declared.data
        dims = answer.shape
        if shape is not None and len(shape) == len(dims):
            dims = tuple(d if d is not None else s for d, s in zip(dims, shape, strict=True))
        return intern(cls, (dims, answer.dtype.torch_type or element))

    def result_types(self, op: TorchOp, answers: Sequence[Any] | None) -> list[Attribute]:
        types: list[Attribute] = []
        for i, result in enumerate(op.results):
            answer = answers[i] if answers is not None else None
            if op.overload == "prim.TupleIndex" and (element := self.element_of_tuple(op)) is not None:
                types.append(element)
            elif isinstance(result.type, TensorType):
                types.append(self.tensor_type(result.type, answer))
            elif isinstance(result.type, ListType) and isinstance(result.type.element_type, TensorType):
                element = to_value(result.type.element_type) if self.features.tensors else result.type.element_type
                types.append(list_of(element))
            elif isinstance(answer, Unknown) and result.type == NUMBER and answer.kind in (int, float):
                types.append(INT if answer.kind is int else FLOAT)
            else:
                types.append(to_value(result.type) if self.features.tensors else result.type)
        return types

    def element_of_tuple(self, op: TorchOp) -> Attribute | None:
        value, index = (self.values[o] for o in op.operands)
        if isinstance(value, SSAValue) and isinstance(value.type, TupleType) and isinstance(index, Known):
            return value.type.data[index.value]
        return None

    # --- From values to SSA ---

    def materialize(self, value: Any) -> SSAValue:
        """A value as an operand."""
        match value:
            case SSAValue():
                return value
            case Known(constant):
                return self.t.constant(constant)
            case View():
                return self.read(value)
            case Tuple(items):
                elements = [self.materialize(v) for v in items]
                return self.t.value(TupleConstructOp, elements, tuple_of([v.type for v in elements]))
            case List():
                self.look(value)
                elements = [self.materialize(v) for v in value.content]
                return self.t.list(elements, self._element_type(value, elements))
            case Dict():
                self.look(value)
                pairs = [(self.materialize(k), self.materialize(v)) for k, v in value.content]
                operands = [*(k for k, _ in pairs), *(v for _, v in pairs)]
                return self.t.value(DictConstructOp, operands, value.type)
            case Maybe():
                raise Unsupported("whether this is None is known only at run time")
            case Either(options):
                first, *others = [self.materialize(option) for option in options]
                for flag in others:
                    (first,) = self.t.op("aten.__or__.bool", (first, flag), (BOOL,))
                return first
            case Both(flags):
                first, *rest = flags
                for flag in rest:
                    (first,) = self.t.op("aten.__and__.bool", (first, flag), (BOOL,))
                return first
            case Uninitialized(type_):
                return self.t.value(UninitializedOp, (), to_value(type_) if self.features.tensors else type_)
            case _:
                raise Unsupported(f"a {type(value).__name__.lower()} cannot be passed here")

    def _element_type(self, value: List, elements: Sequence[SSAValue]) -> Attribute:
        declared = value.element_type
        if isinstance(declared, OptionalType) and not isinstance(declared.element_type, TensorType):
            return declared
        if isinstance(declared, TensorType | OptionalType):
            types = {e.type for e in elements}
            if len(types) == 1 and isinstance(next(iter(types)), TensorType):
                return types.pop()
            plain = intern(VTensorType, (None, None)) if self.features.tensors else declared
            if isinstance(declared, OptionalType) and self.features.tensors:
                return intern(OptionalType, (plain,))
            return plain
        if isinstance(declared, TupleType) and elements:
            return elements[0].type
        return declared

    def fit(self, value: Any, type_: Attribute) -> SSAValue:
        """A value as an SSA value of exactly this type."""
        if isinstance(value, View) and isinstance(type_, NonValueTensorType):
            storage = value.storage
            if storage.argument is not None and not value.steps and storage.stale is None:
                return storage.argument
            new = self.t.value(CopyToNonValueTensorOp, (read := self.read(value),), _mutable(read.type))
            return self.cast(new, type_)
        if isinstance(value, Tuple) and isinstance(type_, TupleType):
            elements = [self.fit(v, t) for v, t in zip(value.items, type_.data, strict=True)]
            return self.t.value(TupleConstructOp, elements, type_)
        if isinstance(value, List) and isinstance(type_, ListType):
            self.look(value)
            return self.t.list([self.fit(v, type_.element_type) for v in value.content], type_.element_type)
        if isinstance(value, Known) and isinstance(type_, OptionalType) and value.value is not None:
            return self.cast(self.fit(value, type_.element_type), type_)
        return self.cast(self.materialize(value), type_)

    def cast(self, value: SSAValue, type_: Attribute) -> SSAValue:
        """The same value with another type."""
        have = value.type
        if have == type_ or not isinstance(have, Attribute):
            return value
        if isinstance(have, TensorType) and isinstance(type_, TensorType):
            if type(have) is not type(type_):
                op = CopyToValueTensorOp if isinstance(have, NonValueTensorType) else CopyToNonValueTensorOp
                value = self.t.value(op, (value,), intern(type(type_), have.data))
            return value if value.type == type_ else self.t.value(StaticInfoCastOp, (value,), type_)
        if isinstance(have, TupleType) and isinstance(type_, TupleType) and not is_subtype(have, type_):
            parts = self.t.emit(TupleUnpackOp, (value,), have.data).results
            return self.t.value(
                TupleConstructOp, [self.cast(p, t) for p, t in zip(parts, type_.data, strict=True)], type_
            )
        return self.t.value(DerefineOp, (value,), type_)


_STRUCTURAL = (LiteralOp, ListConstructOp, ListUnpackOp, TupleConstructOp, TupleUnpackOp)
_ORDER_UNKNOWN = (
    "einsum", "tensordot", "scaled_dot_product_attention", "index.", "linalg_", "fft_", "stft", "istft", "lstm", "gru",
    "rnn", "nonzero", "unique", "rot90", "bilinear", "_native_multi_head", "sort", "topk",
)  # fmt: skip
"""Beginnings of the names of ops whose results may not be contiguous, though their arguments are."""


@cache
def _is_dense(name: str) -> bool:
    """Whether an op gives contiguous tensors for contiguous ones."""
    return not name.removeprefix("aten.").startswith(_ORDER_UNKNOWN)


def _mutable(type_: Attribute) -> Attribute:
    assert isinstance(type_, TensorType)
    return intern(NonValueTensorType, type_.data)


def types_of_slots(module: ModuleOp) -> dict[str, Attribute]:
    """The types of the tensors in global slots that the program never sets."""
    found: dict[str, Attribute] = {}
    for op in module.walk():
        if isinstance(op, InitializeGlobalSlotsOp):
            found.update((n, v.type) for n, v in op.initial_values if isinstance(v.type, TensorType))
    for op in module.walk():
        if isinstance(op, GlobalSlotSetOp):
            found.pop(op.slot_name, None)
    return found


def _only_reads(use: Use) -> bool:
    """Whether an op only looks at a list that it takes."""
    schema = getattr(use.operation, "schema", None)
    if schema is None or use.index >= len(schema.arguments):
        return False
    return schema.arguments[use.index].alias is None


def _is_open(answer: Any) -> bool:
    """Whether an answer leaves something to the run time."""
    if isinstance(answer, list):
        return any(map(_is_open, answer))
    return isinstance(answer, Meta | Unknown)


def _is_static(meta: Any) -> bool:
    if isinstance(meta, list):
        return all(map(_is_static, meta))
    if isinstance(meta, Meta):
        return None not in meta.shape
    return not isinstance(meta, Unknown)


def _summary(stage: str, count: int) -> str:
    return f"cannot {stage}: {count} problem{'s' if count != 1 else ''}"
