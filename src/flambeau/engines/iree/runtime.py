"""A loaded IREE artefact whose functions can be called."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import iree.runtime as rt
import numpy as np
from iree.runtime._binding import create_hal_driver

from flambeau.engines.errors import EngineError, RunError
from flambeau.engines.iree.buffers import from_buffer_view, memory_of, overlaps, to_buffer_view
from flambeau.ir.arrays import as_bytes, is_array, prefers_torch
from flambeau.ir.module import ScalarSpec, TensorSpec

DEVICES = ("local-task", "local-sync")
PARAMETER_SCOPE = "model"
_HELD = ("_functions", "_context", "_module", "_index", "_device")
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
    """The device of that name in this process."""
    with _DEVICES_LOCK:
        if name not in _DEVICES:
            # Not IREE's cached driver: in a forked process that one has the threads of the parent, which are not there.
            _DEVICES[name] = create_hal_driver(name).create_device_by_uri(name)
        return _DEVICES[name]


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
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))  # never freed


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Program:
    """The functions of an artefact, over weights that stay where they are.

    Weights are read from the tensors' own memory. Edits of a tensor after loading are seen if it was contiguous and
    64-byte aligned, and if the compiler did not repack it (as the `model` profile does with weights of matrix
    products). Torch tensors in give torch tensors out, numpy arrays give numpy arrays.
    """

    def __init__(self, vmfb: bytes, parameters: Mapping[str, Any], device: str = "local-task") -> None:
        if device not in DEVICES:
            raise ValueError(f"there is no device {device!r}; known devices: {', '.join(DEVICES)}")
        _LIVE.add(self)
        self._is_abandoned = False
        self._parameters = parameters
        self._vmfb, self._device_name = vmfb, device
        self._lock = threading.RLock()  # one context is for one thread at a time, and a call lets other threads run
        self._start()

    def _start(self) -> None:
        parameters, vmfb = self._parameters, self._vmfb
        self._device = _device(self._device_name)
        self._functions: dict[str, Any] = {}
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
        if self._is_abandoned:
            with self._lock:
                if self._is_abandoned:
                    self._start()
                    self._is_abandoned = False
        if as_torch is None:
            as_torch = prefers_torch(args)
        if as_torch is None:
            as_torch = prefers_torch(self._parameters.values()) or False
        inputs = rt.VmVariantList(len(args))
        alive = []  # not every view keeps the memory that it shows
        seen: list[range] = []
        for arg in args:
            if is_array(arg):
                view, owner = to_buffer_view(self._device, arg)
                inputs.push_ref(view.ref)
                if owner is not None:
                    alive.append(owner)
                    seen.append(memory_of(owner))
            elif isinstance(arg, (float, np.floating)):
                inputs.push_float(float(arg))
            elif isinstance(arg, (int, np.integer, np.bool_)):
                inputs.push_int(int(arg))
            else:
                raise TypeError(f"a program takes tensors and numbers, not a {type(arg).__name__}")
        outputs = rt.VmVariantList(len(results))
        found = self._function(function)
        try:
            with self._lock:
                self._context.invoke(found, inputs, outputs)
        except (RuntimeError, ValueError, IndexError) as error:
            raise RunError(_reason(error)) from error
        if len(outputs) != len(results):
            raise RunError(f"{function!r} gave {len(outputs)} results where {len(results)} were expected")
        return [self._result(outputs, i, spec, as_torch, seen) for i, spec in enumerate(results)]

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            found = self._module.lookup_function(name)
            if found is None:
                raise ValueError(f"the program has no function {name!r}; it has {', '.join(self.functions)}")
            self._functions[name] = found
        return self._functions[name]

    def _result(self, outputs: Any, i: int, spec: TensorSpec | ScalarSpec, as_torch: bool, seen: list[range]) -> Any:
        if isinstance(spec, ScalarSpec):
            return {"int": int, "float": float, "bool": bool}[spec.kind](outputs.get_variant(i))
        array = from_buffer_view(self._device, outputs.get_as_object(i, rt.HalBufferView), spec.dtype, as_torch)
        if 0 in array.shape:
            return array
        # IREE returns an argument that did not change as it came, a part of it as a view, equal results as one buffer.
        if any(overlaps(memory_of(array), other) for other in seen):
            return array.clone() if as_torch else array.copy()
        seen.append(memory_of(array))
        return array


def _reason(error: Exception) -> str:
    """The part of IREE's message that is about the program and not about IREE's own source files."""
    text = re.sub(r"\n\[ *\d+\].*", "", str(error), flags=re.DOTALL)
    found = re.match(r"(?:Error [^:]*: )?\S+:\d+: ([A-Z_]+); (.*)", text, flags=re.DOTALL)
    if not found:
        return text.strip()
    status, message = found.groups()
    if status != "FAILED_PRECONDITION":  # which carries the text of an assertion, whatever is in there
        message = re.split(r"; while (?:invoking|calling) ", message)[0]
    return str(message).rstrip().removesuffix(";").rstrip()
