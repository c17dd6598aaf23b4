"""Tracer: the builder behind `flambeau.ops`, with Python values in and wrapped values out.

It is a `TorchBuilder`: an op gets its type when it is built. It comes in two forms.

- *Values* (`flambeau.trace`): tensors are `!torch.vtensor` with all that is known of them. If something is written,
  `writes.settle` makes mutable what must be, when the function is complete.
- *Objects* (`flambeau.module_context`): tensors are `!torch.tensor`, and results have no type yet: RefineTypes finds
  it. Python sees shapes all the same, as they are kept beside the IR.
"""

from __future__ import annotations

import os
import sys
from collections import namedtuple
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from xdsl.dialects.builtin import DenseResourceAttr, StringAttr
from xdsl.dialects.builtin import TensorType as BuiltinTensorType
from xdsl.ir import Attribute, Block, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic
from flambeau.dialects.torch import registry
from flambeau.dialects.torch.aliases import ALIASES
from flambeau.dialects.torch.emitter import Device, dense
from flambeau.dialects.torch.ops import ListUnpackOp, NonValueTensorLiteralOp
from flambeau.dialects.torch.schema import Argument, Schema, SchemaType
from flambeau.dialects.torch.types import (
    BOOL,
    FLOAT,
    INT,
    NUMBER,
    ListType,
    TensorType,
    list_of,
    to_non_value,
    vtensor,
)
from flambeau.frontends.nn.core import overloads, values
from flambeau.frontends.nn.core.views import VIEWS
from flambeau.infer.builder import TorchBuilder, infer, meta_of, rules, type_of
from flambeau.infer.rules import InferenceError, Meta, Unknown
from flambeau.ir.arrays import as_bytes, dtype_of
from flambeau.ir.dtypes import DType
from flambeau.ir.locations import Frame, location_of_frames
from flambeau.ir.module import Weights

INLINE_BYTES = 256
"""A constant of at most this size stands in the text of a function; larger ones are weights."""

OBJECT_INLINE_BYTES = 1 << 16
"""The same for weights where tensors are objects."""

HARMLESS = frozenset({"aten.detach_", "aten.requires_grad_", "aten.alias", "aten.detach"})
"""They give the contents of the tensor that they are called on, which nothing in a program tells apart."""

RESHAPING = frozenset({
    "aten.squeeze_", "aten.squeeze_.dim", "aten.squeeze_.dims", "aten.unsqueeze_", "aten.t_", "aten.transpose_",
    "aten.swapaxes_", "aten.swapdims_",
})  # fmt: skip
"""In place, but on the tensor's shape and not on its contents: the object becomes another view of its storage."""

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_WRAPPERS: dict[Attribute, type[values.Value]] = {
    INT: values.Int,
    FLOAT: values.Float,
    BOOL: values.Bool,
    NUMBER: values.Scalar,
}


class Tracer(TorchBuilder):
    """Builds one program from calls in Python."""

    def __init__(self, block: Block, weights: Weights, objects: bool = False) -> None:
        super().__init__(block)
        self.weights = weights
        self.objects = objects
        """Whether tensors are objects, `!torch.tensor`, without types."""
        self.writes = False
        """Whether some op writes to a tensor."""
        self.chosen: list[str] = []
        """The overloads that calls meant, for tests."""
        self.names: dict[int, str] = {}
        """The names of weights, by the identity of the object."""
        self.paths: list[str] = []
        """The modules whose `forward` is running, outermost first."""
        self.module_names: dict[int, str] = {}
        self._metas: dict[SSAValue, Meta] = {}
        self._stored: dict[int, tuple[values.StoredTensor, SSAValue]] = {}
        self._resources: dict[Any, Attribute] = {}
        self._sizes: dict[tuple[SSAValue, int], Any] = {}

    # --- Calls ---

    def invoke(self, base: str, receiver: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Add the op that a call of `aten.add` means; `receiver` is what a method is called on."""
        schema, bound = overloads.choose(_real_name(base), receiver, args, kwargs)
        self.chosen.append(schema.name)
        return self.apply(*registry.scalar_twin(schema, bound))

    def call_overload(self, schema: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Add an op by its overload."""
        bound = overloads.bind(schema, None, args, kwargs, literals=True)
        if isinstance(bound, overloads.Mismatch):
            raise TypeError(f"{schema.name}: {bound.reason}\n  {schema.text}")
        self.chosen.append(schema.name)
        return self.apply(schema, bound)

    def apply(self, schema: Schema, bound: Sequence[Any]) -> Any:
        """Add an op with arguments in the schema's order."""
        if schema.name in HARMLESS:
            return bound[0] if schema.is_mutable else self.wrap(bound[0].ssa)
        written_out = VIEWS.get(schema.name)
        if written_out is not None and not self.objects:
            count = len(self.chosen)
            try:
                return written_out(*bound)
            finally:
                del self.chosen[count:]
        if schema.name in RESHAPING:
            return self._reshape(schema, bound)
        self.location = self.here()
        given = [self.unwrap(a.type, v) for a, v in zip(schema.arguments, bound, strict=True)]
        if schema.is_mutable:
            return self._write(schema, bound, given)
        metas = self._infer(schema, given)
        if metas is not None and metas and all(_is_known(m) for m in metas):
            return metas[0] if len(metas) == 1 else metas
        types = self._types(schema, metas)
        operands = [self.argument(a.type, v) for a, v in zip(schema.arguments, given, strict=True)]
        results = self.op(schema.name, operands, types)
        if not results:
            return None
        wrapped = [self._wrap(r, m) for r, m in zip(results, metas or [None] * len(results), strict=True)]
        return wrapped[0] if len(wrapped) == 1 else _result_class(schema)(*wrapped)

    def _infer(self, schema: Schema, given: Sequence[Any]) -> tuple[Any, ...] | None:
        """Infer the results' types; None where tensors are objects and the rules cannot tell."""
        try:
            return infer(schema, [self.meta(v) for v in given])
        except InferenceError as error:
            if self.objects:
                return None
            if schema.name in rules():
                raise InferenceError(f"{schema.name}: {error}") from None
            hint = "Write it with other ops, or add a rule to flambeau/infer."
            problem = Diagnostic("trace", str(error), op=schema.name, location=self.location, hint=hint)
            raise CompileError([problem], summary=f"cannot trace the program: {error}") from None

    def _types(self, schema: Schema, metas: tuple[Any, ...] | None) -> list[Attribute]:
        if not self.objects and metas is not None:
            return [type_of(m) for m in metas]
        unknown = to_non_value(vtensor())
        kinds = {"Tensor": unknown, "int": INT, "float": FLOAT, "bool": BOOL}
        types = [kinds.get(r.type.base, NUMBER) for r in schema.returns]
        return [list_of(t) if r.type.is_list else t for r, t in zip(schema.returns, types, strict=True)]

    def _write(self, schema: Schema, bound: Sequence[Any], given: Sequence[Any]) -> Any:
        """Emit an op that writes to arguments; its results are those arguments."""
        self.writes = True
        written = [i for i, a in enumerate(schema.arguments) if a.alias is not None and a.alias.is_write]
        for i in written:
            if not isinstance(bound[i], values.Tensor):
                raise TypeError(f"{schema.name}: argument {schema.arguments[i].name!r} is written, so it is a tensor")
        self._check_write(schema, given)
        operands = [self.argument(a.type, v) for a, v in zip(schema.arguments, given, strict=True)]
        # A result is one of the arguments that are written, or a new tensor.
        same = [next((i for i in written if _share(r, schema.arguments[i])), None) for r in schema.returns]
        metas = () if None not in same else self._infer(schema, given) or (None,) * len(same)
        fresh = self._types(schema, metas) if metas else []
        types = [fresh[k] if i is None else operands[i].type for k, i in enumerate(same)]
        made = self.op(schema.name, operands, types)
        results = [self._wrap(made[k], metas[k]) if i is None else bound[i] for k, i in enumerate(same)]
        return results[0] if len(results) == 1 else tuple(results) or None

    def _check_write(self, schema: Schema, given: Sequence[Any]) -> None:
        """Check that an in-place op's value form has the same shape and a dtype that can be cast to the argument's."""
        twin = registry.schema(schema.name.replace("_.", ".", 1) if "_." in schema.name else schema.name[:-1])
        if not schema.is_inplace_variant or twin is None or twin.name not in rules() or self.objects:
            return
        if len(twin.arguments) != len(given):
            return
        before, (after, *_) = self.meta(given[0]), self._infer(twin, given) or (None,)
        if not isinstance(after, Meta):
            return
        if any(a is not None and b is not None and a != b for a, b in zip(before.shape, after.shape)) or (
            before.rank != after.rank
        ):
            shapes = f"{list(before.shape)}, and the result has shape {list(after.shape)}"
            raise InferenceError(f"{schema.name}: the tensor that is written has shape {shapes}")
        if after.dtype.category > before.dtype.category:
            raise InferenceError(f"{schema.name}: a {after.dtype} result cannot be written to a {before.dtype} tensor")

    def _reshape(self, schema: Schema, bound: Sequence[Any]) -> Any:
        name, _, overload = schema.name.partition("_")
        twin = registry.schema(name + overload) or registry.schema(f"{name}.int")
        assert twin is not None, schema.name
        bound[0].rebind(self.apply(twin, bound).ssa)
        return bound[0]

    def compute(self, base: str, operands: Sequence[Any]) -> Any:
        """Emit arithmetic on numbers of which at least one is a value of the program."""
        if not all(isinstance(o, (int, float, values.Scalar)) for o in operands):
            return NotImplemented
        kinds = ["float" if isinstance(o, (float, values.Float)) else "int" for o in operands]
        overload = kinds[0] if len(set(kinds)) == 1 else "_".join(kinds)
        schema = registry.schema(f"{base}.{overload}") or registry.schema(base)
        assert schema is not None, (base, overload)
        return self.apply(schema, operands)

    # --- Modules ---

    def enroll(self, module: Any) -> None:
        """Name the weights and the parts of a module by their paths."""
        for path, part in module.named_modules():
            self.module_names.setdefault(id(part), path)
        for path, tensor in (*module.named_parameters(), *module.named_buffers()):
            self.names.setdefault(id(tensor), path)

    @contextmanager
    def inside(self, module: Any) -> Iterator[None]:
        """Note, for the length of the block, that a module's `forward` is running."""
        if id(module) not in self.module_names:
            self.enroll(module)
        self.paths.append(self.module_names[id(module)])
        try:
            yield
        finally:
            self.paths.pop()

    # --- From Python to the program ---

    def unwrap(self, type_: SchemaType, value: Any) -> Any:
        """Convert an argument to what the builder takes: SSA values, Python constants, lists of both."""
        if isinstance(value, values.Value):
            return value.ssa
        if type_.is_list and isinstance(value, (list, tuple)):
            element = SchemaType(type_.base, type_.elements_optional)
            return [self.unwrap(element, v) for v in value]
        if value is None:
            return None
        if type_.is_tensor:
            return self.literal_of(values.as_array(value), "constant")
        if type_.base == "ScalarType" and not isinstance(value, int):
            return values.as_dtype(value)
        if type_.base == "Device":
            return Device(value)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, complex):
            raise TypeError("a complex number is not an argument of ops: use a complex tensor")
        return int(value) if isinstance(value, int) and not isinstance(value, bool) else value

    def literal_of(self, array: np.ndarray[Any, Any], name: str, inline: int = INLINE_BYTES) -> SSAValue:
        """Emit a constant tensor: `dense` in the text when small, else a resource by name."""
        dtype = dtype_of(array)
        if dtype is None:
            raise TypeError(f"an array of {array.dtype} has no counterpart in programs: convert it to a standard dtype")
        self.location = self.here()
        if array.nbytes <= (OBJECT_INLINE_BYTES if self.objects else inline):
            value = dense(as_bytes(array).tobytes(), dtype, array.shape)
        else:
            value = self._resource(array, dtype, name)
        return self._literal(value, dtype, array.shape)

    def _literal(self, value: Attribute, dtype: DType, shape: Sequence[int]) -> SSAValue:
        if not self.objects:
            return self.literal(value, dtype, shape)
        type_ = to_non_value(vtensor(tuple(shape), dtype.torch_type))
        return self.value(NonValueTensorLiteralOp, (), type_, {"value": value})

    def _resource(self, array: np.ndarray[Any, Any], dtype: DType, name: str) -> Attribute:
        key = (array.ctypes.data, array.shape, array.strides, array.dtype)
        if key not in self._resources:
            resource = self.weights.free_name(name)
            self.weights.tensors[resource] = array
            type_: Any = BuiltinTensorType(dtype.torch_type, list(array.shape))
            self._resources[key] = DenseResourceAttr(StringAttr(resource), type_)
        return self._resources[key]

    def stored(self, tensor: values.StoredTensor) -> SSAValue:
        """Return the literal of a weight, which is emitted once."""
        found = self._stored.get(id(tensor))
        if found is None:
            name = self.names.get(id(tensor), "weight")
            # Whatever stands in a branch or a loop by then: a weight is there from the start.
            found = self._stored[id(tensor)] = (tensor, self.literal_of(tensor.data, name, inline=0))
        return found[1]

    # --- From the program to Python ---

    def is_wrapped(self, value: SSAValue) -> bool:
        """Tell whether Python has a class for values of this type."""
        return isinstance(value.type, TensorType) or value.type in _WRAPPERS

    def wrap(self, value: SSAValue) -> Any:
        """Wrap an SSA value in its Python class."""
        if isinstance(value.type, TensorType):
            return values.Tensor(value, self)
        return _WRAPPERS[value.type](value, self)

    def _wrap(self, value: SSAValue, meta: Any) -> Any:
        if isinstance(value.type, ListType):
            if not isinstance(meta, list):
                raise InferenceError("the length of a list of results is not known")
            types = [to_non_value(vtensor()) if self.objects else type_of(m) for m in meta]
            unpacked = self.emit(ListUnpackOp, (value,), types).results
            return tuple(self._wrap(v, m) for v, m in zip(unpacked, meta, strict=True))
        if isinstance(meta, Meta) and self.objects:
            self._metas[value] = meta
        return self.wrap(value)

    def output(self, leaf: Any) -> Any:
        """Convert a leaf of what a function returns to an SSA value, or leave it a constant."""
        if isinstance(leaf, np.ndarray):
            return self.literal_of(leaf, "constant")
        return leaf.ssa if isinstance(leaf, values.Value) else leaf

    def meta(self, value: Any) -> Any:
        """Convert an argument to what inference rules take: a Meta, an Unknown or a constant."""
        if isinstance(value, (list, tuple)):
            return [self.meta(v) for v in value]
        if isinstance(value, SSAValue) and value in self._metas:
            return self._metas[value]
        return meta_of(value)

    def meta_of_tensor(self, value: SSAValue) -> Meta:
        found = self.meta(value)
        assert isinstance(found, Meta)
        return found

    def size(self, x: values.Tensor, dim: int) -> Any:
        """Return the size of a dim: an int if it is static, else a value of the program, computed once."""
        known = x.meta.shape[dim]
        if known is not None:
            return known
        key = (x.ssa, dim)
        if key not in self._sizes:
            schema = registry.schema("aten.size.int")
            assert schema is not None
            self._sizes[key] = self.apply(schema, [x, dim])
        return self._sizes[key]

    # --- Where we are ---

    def here(self) -> Attribute:
        """Make the location of the user's line, with its call stack, under the path of the running module."""
        frames: list[Frame] = []
        frame: Any = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            if code.co_filename.startswith(_PACKAGE):
                if code.co_name == "trace_function":
                    break
            else:
                frames.append(Frame(code.co_filename, frame.f_lineno, code.co_name))
                if self.objects:
                    break
            frame = frame.f_back
        return location_of_frames(tuple(reversed(frames)), self.paths[-1] if self.paths else None)


def _share(a: Argument, b: Argument) -> bool:
    return a.alias is not None and b.alias is not None and bool(set(a.alias.sets) & set(b.alias.sets))


@cache
def _real_name(base: str) -> str:
    """Resolve an alias to the name of the real operator."""
    name = base.removeprefix("aten.")
    stem = name.removesuffix("_")
    return f"aten.{ALIASES[stem]}{name[len(stem) :]}" if stem in ALIASES else base


def _is_known(meta: Any) -> bool:
    """Tell whether a result is known to be a Python value: then there is nothing to compute."""
    if isinstance(meta, list):
        return bool(meta) and all(map(_is_known, meta))
    return not isinstance(meta, (Meta, Unknown))


@cache
def _result_class(schema: Schema) -> Callable[..., Any]:
    """Return the class that holds several results: a named tuple where the schema names them."""
    names = [r.name for r in schema.returns]
    if all(names) and len(set(names)) == len(names):
        return namedtuple(schema.base_name, names, rename=True)
    return lambda *results: results
