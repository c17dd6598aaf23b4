"""GlobalizeObjectGraph: a graph of objects becomes a flat list of global slots.

Note [One function for each tuple of objects]. A method works on whatever object it is called on. Once objects are gone
it works on slots, and which slots depends on the object. So a function is copied for each distinct tuple of objects
that it is called with, beginning with the methods of the root object. In a copy every value that is an object is known,
and an attribute of it is either another known object or a slot. Objects that functions make themselves stay values,
which whoever inlines the functions can follow.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, FunctionType, ModuleOp, StringAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic, Unsupported, diagnostic_for
from flambeau.dialects.torch.ops import (
    ClassTypeOp,
    GetAttrOp,
    GlobalSlotGetOp,
    GlobalSlotModuleInitializerOp,
    GlobalSlotOp,
    GlobalSlotSetOp,
    IfYieldOp,
    InitializeGlobalSlotsOp,
    LoopOp,
    NnModuleOp,
    SetAttrOp,
)
from flambeau.dialects.torch.types import ContainerType, NnModuleType, is_subtype
from flambeau.ir.builder import backward_slice, erase
from flambeau.ir.module_pass import TorchPass
from flambeau.passes.inline import callees_first, copy_arguments, copy_op
from flambeau.passes.prepare_for_globalize_object_graph import STAGE, prepare_for_globalize_object_graph
from flambeau.passes.symbol_dce import callee_name, functions_of, is_public, symbol_name


@dataclass(eq=False)
class Object:
    """One object of the program, by the first path on which the root reaches it."""

    op: NnModuleOp
    class_type: ClassTypeOp
    path: tuple[str, ...]
    parts: dict[str, Object] = field(default_factory=dict)
    """The attributes that are objects themselves."""
    slots: dict[str, str] = field(default_factory=dict)
    """The other attributes, with the names of their global slots."""

    def __str__(self) -> str:
        where = f"the object '{'.'.join(self.path)}'" if self.path else "the root object"
        return f"{where} (class {self.class_type.sym_name})"

    def name_of(self, member: str) -> str:
        return ".".join((*self.path, member))


Key = tuple[str, tuple[Object | None, ...]]
"""A function, and the object that each of its arguments is; None for an argument that is no object."""


def globalize_object_graph(module: ModuleOp) -> ModuleOp:
    """Rewrite the module in place. A module without classes and objects stays as it is."""
    if not any(isinstance(op, ClassTypeOp | NnModuleOp) for op in module.ops):
        return module
    prepare_for_globalize_object_graph(module)
    graph = _ObjectGraph(module)
    graph.add(_find_root(module))
    _raise(graph.problems, "the object graph cannot become global slots")
    functions = _Functions(module, graph)
    functions.instantiate()
    _raise(functions.problems, "functions use objects in ways that cannot be resolved before the program runs")
    _replace(module, graph, functions.made)
    return module


class GlobalizeObjectGraph(TorchPass):
    """Turn objects into global slots."""

    name = "torch-globalize-object-graph"
    run = staticmethod(globalize_object_graph)


def _raise(problems: list[Diagnostic], summary: str) -> None:
    if problems:
        raise CompileError(problems, summary=summary)


def _find_root(module: ModuleOp) -> NnModuleOp:
    slot = next((op for op in module.ops if isinstance(op, GlobalSlotOp)), None)
    if slot is not None:
        reason = f"the program has objects, and the global slot @{slot.sym_name} too: it is half converted"
        raise CompileError([Diagnostic(STAGE, reason, location=slot.location)], summary="the program is half converted")
    objects = [op for op in module.ops if isinstance(op, NnModuleOp)]
    roots = [op for op in objects if not op.results[0].uses]
    if len(roots) == 1:
        return roots[0]
    if roots:
        reason = f"there are {len(roots)} root objects, that no other object has as an attribute: {_classes(roots)}"
        hint = "A program has one; make the others attributes of it."
    elif objects:
        reason, hint = f"there is no root object: every one is an attribute of another: {_classes(objects)}", ""
    else:
        reason, hint = "there is no object: the program declares classes and has no torch.nn_module", ""
    location = roots[-1].location if roots else module.location
    raise CompileError([Diagnostic(STAGE, reason, location=location, hint=hint)], summary="the program has no root")


def _classes(objects: list[NnModuleOp]) -> str:
    return ", ".join(str(op.results[0].type).removeprefix("!torch.") for op in objects)


def holds_object(type_: Attribute) -> bool:
    """Tell whether a value of this type is an object or has one inside."""
    if isinstance(type_, ContainerType):
        return any(map(holds_object, type_.data))
    return isinstance(type_, NnModuleType)


# --- Objects and slots ---


class _ObjectGraph:
    def __init__(self, module: ModuleOp) -> None:
        self.classes = {op.sym_name: op for op in module.ops if isinstance(op, ClassTypeOp)}
        self.taken = {name for op in module.ops if (name := symbol_name(op)) is not None and _stays(op)}
        self.numbers: defaultdict[str, Iterator[int]] = defaultdict(count)
        self.objects: dict[SSAValue, Object] = {}
        self.root: Object | None = None
        self.slots: dict[str, tuple[Attribute, SSAValue]] = {}
        """Slot names to their types and initial values."""
        self.problems: list[Diagnostic] = []

    def unique(self, name: str) -> str:
        """Return the name, or a variant of it that no other symbol has."""
        found = name
        while found in self.taken:
            found = f"{name}_{next(self.numbers[name])}"
        self.taken.add(found)
        return found

    def add(self, root: NnModuleOp) -> None:
        """Enter the root and all that it reaches. An object with two paths is one, under the first of them."""
        pending: list[tuple[NnModuleOp, tuple[str, ...], Object | None]] = [(root, (), None)]
        while pending:
            op, path, owner = pending.pop()
            value = op.results[0]
            found = self.objects.get(value)
            if found is None:
                found = self._make(op, path)
                if found is None:
                    continue
                self.objects[value] = found
                self.root = self.root or found
                # The last in is the first out: attributes are visited in order.
                pending += reversed(self._fill(found))
            if owner is not None:
                owner.parts[path[-1]] = found

    def _make(self, op: NnModuleOp, path: tuple[str, ...]) -> Object | None:
        type_ = op.results[0].type
        class_type = self.classes.get(type_.data) if isinstance(type_, NnModuleType) else None
        if class_type is None:
            where = f"the object '{'.'.join(path)}'" if path else "the root object"
            self.problems.append(Diagnostic(STAGE, f"{where} is of the class {type_}, which is not declared"))
            return None
        return Object(op, class_type, path)

    def _fill(self, found: Object) -> list[tuple[NnModuleOp, tuple[str, ...], Object | None]]:
        given = {slot.slot_name: slot for slot in found.op.slots}
        parts: list[tuple[NnModuleOp, tuple[str, ...], Object | None]] = []
        for attr in found.class_type.attrs:
            slot = given.pop(attr.attr_name, None)
            if slot is None:
                self._problem(found, f"{found} has no value for its attribute '{attr.attr_name}'")
                continue
            value, name = slot.value, attr.attr_name
            if not is_subtype(value.type, attr.type):
                self._problem(
                    found,
                    f"the attribute '{name}' of {found} holds {value.type}, but the class declares {attr.type}",
                    "All instances of a class share one declaration: their attributes must have its types.",
                )
            elif isinstance(value.owner, NnModuleOp) and isinstance(attr.type, NnModuleType):
                parts.append((value.owner, (*found.path, name), found))
            elif holds_object(attr.type) or holds_object(value.type):
                self._problem(
                    found,
                    f"the attribute '{name}' of {found} is a {attr.type}: an object inside cannot be known by a name",
                    "Make the objects attributes of their own; use nn.ModuleList instead of a list.",
                )
            else:
                found.slots[name] = self.unique(found.name_of(name))
                self.slots[found.slots[name]] = (attr.type, value)
        for name in given:
            self._problem(found, f"{found} has a value for '{name}', which its class does not declare")
        return parts

    def _problem(self, found: Object, reason: str, hint: str = "") -> None:
        self.problems.append(Diagnostic(STAGE, reason, location=found.op.location, hint=hint))


def _stays(op: Operation) -> bool:
    """Tell whether a symbol keeps its name: public functions do, all others get theirs here or go."""
    return not isinstance(op, ClassTypeOp) and is_public(op)


# --- Functions ---


class _Functions:
    """The functions of the flat program, each copied for the objects that it works on."""

    def __init__(self, module: ModuleOp, graph: _ObjectGraph) -> None:
        self.graph = graph
        self.sources = functions_of(module)
        self.method_names = {
            (name, m.function_name): m.method_name for name, c in graph.classes.items() for m in c.methods
        }
        self.made: list[func.FuncOp] = []
        self.problems: list[Diagnostic] = []
        self._names: dict[Key, str] = {}
        self._calls: dict[Key, dict[Key, None]] = {}
        self._pending: deque[tuple[Key, str, bool]] = deque()

    def instantiate(self) -> None:
        """Copy the public functions, the methods of the root, and all that they call."""
        for name, function in self.sources.items():
            if is_public(function):
                self._start((name, self._no_objects(function)), name, is_private=False)
        root = self.graph.root
        assert root is not None
        for method in root.class_type.methods:
            source = self.sources.get(method.function_name)
            if source is None:
                reason = f"the method '{method.method_name}' of {root} is @{method.function_name}, which does not exist"
                self.problems.append(Diagnostic(STAGE, reason, location=method.location))
                continue
            objects = (root, *self._no_objects(source)[1:])
            name = self.graph.unique(method.method_name)
            self._start((method.function_name, objects), name, is_private=method.is_private)
        while self._pending:
            self._copy(*self._pending.popleft())
        self._check_recursion()

    def _start(self, key: Key, name: str, is_private: bool) -> None:
        # A function may be two methods of the root: each of the two names must be there.
        self._names.setdefault(key, name)
        self._pending.append((key, name, is_private))

    @staticmethod
    def _no_objects(function: func.FuncOp) -> tuple[Object | None, ...]:
        return (None,) * len(function.function_type.inputs.data)

    def name_of(self, key: Key) -> str:
        """Name the copy of a function for these objects, which is made if it is new."""
        if key not in self._names:
            name, objects = key
            first = objects[0] if objects else None
            method = None if first is None else self.method_names.get((first.class_type.sym_name, name))
            wanted = first.name_of(method) if first is not None and method is not None else name
            self._start(key, self.graph.unique(wanted), is_private=True)
        return self._names[key]

    def _copy(self, key: Key, name: str, is_private: bool) -> None:
        source = self.sources[key[0]]
        calls = self._calls.setdefault(key, {})
        copy = _Copy(self, source, key[1], calls)
        try:
            copy.check_border(is_private)
        except Unsupported as e:
            self.problems.append(Diagnostic(STAGE, e.reason, location=source.location, hint=e.hint))
            return
        self.made.append(copy.function(name, is_private))
        self.problems += copy.problems

    def _check_recursion(self) -> None:
        # Functions without objects are copied once, whatever they call: inlining will speak of their recursion.
        _, cycle = callees_first(self._calls)
        if cycle is None or not any(any(objects) for _, objects in cycle):
            return
        path = " -> ".join(f"@{self._names[key]}" for key in cycle)
        objects = dict.fromkeys(str(o) for _, objects in cycle for o in objects if o is not None)
        reason = f"a method of {', '.join(objects)} calls itself: {path}"
        location = self.sources[cycle[0][0]].location
        self.problems.append(Diagnostic(STAGE, reason, location=location, hint="Write the recursion as a loop."))


class _Copy:
    """One function for one tuple of objects."""

    def __init__(
        self, owner: _Functions, source: func.FuncOp, objects: tuple[Object | None, ...], calls: dict[Key, None]
    ) -> None:
        self.owner = owner
        self.source = source
        self.arguments = objects
        self.calls = calls
        self.values: dict[SSAValue, SSAValue] = {}
        self.objects: dict[SSAValue, Object] = {}
        self.problems: list[Diagnostic] = []

    def check_border(self, is_private: bool) -> None:
        """Refuse objects that cross the border of the program; between its functions go those that it makes itself."""
        name, type_ = self.source.sym_name.data, self.source.function_type
        for i, (given, input_type) in enumerate(zip(self.arguments, type_.inputs.data, strict=True)):
            if not is_private and given is None and holds_object(input_type):
                raise Unsupported(
                    f"argument {i} of @{name} is a {input_type}, and whoever calls it from outside could pass any",
                    "Objects can be passed only between the program's own functions.",
                )
        for output in type_.outputs.data:
            if not is_private and holds_object(output):
                raise Unsupported(
                    f"@{name} returns a {output}: which object that is, is known only when it runs",
                    "Return what is needed of the object, not the object.",
                )
        if any(self.arguments) and self.source.is_declaration:
            raise Unsupported(f"@{name} takes objects and has no body")

    def function(self, name: str, is_private: bool) -> func.FuncOp:
        source, kept = self.source, [i for i, given in enumerate(self.arguments) if given is None]
        inputs = [source.function_type.inputs.data[i] for i in kept]
        region = Region([self._function_block(block) for block in source.body.blocks])
        arg_attrs = source.arg_attrs
        copy = func.FuncOp(
            name,
            FunctionType.from_lists(inputs, source.function_type.outputs.data),
            region,
            StringAttr("private") if is_private else None,
            arg_attrs=None if arg_attrs is None else ArrayAttr([arg_attrs.data[i] for i in kept]),
            res_attrs=source.res_attrs,
        )
        copy.attributes.update(source.attributes)
        copy.location = source.location
        return copy

    def _function_block(self, block: Block) -> Block:
        copy = copy_arguments(block, self.values)
        if block is self.source.body.first_block:
            for argument, given in zip(block.args, self.arguments, strict=True):
                if given is not None:
                    self.objects[argument] = given
                    new = self.values.pop(argument)
                    copy.erase_arg(new)  # type: ignore[arg-type]
        self._ops(block, copy)
        return copy

    def _ops(self, block: Block, copy: Block) -> None:
        for op in block.ops:
            try:
                copy.add_ops(self._op(op))
            except Unsupported as e:
                self.problems.append(diagnostic_for(op, STAGE, e.reason, e.hint))
                # What follows may use the results, and has problems of its own.
                copy.add_op(poisoned := op.clone_without_regions(clone_operands=False))
                self.values.update(zip(op.results, poisoned.results, strict=True))

    def _op(self, op: Operation) -> Iterator[Operation]:
        match op:
            case GetAttrOp() if op.receiver in self.objects:
                found = self.objects[op.receiver]
                if op.member in found.parts:
                    self.objects[op.results[0]] = found.parts[op.member]
                    return
                yield self._made(op, GlobalSlotGetOp.build(self._slot(found, op.member), op.results[0].type))
            case SetAttrOp() if op.receiver in self.objects:
                found = self.objects[op.receiver]
                if op.member in found.parts:
                    raise Unsupported(
                        f"the attribute '{op.member}' of {found} is an object, and is replaced by another",
                        "Objects stay where they are; change their attributes instead.",
                    )
                if op.value in self.objects:
                    raise Unsupported(f"{self.objects[op.value]} becomes the attribute '{op.member}' of {found}")
                slot = self._slot(found, op.member)
                yield self._made(op, GlobalSlotSetOp.build(slot, self.values.get(op.value, op.value)))
            case func.CallOp():
                yield self._made(op, self._call(op))
            case _:
                for operand in op.operands:
                    if operand in self.objects:
                        raise Unsupported(self._escape(op, self.objects[operand]), _ESCAPE_HINT)
                if op.regions:
                    yield self._structured(op)
                else:
                    yield copy_op(op, self.values)

    def _structured(self, op: Operation) -> Operation:
        copy = op.clone_without_regions(self.values)
        for region, new_region in zip(op.regions, copy.regions, strict=True):
            for block in region.blocks:
                new_block = copy_arguments(block, self.values)
                new_region.add_block(new_block)
                self._ops(block, new_block)
        return copy

    def _made(self, old: Operation, new: Operation) -> Operation:
        new.location = old.location
        for result, new_result in zip(old.results, new.results, strict=True):
            new_result.name_hint = result.name_hint
            self.values[result] = new_result
        return new

    @staticmethod
    def _slot(found: Object, member: str) -> str:
        if member not in found.slots:
            raise Unsupported(f"{found} has no attribute '{member}'")
        return found.slots[member]

    def _call(self, op: func.CallOp) -> func.CallOp:
        name = callee_name(op)
        source = self.owner.sources.get(name)
        if source is None:
            raise Unsupported(f"there is no function @{name}")
        if len(source.function_type.inputs.data) != len(op.operands):
            wanted = len(source.function_type.inputs.data)
            raise Unsupported(f"@{name} takes {wanted} arguments, got {len(op.operands)}")
        objects = [self.objects.get(operand) for operand in op.operands]
        key = (name, tuple(objects))
        self.calls[key] = None
        arguments = [self.values.get(o, o) for o, found in zip(op.operands, objects, strict=True) if found is None]
        return func.CallOp(self.owner.name_of(key), arguments, op.result_types)

    def _escape(self, op: Operation, found: Object) -> str:
        if isinstance(op, func.ReturnOp):
            return f"{found} is returned: which object a call gives must be known before the program runs"
        if isinstance(op, IfYieldOp):
            return f"{found} is chosen by an if: which object is meant must be known before the program runs"
        if isinstance(op, LoopOp):
            return f"{found} changes in a loop: which object is meant must be known before the program runs"
        return f"{found} is used as a value"


_ESCAPE_HINT = "Call the object's methods and use its attributes directly."


# --- The flat program ---


def _replace(module: ModuleOp, graph: _ObjectGraph, functions: list[func.FuncOp]) -> None:
    block = module.body.block
    needed = backward_slice([value for _, value in graph.slots.values()])
    initial: list[Operation] = []
    gone: list[Operation] = []
    for op in block.ops:
        (initial if op in needed else gone).append(op)
    for op in reversed(gone):
        erase(op)
    initializer = Block()
    for op in initial:
        block.detach_op(op)
        initializer.add_op(op)
    if graph.slots:
        initializer.add_op(InitializeGlobalSlotsOp.build({name: value for name, (_, value) in graph.slots.items()}))
        block.add_op(GlobalSlotModuleInitializerOp.build(initializer))
    block.add_ops(GlobalSlotOp.build(name, type_, private=True) for name, (type_, _) in graph.slots.items())
    block.add_ops(functions)
