"""From a TorchScript program, a graph of objects, to functions that satisfy the backend contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects import func
from xdsl.dialects.builtin import DictionaryAttr, ModuleOp
from xdsl.ir import Attribute, Block, SSAValue

from flambeau.diagnostics import CompileError, Unsupported, diagnostic_for
from flambeau.dialects.torch.constants import LiteralOp, ValueTensorLiteralOp
from flambeau.dialects.torch.global_slots import (
    GlobalSlotGetOp,
    GlobalSlotModuleInitializerOp,
    GlobalSlotOp,
    GlobalSlotSetOp,
    InitializeGlobalSlotsOp,
)
from flambeau.dialects.torch.types import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    DictType,
    ListType,
    NonValueTensorType,
    OptionalType,
    TensorType,
    TupleType,
    VTensorType,
    intern,
)
from flambeau.ir.module import Fixed
from flambeau.passes.evaluate.evaluator import Border, evaluate_function
from flambeau.passes.evaluate.operands import materialize
from flambeau.passes.evaluate.state import EVERYTHING, Evaluation, Oracle
from flambeau.passes.evaluate.storages import look, read, wrapped
from flambeau.passes.evaluate.values import Cell, Dict, Known, List, Tuple, View
from flambeau.passes.globalize_object_graph import globalize_object_graph
from flambeau.passes.inline import inline_calls
from flambeau.passes.inline_global_slots import inline_global_slots
from flambeau.passes.prepare_for_globalize_object_graph import prepare_for_globalize_object_graph
from flambeau.passes.reduce_op_variants import reduce_op_variants
from flambeau.passes.symbol_dce import eliminate_dead_symbols

BOUND = "torch.type_bound"


@dataclass
class Leaf:
    """An argument of the flat function, and where it came from."""

    name: str
    type: Attribute
    state: LiteralOp | None = None
    """The initial value, for a slot of the program that it writes."""


@dataclass(frozen=True)
class Result:
    """A place in what the program returns: a result of the flat function, or a constant."""

    index: int | None
    constant: Any = None


@dataclass
class ScriptBorder(Border):
    """Takes the containers at a function's border apart, and makes writes that the caller sees results."""

    owns_slots = True

    bounds: Sequence[Any] = ()
    """For each argument a type, or a list, tuple or dictionary of bounds; None to take the type in the program."""
    slots: dict[str, LiteralOp] = field(default_factory=dict)
    """The slots that the program writes, with their initial values."""
    leaves: list[Leaf] = field(default_factory=list)
    inputs: list[int | None] = field(default_factory=list)
    """For each leaf of the arguments as Python passes them, the flat argument."""
    fixed: list[Fixed] = field(default_factory=list)
    """The leaves that the program was specialised to."""
    structure: Any = None
    """What the program returns, with a `Result` at each leaf."""
    mutations: list[tuple[int, int]] = field(default_factory=list)
    """(result, argument) where a result is the new contents of an argument."""
    views: list[tuple[int, View, SSAValue]] = field(default_factory=list)
    cells: list[tuple[Cell, Any]] = field(default_factory=list)
    state: dict[str, List] = field(default_factory=dict)
    """The written slots, while the function is evaluated."""

    def arguments(self, e: Evaluation, old: Block) -> None:
        bounds = [*self.bounds, *[None] * (len(old.args) - len(self.bounds))]
        names = [a.name_hint or f"arg{i}" for i, a in enumerate(old.args)]
        for argument, bound, name in zip(old.args, bounds, names, strict=True):
            declared = argument.type
            e.values[argument] = self.argument(e, bound if bound is not None else declared, declared, name)
        for name, literal in self.slots.items():
            type_ = intern(VTensorType, literal.results[0].type.data)  # type: ignore[attr-defined]
            new = self.add(e, Leaf(name, type_, literal))
            self.state[name] = List((self.tensor(e, new),), e.depth)
        e.slots = self.state

    def argument(self, e: Evaluation, bound: Any, declared: Attribute, name: str) -> Any:
        """Make the value of an argument, with the flat arguments that it needs."""
        if isinstance(declared, OptionalType):
            declared = declared.element_type
        if isinstance(bound, Known):
            return bound
        if isinstance(bound, (list, tuple)):
            inner = declared.data if isinstance(declared, TupleType) else [_element(declared)] * len(bound)
            items = tuple(
                self.argument(e, b, t, f"{name}_{i}") for i, (b, t) in enumerate(zip(bound, inner, strict=True))
            )
            if isinstance(declared, TupleType):
                return Tuple(items)
            return self.kept(List(items, e.depth, element_type=_element(declared)))
        if isinstance(bound, dict):
            value_type = declared.data[1] if isinstance(declared, DictType) else NONE
            pairs = tuple((Known(k), self.argument(e, b, value_type, f"{name}_{k}")) for k, b in bound.items())
            return self.kept(Dict(pairs, e.depth, type=declared))
        if bound == NONE:
            self.fixed.append(Fixed(len(self.inputs), name, None))
            self.inputs.append(None)
            return Known(None)
        if isinstance(bound, TensorType):
            new = self.add(e, Leaf(name, intern(VTensorType, bound.data)))
            self.inputs.append(len(self.leaves) - 1)
            return self.tensor(e, new)
        if bound in (INT, FLOAT, BOOL):
            new = self.add(e, Leaf(name, bound))
            self.inputs.append(len(self.leaves) - 1)
            return new
        raise Unsupported(
            f"the argument {name!r} is a {bound}",
            "Pass tensors, numbers, None, and lists, tuples or dictionaries of them.",
        )

    def add(self, e: Evaluation, leaf: Leaf) -> SSAValue:
        new = e.entry.insert_arg(leaf.type, len(e.entry.args))
        new.name_hint = leaf.name if leaf.name.isidentifier() else None
        self.leaves.append(leaf)
        return new

    def tensor(self, e: Evaluation, value: SSAValue) -> View:
        view = wrapped(e, value, intern(NonValueTensorType, value.type.data))  # type: ignore[attr-defined]
        assert isinstance(view, View)
        self.views.append((len(self.leaves) - 1, view, value))
        return view

    def kept(self, cell: Cell) -> Cell:
        self.cells.append((cell, cell.content))
        return cell

    def results(self, e: Evaluation, op: func.ReturnOp) -> Sequence[SSAValue]:
        flat: list[SSAValue] = []
        values = [e.values[o] for o in op.operands]
        structures = [self.taken(e, v, flat) for v in values]
        self.structure = structures[0] if len(structures) == 1 else tuple(structures)
        for cell, before in self.cells:
            if cell.content is not before:
                raise Unsupported("the program changes a list or dictionary that the caller passed", "Copy it first.")
        for index, view, before in self.views:
            leaf = self.leaves[index]
            now: Any = view
            if view.steps:
                raise Unsupported(
                    f"the program changes the shape of {leaf.name!r} in place, which the caller would see"
                )
            look(view.storage)
            if leaf.state is not None:
                (now,) = self.state[leaf.name].content
            if not isinstance(now, View):
                raise Unsupported(f"the program sets {leaf.name!r} to something that is not a tensor")
            if now is not view or view.storage.content is not before:
                flat.append(e.t.cast(read(e, now), leaf.type))
                self.mutations.append((len(flat) - 1, index))
        constants = self.drop_unwritten(e)
        return [constants.get(v, v) for v in flat]

    def drop_unwritten(self, e: Evaluation) -> dict[SSAValue, SSAValue]:
        """Turn arguments for state that no path writes into constants; map the arguments to these."""
        constants: dict[SSAValue, SSAValue] = {}
        written = {argument for _, argument in self.mutations}
        kept: list[Leaf] = []
        moved: dict[int, int] = {}
        for i, leaf in enumerate(list(self.leaves)):
            argument = e.entry.args[len(kept)]
            if leaf.state is None or i in written:
                moved[i] = len(kept)
                kept.append(leaf)
                continue
            literal = ValueTensorLiteralOp.create(result_types=(leaf.type,), properties={"value": leaf.state.value})
            e.t.insert_first(literal)
            constants[argument] = literal.results[0]
            argument.replace_all_uses_with(literal.results[0])
            e.entry.erase_arg(argument)
        self.leaves = kept
        self.mutations = [(result, moved[argument]) for result, argument in self.mutations]
        return constants

    def taken(self, e: Evaluation, value: Any, flat: list[SSAValue]) -> Any:
        """Turn a returned value into Python containers of `Result`."""
        match value:
            case Known(constant):
                return Result(None, constant)
            case Tuple(items):
                return tuple(self.taken(e, v, flat) for v in items)
            case List():
                look(value)
                return [self.taken(e, v, flat) for v in value.content]
            case Dict():
                look(value)
                return {k.value: self.taken(e, v, flat) for k, v in value.content}
        result = materialize(e, value)
        if isinstance(result.type, OptionalType):
            raise Unsupported("whether this is None is known only at run time, so it cannot be returned")
        flat.append(result)
        return Result(len(flat) - 1)


def _element(type_: Attribute) -> Attribute:
    return type_.element_type if isinstance(type_, ListType) else type_


def flatten(module: ModuleOp) -> ModuleOp:
    """Lower objects to functions without calls; drop slots that nobody writes."""
    for step in (
        prepare_for_globalize_object_graph,
        globalize_object_graph,
        eliminate_dead_symbols,
        inline_calls,
        eliminate_dead_symbols,
        inline_global_slots,
        eliminate_dead_symbols,
    ):
        module = step(module)
    return module


def specialize(
    module: ModuleOp, bounds: Mapping[str, Sequence[Any]] | None = None, oracle: Oracle | None = None
) -> dict[str, ScriptBorder]:
    """Evaluate the public functions of a flat module; gives what is to know about the border of each.

    `bounds` say, by function, what is known about the arguments; the other functions say it themselves.
    """
    reduce_op_variants(module)
    slots = dict(_written_slots(module))
    borders: dict[str, ScriptBorder] = {}
    for function in [op for op in module.ops if isinstance(op, func.FuncOp)]:
        used = {op.slot_name for op in function.walk() if isinstance(op, GlobalSlotGetOp | GlobalSlotSetOp)}
        name = function.sym_name.data
        given = bounds[name] if bounds is not None and name in bounds else list(_bounds(function))
        border = ScriptBorder(bounds=given, slots={n: v for n, v in slots.items() if n in used})
        try:
            problems = evaluate_function(function, "specialize", EVERYTHING, border, oracle)
        except Unsupported as e:
            raise CompileError([diagnostic_for(function, "specialize", e.reason, e.hint)]) from e
        if problems:
            raise CompileError(list(problems.values()), summary=f"cannot specialize @{name}")
        function.arg_attrs = None
        borders[name] = border
    for op in list(module.ops):
        if isinstance(op, GlobalSlotOp | GlobalSlotModuleInitializerOp):
            op.detach()  # type: ignore[no-untyped-call]
            op.erase()
    return borders


def _written_slots(module: ModuleOp) -> Iterator[tuple[str, LiteralOp]]:
    for op in module.walk():
        if not isinstance(op, InitializeGlobalSlotsOp):
            continue
        for name, value in op.initial_values:
            if not isinstance(value.owner, LiteralOp):
                reason = f"the program writes {name!r}, which is a {value.type}: only tensors can be state"
                raise CompileError([diagnostic_for(op, "specialize", reason)])
            yield name, value.owner


def _bounds(function: func.FuncOp) -> Iterator[Any]:
    attributes = function.arg_attrs.data if function.arg_attrs is not None else ()
    for i in range(len(function.body.block.args)):
        entry = attributes[i] if i < len(attributes) else None
        yield entry.data.get(BOUND) if isinstance(entry, DictionaryAttr) else None
