"""`nn.Module`, parameters, buffers and containers, as PyTorch has them, on numpy arrays."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from flambeau.frontends.nn.core import context
from flambeau.frontends.nn.core.lazy import np
from flambeau.frontends.nn.core.values import StoredTensor, Tensor


class Parameter(StoredTensor):
    """A weight of a module, over a numpy array. Two modules that hold the same one share it."""

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        super().__init__(data)


class Buffer(StoredTensor):
    """A tensor of a module that is not a parameter: running statistics, a mask."""

    def __init__(self, data: Any, persistent: bool = True) -> None:
        super().__init__(data)
        self.persistent = persistent


class Module:
    """A part of a model. Subclasses set parameters and modules in `__init__`, and define `forward`."""

    training: bool = True
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Buffer | None]
    _modules: dict[str, Module | None]

    def __init__(self) -> None:
        for name in ("_parameters", "_buffers", "_modules"):
            object.__setattr__(self, name, {})

    # --- Calling ---

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's result; subclasses override this."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracer = context.current()
        with tracer.inside(self):
            if tracer.objects:
                # Where tensors are objects, a module's weights stand before its ops, the last one first.
                for parameter in reversed([p for p in self._parameters.values() if p is not None]):
                    tracer.stored(parameter)
            return self.forward(*args, **kwargs)

    # --- Attributes ---

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (Parameter, Buffer, Module)) and "_modules" not in self.__dict__:
            raise AttributeError(f"call super().__init__() before setting {name!r}")
        tables = {Parameter: "_parameters", Buffer: "_buffers", Module: "_modules"}
        for cls, table in tables.items():
            if isinstance(value, cls):
                self._forget(name)
                self.__dict__[table][name] = value
                return
        for table in tables.values():
            if name in self.__dict__.get(table, ()):
                self._assign(name, table, value)
                return
        object.__setattr__(self, name, value)

    def _assign(self, name: str, table: str, value: Any) -> None:
        """Give a new value to a parameter, buffer or module that is there."""
        held = self.__dict__[table][name]
        if value is None:
            self.__dict__[table][name] = None
        elif isinstance(value, Tensor) and isinstance(held, Buffer):
            held.copy_(value)  # in a program: the buffer has this value from here on
        elif isinstance(value, np.ndarray) and table != "_modules":
            self.__dict__[table][name] = Parameter(value) if table == "_parameters" else Buffer(value)
        else:
            kind = {"_parameters": "a parameter", "_buffers": "a buffer", "_modules": "a module"}[table]
            raise TypeError(f"{name!r} is {kind} of this module: it cannot become a {type(value).__name__}")

    def _forget(self, name: str) -> None:
        self.__dict__.pop(name, None)
        for table in ("_parameters", "_buffers", "_modules"):
            self.__dict__[table].pop(name, None)

    def __getattr__(self, name: str) -> Any:
        for table in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__.get(table, ()):
                return self.__dict__[table][name]
        raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        if any(name in self.__dict__[t] for t in ("_parameters", "_buffers", "_modules")):
            self._forget(name)
        else:
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def register_parameter(self, name: str, value: Parameter | None) -> None:
        """Add a parameter, or the name of one that is absent."""
        self._forget(name)
        self._parameters[name] = value

    def register_buffer(self, name: str, value: Any, persistent: bool = True) -> None:
        """Add a buffer; one that is not persistent is left out of `state_dict`."""
        self._forget(name)
        self._buffers[name] = None if value is None else Buffer(value, persistent)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a module."""
        self._forget(name)
        self._modules[name] = module

    add_module = register_module

    # --- Walking ---

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yield this module and all below it, each once, with their paths."""
        seen: set[int] = set()

        def walk(module: Module, path: str) -> Iterator[tuple[str, Module]]:
            if id(module) in seen:
                return
            seen.add(id(module))
            yield path, module
            for name, child in module._modules.items():
                if child is not None:
                    yield from walk(child, f"{path}.{name}" if path else name)

        yield from walk(self, prefix)

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return ((name, child) for name, child in self._modules.items() if child is not None)

    def children(self) -> Iterator[Module]:
        return (child for _, child in self.named_children())

    def _named(self, table: str, prefix: str, recurse: bool, duplicates: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for path, module in self.named_modules(prefix) if recurse else [(prefix, self)]:
            for name, value in module.__dict__[table].items():
                if value is not None and (duplicates or id(value) not in seen):
                    seen.add(id(value))
                    yield (f"{path}.{name}" if path else name), value

    def named_parameters(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yield parameters with their paths; one that is shared comes once."""
        return self._named("_parameters", prefix, recurse, False)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True) -> Iterator[tuple[str, Buffer]]:
        """Yield buffers with their paths; one that is shared comes once."""
        return self._named("_buffers", prefix, recurse, False)

    def buffers(self, recurse: bool = True) -> Iterator[Buffer]:
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, path: str) -> Module:
        """Return the module at a path such as `encoder.0`."""
        module: Any = self
        for name in path.split(".") if path else ():
            module = module._modules[name]
        return module

    def apply(self, f: Callable[[Module], Any]) -> Self:
        """Call a function on every module, the innermost first."""
        for child in self.children():
            child.apply(f)
        f(self)
        return self

    # --- Modes ---

    def train(self, mode: bool = True) -> Self:
        """Set training mode: dropout drops, batch norms use the batch's statistics."""
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def eval(self) -> Self:
        """Set inference mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Return the module unchanged: programs are built without autograd."""
        return self

    def to(self, dtype: Any) -> Self:
        """Convert the floating-point parameters and buffers."""
        from flambeau.frontends.nn.core.values import as_dtype
        from flambeau.ir.arrays import numpy_dtype

        wanted = as_dtype(dtype)
        if wanted is None:
            raise TypeError(f"{dtype!r} is not a dtype")
        for value in (*self.parameters(), *self.buffers()):
            if value.dtype.is_float:
                value.data = value.data.astype(numpy_dtype(wanted))
        return self

    def float(self) -> Self:
        return self.to("float32")

    def double(self) -> Self:
        return self.to("float64")

    def half(self) -> Self:
        return self.to("float16")

    # --- State ---

    def state_dict(self, prefix: str = "") -> dict[str, np.ndarray[Any, Any]]:
        """Map PyTorch's names to the arrays of parameters and persistent buffers. Nothing is copied."""
        return {name: value.data for name, value in self._state(prefix)}

    def _state(self, prefix: str = "") -> Iterator[tuple[str, StoredTensor]]:
        # Like PyTorch's: a shared tensor is there under each of its names.
        for name, value in (*self._parameters.items(), *self._buffers.items()):
            if value is not None and getattr(value, "persistent", True):
                yield prefix + name, value
        for name, child in self._modules.items():
            if child is not None:
                yield from child._state(f"{prefix}{name}.")

    def load_state_dict(
        self, state: Mapping[str, Any] | str | Path, strict: bool = True
    ) -> tuple[list[str], list[str]]:
        """Take the contents of parameters and buffers from a mapping, or from the path of a safetensors file.

        Arrays of the right dtype are taken as they are, without a copy; others are converted. Gives the names that
        are missing and those that are unexpected; with `strict`, either is an error.
        """
        if isinstance(state, (str, Path)):
            from flambeau.ir.safetensors_file import read_safetensors

            state = read_safetensors(Path(state))
        own = dict(self._state())
        missing = [name for name in own if name not in state]
        unexpected = [name for name in state if name not in own]
        problems = []
        if strict and missing:
            problems.append(f"missing: {', '.join(missing)}")
        if strict and unexpected:
            problems.append(f"unexpected: {', '.join(unexpected)}")
        arrays = {name: _array(state[name]) for name in own if name in state}
        for name, array in arrays.items():
            if array.shape != own[name].data.shape:
                problems.append(f"{name} has shape {list(array.shape)}, not {list(own[name].data.shape)}")
        if problems:
            raise RuntimeError(f"the state does not fit {type(self).__name__}: {'; '.join(problems)}")
        for name, array in arrays.items():
            value = own[name]
            value.data = array if array.dtype == value.data.dtype else array.astype(value.data.dtype)
        return missing, unexpected

    # --- Text ---

    def extra_repr(self) -> str:
        """Return what stands in the parentheses of the module's `repr`."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = [line for line in self.extra_repr().split("\n") if line]
        children = []
        for name, child in self._modules.items():
            lines = repr(child).split("\n")
            children.append(f"({name}): " + "\n".join([lines[0], *("  " + line for line in lines[1:])]))
        if len(extra) == 1 and not children:
            return f"{self._get_name()}({extra[0]})"
        lines = extra + children
        body = "".join(f"\n  {line}" for line in lines) + "\n" if lines else ""
        return f"{self._get_name()}({body})"


def _array(value: Any) -> np.ndarray[Any, Any]:
    """Return the numpy array of an array-like, a stored tensor, or a torch tensor, sharing memory where possible."""
    if isinstance(value, StoredTensor):
        return value.data
    if hasattr(value, "detach"):
        from flambeau.ir.arrays import to_numpy

        return to_numpy(value)
    return np.asarray(value)


# --- Containers ---


class _Numbered(Module):
    """What modules in an order have in common: their names are numbers."""

    def append(self, module: Module) -> Self:
        self.register_module(str(len(self)), module)
        return self

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return self.children()


class Sequential(_Numbered):
    """Modules, each called on what the one before it gives."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            named: Iterable[tuple[str, Module]] = modules[0].items()
        else:
            named = ((str(i), m) for i, m in enumerate(modules))
        for name, module in named:
            self.register_module(name, module)

    def forward(self, x: Any) -> Any:
        for module in self.children():
            x = module(x)
        return x

    def __getitem__(self, index: int | slice) -> Any:
        items = list(self._modules.items())
        if isinstance(index, slice):
            return type(self)(OrderedDict(items[index]))
        return items[index][1]


class ModuleList(_Numbered):
    """A list of modules."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def extend(self, modules: Iterable[Module]) -> Self:
        for module in modules:
            self.append(module)
        return self

    def __getitem__(self, index: int | slice) -> Any:
        items = list(self.children())
        return type(self)(items[index]) if isinstance(index, slice) else items[index]

    def __setitem__(self, index: int, module: Module) -> None:
        self._modules[str(range(len(self))[index])] = module


class _Named(Module):
    """What modules by name and parameters by name have in common."""

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.update(values or {})

    def _held(self) -> Mapping[str, Any]:
        raise NotImplementedError

    def update(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        return self._held()[name]

    def __setitem__(self, name: str, value: Any) -> None:
        raise NotImplementedError

    def __contains__(self, name: object) -> bool:
        return name in self._held()

    def __len__(self) -> int:
        return len(self._held())

    def __iter__(self) -> Iterator[str]:
        return iter(self._held())

    def keys(self) -> Iterable[str]:
        return self._held().keys()

    def values(self) -> Iterable[Any]:
        return self._held().values()

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._held().items()


class ModuleDict(_Named):
    """Modules by name."""

    def _held(self) -> Mapping[str, Any]:
        return self._modules

    def __setitem__(self, name: str, module: Module) -> None:
        self.register_module(name, module)


class ParameterList(Module):
    """A list of parameters."""

    def __init__(self, values: Iterable[Any] = ()) -> None:
        super().__init__()
        for value in values:
            self.append(value)

    def append(self, value: Any) -> Self:
        self.register_parameter(str(len(self)), value if isinstance(value, Parameter) else Parameter(value))
        return self

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())

    def __getitem__(self, index: int) -> Any:
        return list(self._parameters.values())[index]


class ParameterDict(_Named):
    """Parameters by name."""

    def _held(self) -> Mapping[str, Any]:
        return self._parameters

    def __setitem__(self, name: str, value: Any) -> None:
        self.register_parameter(name, value if isinstance(value, Parameter) else Parameter(value))
