"""Scalars as tensors without dims, so that a static program has ops of its target alone.

Rules compute with Python's numbers on scalars of `arith`, and put branches and loops into `scf`. Where all shapes are
known, what is left of these scalars is made of constants, of elements that are taken out of tensors, and of what
branches give and loops carry: each op gets a twin on tensors without dims, and an `index` is a 64-bit integer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic

from xdsl.dialects import arith, cf, func, scf, tensor
from xdsl.dialects.builtin import AnyFloat, ComplexType, IndexType, IntegerType, TensorType, i1
from xdsl.dialects.complex import ConstantOp as ComplexConstantOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue

from flambeau.ir.builder import erase
from flambeau.lowering.builder import CMP_PROPERTIES, tensor_type
from flambeau.lowering.whole.builder import TargetT, WholeBuilder
from flambeau.lowering.whole.values import POSITION, element_of, shape_in

_SCALAR = IndexType | IntegerType | AnyFloat | ComplexType
_FOLDS: dict[str, Callable[..., Any]] = {
    "arith.addi": lambda x, y: x + y,
    "arith.subi": lambda x, y: x - y,
    "arith.muli": lambda x, y: x * y,
    "arith.index_cast": lambda x: x,
    "arith.sitofp": float,
}
"""Ops on known numbers, which are nearly all that a static program has."""


def is_static(function: func.FuncOp) -> bool:
    """Tell whether all tensors of a function have static shapes; scalars may be inside, not at its border."""
    type_ = function.function_type
    if not all(isinstance(t, TensorType) for t in (*type_.inputs, *type_.outputs)):
        return False
    return not any(is_open(v.type) for op in function.walk() for v in (*op.results, *op.operands))


def is_open(type_: Attribute) -> bool:
    """Tell whether a type is that of a tensor with a size that only the run time knows."""
    return isinstance(type_, TensorType) and None in shape_in(type_)


class ScalarTwins(ABC, Generic[TargetT]):
    """The scalars of one function, and the tensors that stand for them. A target says what its ops are."""

    def __init__(self, b: WholeBuilder[TargetT]) -> None:
        self.b = b
        self.target = b.target
        self.numbers: dict[SSAValue, Any] = {}
        """Scalars that are known."""
        self.tensors: dict[SSAValue, SSAValue] = {}
        """The other scalars, and their twins."""
        self.done: list[Operation] = []
        """Ops that have a twin, in the order of their uses."""
        self.arguments: list[BlockArgument] = []
        """Scalars that blocks took, in place of which they take tensors."""

    def rewrite(self) -> None:
        """Give each op on scalars a twin, in all regions of the function, and erase it."""
        self._convert_block(self.b.entry)
        for op in reversed(self.done):
            erase(op)
        for argument in self.arguments:
            argument.block.erase_arg(argument)

    # --- What a target gives ---

    @abstractmethod
    def check(self, op: cf.AssertOp) -> None:
        """Put a check on a tensor in place of one on a scalar."""

    @abstractmethod
    def extract(self, x: SSAValue, indices: Sequence[SSAValue]) -> SSAValue:
        """Take one element out of a tensor, as a tensor without dims."""

    @abstractmethod
    def join(self, parts: Sequence[SSAValue], type_: TensorType[Any]) -> SSAValue:
        """Build a tensor from its elements, which are tensors without dims."""

    @abstractmethod
    def terminate(self, values: Sequence[SSAValue]) -> None:
        """End a region with what it gives."""

    @abstractmethod
    def branch(self, condition: SSAValue, regions: Sequence[Region], types: Sequence[Attribute]) -> Operation:
        """Build a branch from its regions, which take nothing and may use what is outside of them."""

    @abstractmethod
    def loop(self, starts: Sequence[SSAValue], regions: Sequence[Region]) -> Operation:
        """Build a loop from the regions of its condition and its body, which take what is carried."""

    # --- The walk ---

    def _convert_block(self, block: Block) -> None:
        for op in list(block.ops):
            self._stand(block, op)
            self._convert(op)

    def _stand(self, block: Block, before: Operation | None) -> None:
        """Let ops that are built from here on stand before an op of a block, or at the end of it."""
        self.b.block, self.b.before = block, before
        if before is not None:
            self.b.location = before.location

    def _convert(self, op: Operation) -> None:
        match op:
            case cf.AssertOp():
                self.check(op)
            case scf.IfOp():
                self._convert_if(op)
            case scf.ForOp():
                self._convert_for(op)
            case scf.WhileOp():
                self._convert_while(op)
            case tensor.ExtractOp():
                self._replace(op, [self.extract(op.operands[0], op.operands[1:])])
            case tensor.FromElementsOp():
                type_: Any = op.result.type
                self._replace(op, [self.join([self.twin(v) for v in op.operands], type_)])
            case arith.ConstantOp() if not isinstance(op.result.type, TensorType):
                attr: Any = op.value
                self._know(op, attr.value.data)
            case ComplexConstantOp():
                pair: Any = op.properties["value"]
                self._know(op, complex(*(part.value.data for part in pair.data)))
            case _ if len(op.results) == 1 and isinstance(op.results[0].type, _SCALAR):
                self._convert_scalar(op)
            case _ if not isinstance(op, scf.YieldOp | scf.ConditionOp):
                self.keep(op)

    def _convert_scalar(self, op: Operation) -> None:
        result, fold = op.results[0], _FOLDS.get(op.name)
        if fold is not None and all(v in self.numbers for v in op.operands):
            self._know(op, fold(*(self.numbers[v] for v in op.operands)))
            return
        operands = [self.twin(v) for v in op.operands]
        element = self.b.dtype_of(result.type).builtin
        self._replace(op, [self.target.apply(op.name, operands, element, op.properties)])

    def keep(self, op: Operation) -> None:
        """Leave an op that has no twin, with elements of tensors for the scalars that it takes."""
        for i, value in enumerate(op.operands):
            if value in self.numbers or value in self.tensors:
                op.operands[i] = self._scalar(value)

    def _scalar(self, value: SSAValue) -> SSAValue:
        """Extract the element of the tensor that stands for a scalar, in the scalar's own type."""
        twin, wanted = self.twin(value), value.type
        element = self.b.emit(tensor.ExtractOp, (twin,), (element_of(twin),)).results[0]
        if element.type == wanted:
            return element
        # An integer in fewer bits, or an index.
        cast = arith.IndexCastOp if isinstance(wanted, IndexType) else arith.ExtSIOp
        return self.b.emit(cast, (element,), (wanted,)).results[0]

    def _know(self, op: Operation, number: Any) -> None:
        self.numbers[op.results[0]] = number
        self.done.append(op)

    def _replace(self, op: Operation, results: Sequence[SSAValue]) -> None:
        """Let tensors stand for the results of an op, which goes when all is converted."""
        for old, new in zip(op.results, results, strict=True):
            if isinstance(old.type, TensorType):
                old.replace_all_uses_with(new)
            else:
                self.tensors[old] = new
        self.done.append(op)

    def twin(self, value: SSAValue) -> SSAValue:
        """Return the 0-d tensor that stands for a scalar; a tensor stands for itself."""
        if value in self.numbers:
            return self.target.splat(self.numbers[value], self.b.dtype_of(value.type), [])
        return value if isinstance(value.type, TensorType) else self.tensors[value]

    def twin_type(self, type_: Attribute) -> Attribute:
        """Return the type of a value's twin."""
        return type_ if isinstance(type_, TensorType) else tensor_type((), self.held(type_))

    def held(self, type_: Attribute) -> Attribute:
        """Return the element type that the target has for a scalar."""
        return self.b.dtype_of(type_).builtin

    # --- Branches and loops ---

    def _convert_if(self, op: scf.IfOp) -> None:
        for region in op.regions:
            if not region.blocks:
                region.add_block(Block([scf.YieldOp()]))
            self._convert_block(region.block)
            self._end(region.block)
        self._stand(_home(op), op)
        types = [self.twin_type(r.type) for r in op.results]
        self._replace(op, self.branch(self.twin(op.cond), _detached(op), types).results)

    def _convert_while(self, op: scf.WhileOp) -> None:
        condition, body = op.before_region.block, op.after_region.block
        carried, _ = self._take_tensors(condition), self._take_tensors(body)
        for block in (condition, body):
            self._convert_block(block)
        last = condition.last_op
        assert last is not None
        # Lowering builds loops whose condition looks at what is carried and hands it on.
        assert [self.twin(v) for v in last.operands[1:]] == carried
        last.operands = last.operands[:1]
        self._end(condition)
        self._end(body)
        self._stand(_home(op), op)
        self._replace(op, self.loop([self.twin(v) for v in op.operands], _detached(op)).results)

    def _convert_for(self, op: scf.ForOp) -> None:
        """Carry the position too: the condition compares it with the upper bound, and the body adds the step."""
        body, position = op.body.block, POSITION.builtin
        carried = self._take_tensors(body)
        self._convert_block(body)
        self._stand(body, body.last_op)
        following = self.target.apply("arith.addi", [carried[0], self.twin(op.step)], position, {})
        self._end(body, following)
        condition = Block(arg_types=[v.type for v in carried])
        self._stand(condition, None)
        operands = [condition.args[0], self.twin(op.ub)]
        self.terminate([self.target.apply("arith.cmpi", operands, i1, CMP_PROPERTIES["slt"])])
        self._stand(_home(op), op)
        starts = [self.twin(v) for v in (op.lb, *op.iter_args)]
        self._replace(op, self.loop(starts, [Region(condition), *_detached(op)]).results[1:])

    def _take_tensors(self, block: Block) -> list[SSAValue]:
        """Let a block take tensors in place of scalars; gives what it takes then."""
        taken: list[SSAValue] = []
        for old in list(block.args):
            if isinstance(old.type, TensorType):
                taken.append(old)
            else:
                taken.append(block.insert_arg(self.twin_type(old.type), old.index))
                self.tensors[old] = taken[-1]
                self.arguments.append(old)
        return taken

    def _end(self, block: Block, *first: SSAValue) -> None:
        """Put the target's terminator in place of that of `scf`; `first` is given before its operands."""
        last = block.last_op
        assert last is not None
        self._stand(block, last)
        self.terminate([*first, *map(self.twin, last.operands)])
        erase(last)


def _home(op: Operation) -> Block:
    assert op.parent is not None
    return op.parent


def _detached(op: Operation) -> list[Region]:
    return [op.detach_region(region) for region in list(op.regions)]
