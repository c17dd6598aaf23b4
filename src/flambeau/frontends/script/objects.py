"""A TorchScript program as a graph of objects: classes, their methods, and the root module with all it holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, FunctionType, ModuleOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic, Unsupported
from flambeau.dialects.torch.ops import AttrOp, ClassTypeOp, MethodOp, NnModuleOp, SlotOp
from flambeau.dialects.torch.types import NnModuleType, TensorType
from flambeau.frontends.script.importer import Function, ScriptImporter, ValueImporter
from flambeau.frontends.script.types import is_importable, type_of
from flambeau.frontends.tensors import TensorTable
from flambeau.ir.locations import UNKNOWN
from flambeau.ir.module import Weights

FORWARD = "forward"

_BOOKKEEPING = frozenset({"training", "_is_full_backward_hook"})
"""Attributes that PyTorch gives every module; they are imported where a method uses them."""

C: Any = torch._C


@dataclass
class Class:
    """A TorchScript class, and what the program needs of it."""

    name: str
    type: Any
    instance: Any = None
    """Some object of the class; None where the program only creates them itself."""
    methods: dict[str, str] = field(default_factory=dict)
    """Names to symbols of functions."""
    accessed: set[str] = field(default_factory=set)
    """The attributes that functions read or write."""
    attributes: list[tuple[str, Any]] | None = None
    """The attributes that the program needs, with their types, once all functions are known."""


class ObjectGraphImporter:
    """Imports a root object: every class that it leads to, every function that these call, and the objects."""

    def __init__(self, bounds: Sequence[Any], entry: str, exported: Sequence[str] | None) -> None:
        self.bounds = bounds
        self.entry = entry
        self.exported = exported
        self.weights = Weights()
        self.tensors = TensorTable(self.weights)
        self.problems: list[Diagnostic] = []
        self.classes: dict[str, Class] = {}
        self.root = ""
        self._forward = ""
        self._unit: Any = torch.jit._state._python_cu
        self._functions: dict[str, Function] = {}
        self._inlined: dict[Any, Function] = {}

    # --- The two kinds of root ---

    def import_module(self, module: Any) -> ModuleOp:
        """Import a `torch.jit.ScriptModule` with its methods and the objects that it holds."""
        root, self.root = module._c, module._c._type().qualified_name()
        self._forward = f"{self.root}.{FORWARD}"
        if self._unit.get_class(self.root) != root._type():
            # The program is from an archive: what has the same name in this process may differ.
            self._unit = None
        for name in self.exported or ():
            if not root._has_method(name) and not root.hasattr(name):
                raise CompileError([Diagnostic("import", f"{name!r} is exported, but the module has no such member")])
        self._add_methods(root)
        functions, objects = self._import_functions(), Block()
        ObjectImporter(self, objects).module(root, "")
        return self._finish(functions, objects)

    def import_function(self, function: Any) -> ModuleOp:
        """Import a `torch.jit.ScriptFunction` as the forward method of an object that holds nothing."""
        self._forward, self.root = function.qualified_name, f"{function.qualified_name}.Function"
        try:
            self._function(self._forward, function).inputs.insert(0, NnModuleType(self.root))
        except Unsupported as problem:
            self.report(problem, function.name)
        self.classes[self.root] = Class(self.root, None, methods={FORWARD: self._forward}, attributes=[])
        return self._finish(self._import_functions(), Block([NnModuleOp.build(self.root, [])]))

    def _finish(self, functions: Sequence[Operation], objects: Block) -> ModuleOp:
        classes = [self._class_type(c) for c in self.classes.values()]
        if self.problems:
            ops = ", ".join(sorted({p.op for p in self.problems if p.op}))
            summary = f"cannot import the TorchScript program: {len(self.problems)} not supported"
            raise CompileError(self.problems, summary=summary + (f" ({ops})" if ops else ""))
        last = list(objects.ops)
        for op in last:
            op.detach()  # type: ignore[no-untyped-call]
        return ModuleOp([*functions, *classes, *last])

    def report(self, problem: Unsupported, what: str = "", op: str = "", location: Attribute = UNKNOWN) -> None:
        """Keep a problem for the end of the import."""
        reason = f"{what}: {problem.reason}" if what else problem.reason
        self.problems.append(Diagnostic("import", reason, op=op, location=location, hint=problem.hint))

    # --- Classes ---

    def class_of(self, type_: Any, instance: Any = None) -> Class:
        """Look up or record the class of a TorchScript type; `instance` is an object of it."""
        name = type_.qualified_name()
        class_ = self.classes.setdefault(name, Class(name, type_, instance))
        class_.instance = instance if class_.instance is None else class_.instance
        return class_

    def attributes(self, class_: Class) -> list[tuple[str, Any]]:
        """List the attributes of a class that the program needs, with their TorchScript types."""
        if class_.attributes is None:
            if isinstance(class_.instance, C.ScriptModule):
                found = _module_attributes(class_.instance)
            else:
                names, types = self._assigned(class_), class_.type.containedTypes()
                if len(names) != len(types):
                    raise Unsupported("its attributes are unknown", "Create its objects in the program itself.")
                found = list(zip(names, types, strict=True))
            used = class_.accessed
            class_.attributes = [(n, t) for n, t in found if n in used or (n not in _BOOKKEEPING and is_importable(t))]
        return class_.attributes

    def _assigned(self, class_: Class) -> list[str]:
        """List the attributes of a plain class: those that its `__init__` sets, in that order."""
        init: Any = self._functions.get(f"{class_.name}.__init__")
        if init is None and self._unit is not None:
            init = self._unit.find_function(f"{class_.name}.__init__")
        if init is None:
            return list(getattr(class_.instance, "__dict__", ()))
        itself = next(init.graph.inputs()).unique()
        setters = init.graph.findAllNodes("prim::SetAttr")
        return list(dict.fromkeys(n.s("name") for n in setters if next(n.inputs()).unique() == itself))

    def _class_type(self, class_: Class) -> Operation:
        members: list[Any] = []
        hides = self.exported is not None
        visible = (self.exported or ()) if class_.name == self.root else ()
        try:
            for name, type_ in self.attributes(class_):
                members.append(AttrOp.build(name, type_of(type_), hides and name not in visible))
        except Unsupported as problem:
            self.report(problem, f"class {class_.name}")
        for name, symbol in class_.methods.items():
            shown = self.method_name(class_.name, name)
            members.append(MethodOp.build(shown, symbol, hides and name not in visible))
        return ClassTypeOp.build(class_.name, members)

    def method_name(self, class_name: str, name: str) -> str:
        """Return the name that a method is imported by: the root's forward has the name that the caller asked for."""
        return self.entry if (class_name, name) == (self.root, FORWARD) else name

    # --- Functions ---

    def _add_methods(self, instance: Any) -> None:
        """Note the methods of a module and of all modules below it."""
        class_ = self.class_of(instance._type(), instance)
        for name in instance._method_names():
            try:
                class_.methods[name] = self._function(f"{class_.name}.{name}", instance._get_method(name)).symbol
            except Unsupported as problem:
                self.report(problem, f"{class_.name}.{name}")
        for _, child in C.ModuleDict(instance).items():
            self._add_methods(child)

    def _function(self, symbol: str, function: Any) -> Function:
        """Return the function of a symbol, entered for import on the first request."""
        if symbol not in self._functions:
            graph = getattr(function, "graph", function)
            returns = [v.type() for v in graph.outputs()]
            if graph is not function:
                returns = [r.type for r in function.schema.returns]
            inputs = [type_of(v.type()) for v in graph.inputs()]
            self._functions[symbol] = Function(symbol, graph, inputs, [type_of(t) for t in returns])
        return self._functions[symbol]

    def callee(self, node: Any) -> Function:
        """Return the function that a `prim::CallFunction` or `prim::CallMethod` calls."""
        first = next(node.inputs()).type()
        if node.kind() == "prim::CallFunction":
            return self._called(str(first.annotation_str), node)
        if first.kind() != "ClassType":
            raise Unsupported(f"a method of {first.annotation_str} is not imported")
        class_ = self.class_of(first)
        name = node.s("name")
        if name in class_.methods and isinstance(class_.instance, C.ScriptModule):
            return self._functions[class_.methods[name]]
        function = self._called(f"{class_.name}.{name}", node)
        class_.methods[function.name] = function.symbol
        return function

    def _called(self, symbol: str, call: Any) -> Function:
        """Look up a function by its symbol; where PyTorch does not show it, inline it for these argument types."""
        found = self._unit.find_function(symbol) if self._unit is not None else None
        if found is not None:
            return self._function(symbol, found)
        key = (symbol, tuple(value.type().annotation_str for value in call.inputs()))
        if key not in self._inlined:
            others = sum(name == symbol for name, _ in self._inlined)
            self._inlined[key] = self._function(f"{symbol}${others}" if others else symbol, _inlined(call))
        return self._inlined[key]

    def _import_functions(self) -> list[Operation]:
        """Import all functions, and those that they call, and so on."""
        done: list[Operation] = []
        while len(done) < len(self._functions):
            done.append(self._import_function(list(self._functions.values())[len(done)]))
        return done

    def _import_function(self, function: Function) -> Operation:
        block = Block(arg_types=function.inputs)
        importer = ScriptImporter(block, self, function.name)
        parameters = list(function.graph.inputs())
        arguments = list(block.args)[len(block.args) - len(parameters) :]
        importer.bind(parameters, arguments)
        for parameter, argument in zip(parameters, arguments, strict=True):
            # TorchScript numbers its values: `x.1`, or just `1`.
            name = parameter.debugName().split(".", 1)[0]
            argument.name_hint = name if name.isidentifier() else None
        importer.import_nodes(function.graph)
        importer.emitter.emit(func.ReturnOp, importer.fit_all(function.graph.outputs(), function.returns))
        type_ = FunctionType.from_lists(function.inputs, function.returns)
        bounds = self._bounds(function) if function.symbol == self._forward and self.bounds else None
        return func.FuncOp(function.symbol, type_, Region(block), "private", arg_attrs=bounds)

    def _bounds(self, function: Function) -> ArrayAttr[DictionaryAttr]:
        if len(self.bounds) != len(function.inputs) - 1:
            reason = f"forward takes {len(function.inputs) - 1} arguments, but {len(self.bounds)} are described"
            raise CompileError([Diagnostic("import", reason, hint="Give one example for each argument of forward.")])
        return ArrayAttr(
            DictionaryAttr({"torch.type_bound": bound} if isinstance(bound, TensorType) else {})
            for bound in (None, *self.bounds)
        )


class ObjectImporter(ValueImporter):
    """Imports objects; each is one op, however many attributes hold it."""

    def __init__(self, program: ObjectGraphImporter, block: Block) -> None:
        super().__init__(block, program.tensors)
        self.program = program
        self._objects: dict[Any, SSAValue] = {}

    def module(self, instance: Any, path: str) -> SSAValue:
        """Import a module object once, under the path of attributes that leads to it; return its SSA value."""
        if instance not in self._objects:
            self._objects[instance] = self._build(instance._type(), instance, partial(_read, instance), path)
        return self._objects[instance]

    def value(self, value: Any, type_: Any, name: str, inline: bool = True) -> SSAValue:
        if isinstance(value, C.ScriptModule):
            return self.module(value, name)
        if type_.kind() == "ClassType":
            # PyTorch gives objects of the user's own classes as Python objects, a new one each time.
            return self._build(type_, value, partial(getattr, value), name)
        return super().value(value, type_, name, inline)

    def _build(self, type_: Any, instance: Any, read: Any, path: str) -> SSAValue:
        class_ = self.program.class_of(type_, instance)
        weights = _weight_names(instance) if isinstance(instance, C.ScriptModule) else []
        slots: list[SlotOp] = []
        for attribute, attribute_type in self.program.attributes(class_):
            name = f"{path}.{attribute}" if path else attribute
            try:
                value = self.value(read(attribute), attribute_type, name, attribute not in weights)
            except Unsupported as problem:
                self.program.report(problem, f"attribute {name!r}")
                continue
            slots.append(SlotOp.build(attribute, value))
        op = NnModuleOp.build(class_.name, slots)
        self.emitter.insert(op)
        return op.results[0]


def _read(instance: Any, attribute: str) -> Any:
    try:
        return instance.getattr(attribute)
    except RuntimeError:
        reason = "PyTorch shows an object only where its class is defined in Python"
        raise Unsupported(reason, "Import the Python module of the class before loading the archive.") from None


def _weight_names(instance: Any) -> list[str]:
    """List the names of a module's own parameters and buffers."""
    return [name for kind in (C.ParameterDict, C.BufferDict) for name, _ in kind(instance).items()]


def _module_attributes(instance: Any) -> list[tuple[str, Any]]:
    """List a module's members with types: parameters and buffers, other attributes by name, submodules."""
    types = C.ConcreteModuleType.from_jit_type(instance._type()).get_attributes()
    order = dict.fromkeys([*_weight_names(instance), *sorted(types)])
    children = [(name, child._type()) for name, child in C.ModuleDict(instance).items()]
    return [(name, types[name][0]) for name in order if name in types] + children


def _inlined(call: Any) -> Any:
    """Inline a call into a graph of its own: PyTorch shows the functions of an archive in no other way."""
    graph, values, arguments = C.Graph(), {}, {}
    for i, value in enumerate(call.inputs()):
        if value.type().kind() == "FunctionType":
            values[value.unique()] = graph.insertNode(graph.createClone(value.node(), lambda v: v)).output()
        else:
            values[value.unique()] = arguments[i] = graph.addInput()
            arguments[i].setType(value.type())
    node = graph.insertNode(graph.createClone(call, lambda v: values[v.unique()]))
    for i, argument in arguments.items():
        node.replaceInput(i, argument)
    graph.registerOutput(node.output())
    C._jit_pass_inline(graph)
    return graph
