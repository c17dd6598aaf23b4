"""A program compiled by XLA, called like the Python callable that it came from."""

from __future__ import annotations

import time
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from threading import Lock
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from flambeau.diagnostics import CompileError
from flambeau.engines.errors import EngineError, RunError
from flambeau.engines.executable import ProgramExecutable
from flambeau.engines.xla.attention import ATTENTION
from flambeau.engines.xla.client import (
    Device,
    DeviceWeight,
    JaxError,
    compile_program,
    from_arrays,
    get_device,
    to_arrays,
    weights_on,
)
from flambeau.engines.xla.gpu import with_attention
from flambeau.engines.xla.partitioned import Partitioned, partition
from flambeau.engines.xla.programs import OpenSize, Program, Wanted, axes_of, has_open_arguments, program_of
from flambeau.ir import dtypes
from flambeau.ir.arrays import is_array, is_torch
from flambeau.ir.module import ScalarSpec, Signature, TensorSpec
from flambeau.lowering.targets import get_target
from flambeau.passes.symbol_dce import functions_of, is_public

Shapes = tuple[tuple[int, ...] | None, ...]
Run = Callable[[list[Any]], list[Any]]


class ThrashWarning(UserWarning):
    """A program is called with so many shapes that it is compiled again and again."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """A function that XLA has compiled, with its weights on the device."""

    program: Program
    run: Run
    weights: list[Any]
    """The arrays of the weights."""
    owners: list[DeviceWeight]
    device: Device
    arguments: tuple[TensorSpec | ScalarSpec, ...]
    results: tuple[TensorSpec | ScalarSpec, ...]
    early: Run | None = None
    """What computes the number of the first check that fails, if `run` does not."""
    reports: Reports | None = None
    """Where that number is kept to be read later; None where a call waits for it."""

    def __call__(self, values: Sequence[Any], as_torch: bool) -> list[Any]:
        """Run the function on a value for each argument; gives its results."""
        device, program = self.device, self.program
        arrays = to_arrays(device, values, self.arguments)
        to_cpu = device.is_cpu or not any(is_torch(v) and not v.is_cpu for v in values)
        try:
            taken = [*arrays, *self.weights]
            number = self._start_checks(taken)
            outputs = self.run(taken)
            if program.checks:
                number = outputs[-1] if number is None else number
                if self.reports is not None:
                    self.reports.add(number, program.checks)
                else:
                    _raise_failed(number, program.checks)
            return from_arrays(device, outputs[: len(self.results)], self.results, as_torch, to_cpu)
        except JaxError as error:
            raise RunError(str(error)) from error

    def _start_checks(self, taken: list[Any]) -> Any:
        """Start the checks on the device, ahead of the function; None if the function computes them itself."""
        if self.early is None or self.program.gpu is None:
            return None
        return self.early([taken[i] for i in self.program.gpu.reads])[0]


def _raise_failed(number: Any, messages: Sequence[str], when: str = "") -> None:
    """Raise for the check whose number a program gave, from 1; 0 says that none failed."""
    if failed := int(np.asarray(number)):
        raise RunError(messages[failed - 1] + when)


class Reports:
    """What calls say of their checks, which is read after they have returned: the GPU is not waited for."""

    def __init__(self) -> None:
        self._unread: deque[tuple[Any, Sequence[str]]] = deque()

    def add(self, number: Any, messages: Sequence[str]) -> None:
        """Note what a call that has just been started will say; raise what those before it have said."""
        number.copy_to_host_async()
        self._unread.append((number, messages))
        self.read(unless=1)

    def read(self, unless: int = 0) -> None:
        """Wait for all calls but so many of the last, and raise for the first that failed."""
        while len(self._unread) > unless:
            _raise_failed(*self._unread.popleft(), when=" (in an earlier call)" if unless else "")


class XlaExecutable(ProgramExecutable):
    """A program compiled by XLA. Its timings are those of `print`, `compile` and `load`."""

    device: str
    compilations: int
    """How many programs XLA has compiled for this one: one for each function, or for each set of shapes."""

    def __init__(
        self,
        programs: Mapping[str, Program],
        origin: ModuleOp | None,
        weights: Mapping[str, Any],
        signatures: Mapping[str, Signature],
        *,
        function: str = "main",
        device: str = "cpu",
        wanted: Wanted | None = None,
        cache: bool = True,
        kept: int = 32,
    ) -> None:
        super().__init__(weights, signatures, function)
        self.device = device
        self.compilations = 0
        self.programs = programs
        """The functions of static shapes."""
        self.origin = origin
        """The program in the torch dialect, which those of dynamic shapes are specialised from."""
        self.wanted = wanted or Wanted()
        self._device, self._cache, self._kept = get_device(device), cache, kept
        self._reports = Reports() if self.wanted.late else None
        self._static = {name: self._compile(name, program) for name, program in programs.items()}
        self._specialized = {
            name: _Specializations(self, name, kept) for name in signatures if name not in self._static
        }

    @classmethod
    def of(cls, module: Any, *, wanted: Wanted, **options: Any) -> XlaExecutable:
        """Make a module of StableHLO callable."""
        start = time.perf_counter()
        if not isinstance(module.op, ModuleOp):
            raise EngineError("XLA takes a module that was compiled here, not text")
        op = module.op if wanted.is_cpu or axes_of(module.op, wanted.mesh) else with_attention(module)
        functions = {n: f for n, f in functions_of(op).items() if n in module.signatures and is_public(f)}
        origin = module.origin.op if module.origin is not None else None
        programs: dict[str, Program] = {}
        for name, function in functions.items():
            if not has_open_arguments(function):
                try:
                    written = [m.result for m in module.signatures[name].mutations]
                    programs[name] = program_of(op, name, wanted, written)
                except OpenSize:
                    if origin is None or axes_of(op, wanted.mesh):
                        raise
        if origin is None and len(programs) < len(functions):
            raise EngineError(
                "XLA compiles for known sizes, and this program of dynamic shapes was read from StableHLO: load it "
                "from the torch dialect or from the model, so that it can be specialised"
            )
        printed = time.perf_counter()
        executable = cls(programs, origin, module.weights, module.signatures, wanted=wanted, **options)
        executable.timings["print"] = printed - start
        for name, function in functions.items():
            if name not in programs and not has_open_arguments(function):
                executable.prepare(name)
        return executable

    @property
    def specializations(self) -> Mapping[str, list[Shapes]]:
        """The shapes that functions of dynamic shapes are compiled for at present, the last used last."""
        return {name: found.shapes for name, found in self._specialized.items()}

    @property
    def default(self) -> str:
        """The function that a call of the program calls."""
        return self._default

    def save(self, path: str | PathLike[str]) -> None:
        """Write `x.xla`, the program for any device of XLA's, and `x.safetensors` beside it."""
        from flambeau.engines.xla.saving import save_executable

        if self.wanted.functions:
            names = ", ".join(self.wanted.functions)
            raise EngineError(f"the program calls functions of Python's, which cannot be saved: {names}")
        save_executable(self, path)

    def call_flat(self, name: str, values: Sequence[Any], as_torch: bool = False) -> list[Any]:
        compiled = self._static.get(name) or self._specialized[name].get(values)
        return compiled(values, as_torch)

    def wait(self) -> None:
        """Wait until the checks of all calls are done; RunError if one failed, with `checks="late"`."""
        if self._reports is not None:
            self._reports.read()

    def prepare(self, name: str) -> None:
        """Compile a function of static arguments now that would be compiled when it is called."""
        specs = [a.spec for a in self.signature(name).arguments]
        shapes = tuple(tuple(n or 0 for n in s.shape) if isinstance(s, TensorSpec) else None for s in specs)
        self._specialized[name].at(shapes)

    def _compile(self, name: str, program: Program, results: Sequence[TensorSpec] = ()) -> Compiled | Partitioned:
        start = time.perf_counter()
        signature = self.signature(name)
        arguments = tuple(a.spec for a in signature.arguments)
        self.compilations += 1
        if program.axes:
            written = [m.result for m in signature.mutations]
            given = tuple(results) or signature.results
            partitioned = partition(program, self._device, self.weights, arguments, given, written)
            self.timings["compile"] = self.timings.get("compile", 0.0) + time.perf_counter() - start
            return partitioned
        run, early = self._for_device(program)
        self.timings["compile"] = self.timings.get("compile", 0.0) + time.perf_counter() - start
        weights = weights_on(self._device, self.weights, program.weights)
        arrays = [weight.array for weight in weights]
        given = tuple(results) or signature.results
        return Compiled(program, run, arrays, weights, self._device, arguments, given, early, self._reports)

    def _for_device(self, program: Program) -> tuple[Run, Run | None]:
        """Compile a program for one device; also what computes its checks, if that is a program of its own."""
        if program.gpu is not None:
            try:
                early = program.gpu.checks and compile_program(program.gpu.checks, self._device, self._cache).execute
                return compile_program(program.gpu.text, self._device, self._cache).execute, early or None
            except EngineError as error:
                warnings.warn(f"XLA takes the program, but not as it is best for a GPU: {error}", stacklevel=2)
        return compile_program(program.text, self._device, self._cache).execute, None

    def compiled(self, name: str | None = None) -> Compiled | Partitioned:
        """Return a function of static shapes as XLA has compiled it; ValueError for one of dynamic shapes."""
        if (name or self._default) not in self._static:
            raise ValueError(f"{name or self._default!r} is compiled for the shapes of each call")
        return self._static[name or self._default]

    def partitioned(self, name: str | None = None) -> Partitioned:
        """Return a function as it is laid out over many devices; ValueError if it runs on one."""
        found = self._static.get(name or self._default)
        if not isinstance(found, Partitioned):
            raise ValueError(f"{name or self._default!r} runs on one device: compile it with a mesh")
        return found

    def specialize(self, name: str, shapes: Shapes) -> Callable[..., list[Any]]:
        """Compile a function for arguments of these shapes; None stands for a number."""
        from flambeau.engines.xla.specialize import specialize

        assert self.origin is not None
        try:
            return self.continued(specialize(self.origin, name, shapes, self.wanted.external), name)
        except CompileError as error:
            called = ", ".join("x".join(map(str, s)) or "0-d" for s in shapes if s is not None)
            raise RunError(f"the program does not take arguments of the shapes {called}: {error}") from error

    def continued(self, module: ModuleOp, name: str) -> Callable[..., list[Any]]:
        """Compile a function of a module in the torch dialect: whole, or what comes before its first open size."""
        from flambeau.engines.xla.stages import counting_stage, find_read

        kept = () if self.wanted.is_cpu else (ATTENTION,)
        lowered = get_target("stablehlo").lower(module.clone(), {"external": self.wanted.external}, kept)
        try:
            return self._compile(name, program_of(lowered, name, self.wanted))
        except OpenSize:
            if find_read(functions_of(module)[name]) is None:
                raise
        counting = program_of(counting_stage(module, name), name, self.wanted)
        return _Staged(self, name, module, self._compile(name, counting, (_COUNT,)), self._kept)


_COUNT = TensorSpec((), dtypes.int64)


class _Staged:
    """A function in which a size depends on contents: what computes the size, and what follows for each size."""

    def __init__(self, executable: XlaExecutable, name: str, module: ModuleOp, count: Any, kept: int) -> None:
        self.executable, self.name, self.module, self.count, self.kept = executable, name, module, count, kept
        self._found: OrderedDict[int, Callable[..., list[Any]]] = OrderedDict()
        self._lock = Lock()

    def __call__(self, values: Sequence[Any], as_torch: bool) -> list[Any]:
        """Run the function on a value for each argument; gives its results."""
        return self._following(int(self.count(values, False)[0]))(values, as_torch)

    def _following(self, number: int) -> Callable[..., list[Any]]:
        """Return what is left of the function once its first open size is known."""
        from flambeau.engines.xla.stages import with_number

        with self._lock:
            if number not in self._found:
                try:
                    module = with_number(self.module, self.name, number)
                    self._found[number] = self.executable.continued(module, self.name)
                except CompileError as error:
                    reasons = "; ".join(problem.reason for problem in error.diagnostics)
                    raise RunError(f"the program does not go on from a size of {number}: {reasons}") from error
                if len(self._found) > self.kept:
                    self._found.popitem(last=False)
            self._found.move_to_end(number)
            return self._found[number]


class _Specializations:
    """The last specialisations of a function of dynamic shapes, by the shapes of its arguments."""

    def __init__(self, executable: XlaExecutable, name: str, kept: int) -> None:
        if kept < 1:
            raise ValueError(f"at least one specialisation must be kept, not {kept}")
        self.executable, self.name, self.kept = executable, name, kept
        self._found: OrderedDict[Shapes, Callable[..., list[Any]]] = OrderedDict()
        self._lock = Lock()
        self._dropped = 0

    @property
    def shapes(self) -> list[Shapes]:
        return list(self._found)

    def get(self, values: Sequence[Any]) -> Callable[..., list[Any]]:
        """Return the function compiled for arguments of these shapes."""
        return self.at(tuple(tuple(v.shape) if is_array(v) else None for v in values))

    def at(self, key: Shapes) -> Callable[..., list[Any]]:
        """Return the function compiled for these shapes."""
        with self._lock:
            compiled = self._found.get(key)
            if compiled is not None:
                self._found.move_to_end(key)
                return compiled
            compiled = self._found[key] = self.executable.specialize(self.name, key)
            if len(self._found) > self.kept:
                self._found.popitem(last=False)
                self._dropped += 1
                if self._dropped == self.kept:
                    self._warn()
            return compiled

    def _warn(self) -> None:
        warnings.warn(
            f"{self.name!r} is called with more shapes than the {self.kept} that are kept, and has been compiled "
            f"{self.kept + self._dropped} times: pass a larger `specializations` to load(), or pad the arguments to "
            "fewer sizes",
            ThrashWarning,
            stacklevel=2,
        )
