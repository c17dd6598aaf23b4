"""A loaded IREE artefact whose functions can be called."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import iree.runtime as rt
from iree.runtime._binding import create_hal_driver, disable_leak_checker

from flambeau.engines.errors import EngineError, RunError
from flambeau.engines.iree.buffers import Inputs, results_reader, to_inputs
from flambeau.engines.iree.external import Bound
from flambeau.engines.iree.external import modules as external_modules
from flambeau.ir.arrays import Span, as_bytes, prefers_torch
from flambeau.ir.module import ScalarSpec, TensorSpec

DEVICES = ("local-task", "local-sync")
PARAMETER_SCOPE = "model"
_KEPT_MEMORY = "caching:*=*;256mib;256"
"""How IREE allocates: up to so much freed memory, in up to so many blocks, is kept for buffers of the same size.

Blocks of 32 MB and more the C library gives back to the system at once, and each call waits for new, zeroed pages.
"""
_HELD = ("quick", "quick_bind", "quickly_bound", "_bound", "_functions", "_context", "_module", "_index", "_device")
"""What of a program belongs to IREE."""


_LIVE: weakref.WeakSet[Program] = weakref.WeakSet()
_DEVICES: dict[str, Any] = {}
_DEVICES_LOCK = threading.Lock()


@atexit.register
def _release() -> None:
    # IREE complains at length about what is still alive when Python has ended, and others may hold on to a program.
    for program in list(_LIVE):
        program.close()


def _device(name: str) -> Any:
    """Return the device of that name in this process."""
    with _DEVICES_LOCK:
        if name not in _DEVICES:
            # Not IREE's cached driver: in a forked process that one has the threads of the parent, which are not there.
            _DEVICES[name] = create_hal_driver(name).create_device_by_uri(name, [_KEPT_MEMORY])
            # A result's memory goes back to the device, which it does not hold: a tensor may outlive all else.
            _never_free(_DEVICES[name])
            disable_leak_checker()
        return _DEVICES[name]


def _never_free(thing: Any) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _after_fork() -> None:
    """Let programs start anew in a forked process: the threads that they ran on exist in the parent only."""
    global _DEVICES_LOCK
    _DEVICES_LOCK = threading.Lock()
    _abandon()
    # Nor does a forked process let go of anything when it ends: IREE may wait for what is not there.
    atexit.unregister(_release)
    atexit.register(_abandon)


def _abandon() -> None:
    abandoned = [program.abandon() for program in list(_LIVE)] + list(_DEVICES.values())
    _DEVICES.clear()
    for thing in abandoned:
        _never_free(thing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Program:
    """The functions of an artefact, over weights that stay where they are.

    Weights are read from the tensors' own memory. Edits of a tensor after loading are seen if it was contiguous and
    64-byte aligned, and if the compiler did not repack it (as the `model` profile does with weights of matrix
    products). Torch tensors in give torch tensors out, numpy arrays give numpy arrays.
    """

    quick: Callable[[tuple[Any, ...]], Any] | None = None
    """A way to call a function that was called before. It is here to be let go of with all else that is IREE's."""
    quick_bind: Callable[[tuple[Any, ...]], Callable[[], Any] | None] | None = None
    """A way to bind arguments to a call of it, and what was bound."""
    quickly_bound: dict[object, Callable[[], Any]]

    def __init__(
        self,
        vmfb: bytes,
        parameters: Mapping[str, Any],
        device: str = "local-task",
        functions: tuple[Bound, ...] = (),
    ) -> None:
        if device not in DEVICES:
            raise ValueError(f"there is no device {device!r}; known devices: {', '.join(DEVICES)}")
        _LIVE.add(self)
        self._is_abandoned = False
        self._parameters = parameters
        self._vmfb, self._device_name, self._bound_functions = vmfb, device, functions
        self._lock = threading.RLock()
        self._start()

    def _start(self) -> None:
        parameters, vmfb = self._parameters, self._vmfb
        self._device = _device(self._device_name)
        self._device.allocator.trim()  # what other programs left has other sizes, and takes the place of what is kept
        self._functions: dict[str, Function] = {}
        self._bound: dict[object, tuple[Inputs, Function]] = {}
        self.quickly_bound = {}
        instance = rt.VmInstance()
        self._index = rt.ParameterIndex()
        self._memory = []  # the index does not keep what it points to
        for name, tensor in parameters.items():
            try:
                data = as_bytes(tensor)
            except (ValueError, RuntimeError, TypeError) as error:
                raise EngineError(f"cannot read the weight {name!r}: {error}") from error
            self._memory.append(data)
            self._index.add_buffer(name, data)
        try:
            self._module = rt.VmModule.copy_buffer(instance, vmfb)
        except ValueError as error:
            raise EngineError(f"this is not an artefact that IREE can load: {_reason(error)}") from error
        provider = self._index.create_provider(scope=PARAMETER_SCOPE)
        modules = [
            rt.create_hal_module(instance, self._device),
            rt.create_io_parameters_module(instance, provider),
            *external_modules(self._device, self._bound_functions),
            self._module,
        ]
        try:
            self._context = rt.VmContext(instance, modules=modules)
        except (ValueError, IndexError, RuntimeError) as error:
            reason = _reason(error)
            if "no executable loader registered" in reason:
                reason = "the compiled code needs a function that no library on this machine has, or another CPU"
            raise EngineError(f"IREE could not load the program: {reason}") from error

    @property
    def device(self) -> Any:
        """IREE's device, which the program runs on."""
        return self._device

    @property
    def functions(self) -> list[str]:
        """The names of the functions that can be called."""
        return [name for name in self._module.function_names if not name.startswith("__")]

    def close(self) -> None:
        """Let go of everything that IREE holds; the program cannot be called any more."""
        for name in _HELD:
            self.__dict__.pop(name, None)

    def abandon(self) -> list[Any]:
        """Give up what IREE holds without letting go of it; the next call starts anew."""
        self._lock = threading.RLock()
        self._is_abandoned = True
        return [self.__dict__.pop(name, None) for name in _HELD]

    def call(
        self,
        function: str,
        args: Sequence[Any],
        results: Sequence[TensorSpec | ScalarSpec],
        *,
        as_torch: bool | None = None,
    ) -> list[Any]:
        """Call a function with tensors and Python numbers; `results` are the types of what it returns.

        Results are torch tensors if one of the arguments is (or, without arguments, one of the weights), unless
        `as_torch` decides. No result shares memory with an argument or with another result.
        """
        if as_torch is None:
            as_torch = prefers_torch(args)
        if as_torch is None:
            as_torch = prefers_torch(self._parameters.values()) or False
        return self.function(function, results).call(self.inputs(args), as_torch)

    def bind(
        self, function: str, args: Sequence[Any], results: Sequence[TensorSpec | ScalarSpec], as_torch: bool
    ) -> Callable[[], list[Any]]:
        """Bind arguments to a call of a function; what IREE can read in place is converted once."""
        key = object()

        def call() -> list[Any]:
            # It is not held by the call itself: all that is IREE's must be let go of, or be given up, with the program.
            bound = self.__dict__.get("_bound", {}).get(key)
            if bound is None:
                bound = self.inputs(args), self.function(function, results)
                if bound[0].are_in_place:
                    self._bound[key] = bound
            return bound[1].call(bound[0], as_torch)

        weakref.finalize(call, self.unbind, key).atexit = False
        return call

    def unbind(self, key: object) -> None:
        """Let go of what was bound under a key."""
        for name in ("_bound", "quickly_bound"):
            self.__dict__.get(name, {}).pop(key, None)

    def inputs(self, args: Sequence[Any]) -> Inputs:
        """Take arguments, tensors and Python numbers, as IREE takes them."""
        if self._is_abandoned:
            with self._lock:
                if self._is_abandoned:
                    self._start()
                    self._is_abandoned = False
        return to_inputs(self._device, args)

    def function(self, name: str, results: Sequence[TensorSpec | ScalarSpec]) -> Function:
        """Return the function of that name, with results of these types."""
        found = self._functions.get(name)
        if found is None or found.results is not results:
            handle = self._module.lookup_function(name)
            if handle is None:
                raise ValueError(f"the program has no function {name!r}; it has {', '.join(self.functions)}")
            read = results_reader(self._device, results)
            found = self._functions[name] = Function(name, handle, results, read, self._context, self._lock)
        return found


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a program that is loaded."""

    name: str
    handle: Any
    results: Sequence[TensorSpec | ScalarSpec]
    read: Callable[[Any, bool, list[Span]], list[Any]]
    context: Any
    lock: threading.RLock
    """One context is for one thread at a time, and IREE lets other threads run while it is in a call."""

    def call(self, inputs: Inputs, as_torch: bool) -> list[Any]:
        """Run the function. Other threads may take arguments and read results meanwhile, but not run one."""
        outputs = rt.VmVariantList(len(self.results))
        try:
            with self.lock:
                self.context.invoke(self.handle, inputs.variants, outputs)
        except (RuntimeError, ValueError, IndexError) as error:
            raise RunError(_reason(error)) from error
        if len(outputs) != len(self.results):
            raise RunError(f"{self.name!r} gave {len(outputs)} results where {len(self.results)} were expected")
        return self.read(outputs, as_torch, inputs.spans)


def _reason(error: Exception) -> str:
    """Extract the part of IREE's message that is about the program and not about IREE's own source files."""
    text = re.sub(r"\n\[ *\d+\].*", "", str(error), flags=re.DOTALL)
    found = re.match(r"(?:Error [^:]*: )?\S+:\d+: ([A-Z_]+); (.*)", text, flags=re.DOTALL)
    if not found:
        return text.strip()
    status, message = found.groups()
    if message.startswith("Exception raised from Python module"):
        last = re.split(r"; while (?:invoking|calling) ", message.strip().splitlines()[-1])[0]
        return f"a function that the program calls failed: {last}"
    if status != "FAILED_PRECONDITION":  # which carries the text of an assertion, whatever is in there
        message = re.split(r"; while (?:invoking|calling) ", message)[0]
    return str(message).rstrip().removesuffix(";").rstrip()
