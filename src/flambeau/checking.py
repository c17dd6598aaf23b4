"""Programs that check themselves: calls are compared with eager PyTorch, and a difference is an error.

Without PyTorch, or where the torch dialect of a program is not at hand, calls are compared with the same program on the
same engine, compiled in the plainest way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType
from xdsl.ir import Operation, SSAValue

from flambeau.api import Module, OutputType, lower
from flambeau.diagnostics import diagnostic_for
from flambeau.dialects.specs import spec_of
from flambeau.dialects.torch.types import VTensorType
from flambeau.engines.errors import EngineError, WrongResult
from flambeau.engines.executable import ProgramExecutable
from flambeau.ir.arrays import dtype_of, is_array, is_torch, to_numpy
from flambeau.ir.module import Weights

VARIABLE = "FLAMBEAU_CHECK"
"""The environment variable that says how to check where `load` is not told."""

TOLERANCES = {
    "float64": 1e-6,
    "float32": 1e-3,
    "float16": 2e-2,
    "bfloat16": 1e-1,
    "complex64": 1e-3,
    "complex128": 1e-6,
}
"""How large a difference may be, relative to the largest value of a result: that of a few hundred roundings."""

Compile = Callable[[Module], Any]


def interval(check: str | int | None) -> int | None:
    """Parse how often calls are checked: None for never, 0 for the first call only, n for each n-th.

    `check` is None or "never", "first", or a number; where it is None the environment decides.
    """
    if check is None:
        check = os.environ.get(VARIABLE) or "never"
    if check == "never":
        return None
    if check == "first":
        return 0
    try:
        number = int(check)
    except ValueError:
        number = 0
    if number < 1 or isinstance(check, bool):
        raise ValueError(f"check is 'first', 'never' or a number n, to check each n-th call; not {check!r}")
    return number


def checked(
    executable: Any, module: Module, every: int, compile_again: Compile, compile_plainly: Compile | None
) -> Any:
    """Make an executable compare its calls; `compile_again` compiles another module in the same way.

    `compile_plainly` compiles one for an engine to be compared with itself; None if the engine has no such way.
    """
    if not isinstance(executable, ProgramExecutable):
        raise ValueError("check needs an engine whose executables are of Flambeau's class ProgramExecutable")
    reference = _reference(module, compile_plainly)
    return CheckedExecutable(executable, module, reference, every, compile_again)


def _reference(module: Module, compile_plainly: Compile | None) -> ProgramExecutable:
    origin = module.origin if module.output_type not in (OutputType.RAW, OutputType.TORCH) else module
    if origin is not None:
        try:
            from flambeau.engines.eager import EagerEngine

            return EagerEngine().compile(origin)
        except EngineError:  # PyTorch is not installed
            pass
    if compile_plainly is None:
        raise ValueError("check has nothing to compare with: it needs PyTorch, and a module that flambeau.compile made")
    plain: ProgramExecutable = compile_plainly(module)
    return plain


class CheckedExecutable(ProgramExecutable):
    """A program whose first call, or each n-th, is compared with a reference."""

    def __init__(
        self,
        inner: ProgramExecutable,
        module: Module,
        reference: ProgramExecutable,
        every: int,
        compile_again: Compile,
    ) -> None:
        super().__init__(inner.weights, inner.signatures)
        self.timings = inner.timings
        self.checks = 0
        """How many calls were compared."""
        self._inner, self._module, self._reference = inner, module, reference
        self._every, self._compile_again = every, compile_again
        self._calls: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        if name == "_inner":
            raise AttributeError(name)
        return getattr(self._inner, name)

    def with_weights(self, weights: Mapping[str, Any]) -> CheckedExecutable:
        """Make the same program over other weights, checked as this one is."""
        module = replace(self._module, weights=Weights(dict(weights)))
        if module.origin is not None:
            module = replace(module, origin=replace(module.origin, weights=module.weights))
        inner: Any = self._inner
        again = CheckedExecutable(
            inner.with_weights(weights), module, _reference(module, None), self._every, self._compile_again
        )
        again.checks, again._calls = self.checks, self._calls
        return again

    def call_flat(self, name: str, values: Sequence[Any], as_torch: bool = False) -> list[Any]:
        calls = self._calls.get(name, 0)
        self._calls[name] = calls + 1
        if calls and not (self._every and calls % self._every == 0):
            return self._inner.call_flat(name, values, as_torch)
        passed = [_copy(v) for v in values]
        results = self._inner.call_flat(name, values, as_torch)
        expected = self._reference.call_flat(name, [_copy(v) for v in passed], as_torch)
        self.checks += 1
        found = first_difference(results, expected)
        if found is None:
            return results
        at, text = found
        against = "eager PyTorch" if self._module.origin is not None else "the same program, compiled plainly"
        raise WrongResult(f"result {at} of {name!r} is not that of {against}: {text}{self._culprit(name, passed)}")

    def _culprit(self, name: str, values: list[Any]) -> str:
        """Describe the first op whose result differs, as lines of text; empty if it cannot be told."""
        origin = self._module.origin
        if origin is None:
            return ""
        try:
            contract, ops = with_all_results(origin, name)
            lowered = lower(contract, self._module.output_type)
            got = self._compile_again(lowered).call_flat(name, [_copy(v) for v in values], True)
            from flambeau.engines.eager import EagerEngine

            want = EagerEngine().compile(contract).call_flat(name, [_copy(v) for v in values], True)
        except Exception as error:  # this is an explanation of an error already; it must not replace it
            return f"\nwhich op is to blame could not be found out: {str(error).splitlines()[0]}"
        first = len(contract.signatures[name].results) - len(ops)
        for op, a, e in zip(ops, got[first:], want[first:], strict=True):
            if (text := difference(a, e)) is not None:
                found = diagnostic_for(op, "run", "")
                lines = [f"the first op that differs is {found.op}: {text}", found.place()]
                return "".join(f"\n{line}" for line in lines if line)
        return "\neach op alone is right: the engine compiles some of them together wrongly"


def _copy(value: Any) -> Any:
    if is_torch(value):
        return value.detach().clone()
    return value.copy() if is_array(value) else value


def with_all_results(origin: Module, name: str) -> tuple[Module, list[Operation]]:
    """Lower to the backend contract with all tensors of a function as further results; return it and their ops."""
    copy = replace(origin, op=origin.op.clone())
    contract = copy if copy.output_type is OutputType.TORCH else lower(copy, OutputType.TORCH)
    if contract.op is origin.op:
        contract = replace(contract, op=contract.op.clone())
    function = next(f for f in contract.op.ops if isinstance(f, func.FuncOp) and f.sym_name.data == name)
    block = function.body.block
    values: list[SSAValue] = [
        r for op in block.ops for r in op.results if isinstance(r.type, VTensorType) and op.operands
    ]
    back = block.last_op
    assert back is not None
    back.operands = [*back.operands, *values]
    function.function_type = FunctionType.from_lists(
        function.function_type.inputs.data, [v.type for v in back.operands]
    )
    old = contract.signatures[name]
    results = tuple(spec_of(v.type) for v in back.operands)
    contract = replace(contract, signatures={**contract.signatures, name: replace(old, results=results)})
    return contract, [v.owner for v in values if isinstance(v.owner, Operation)]


def first_difference(actual: Sequence[Any], expected: Sequence[Any]) -> tuple[int, str] | None:
    """Find the first of some results that differs; return its index and how, None if all are the same."""
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        if (text := difference(a, e)) is not None:
            return i, text
    return None


def difference(actual: Any, expected: Any) -> str | None:
    """Describe how a result differs from what was expected; None where it is the same, but for rounding."""
    if not is_array(expected) or not is_array(actual):
        same = actual == expected or (actual != actual and expected != expected)
        if isinstance(expected, float) and isinstance(actual, float):
            same = same or abs(actual - expected) <= TOLERANCES["float32"] * abs(expected)
        return None if same else f"{actual!r}, expected {expected!r}"
    kind = dtype_of(expected)
    if dtype_of(actual) is not kind or tuple(actual.shape) != tuple(expected.shape):
        return f"{_type(actual)}, expected {_type(expected)}"
    a, e = _wide(actual), _wide(expected)
    if kind is None or kind.name not in TOLERANCES:
        wrong = a != e
    else:
        usual = np.isfinite(e)
        scale = float(np.abs(e[usual]).max()) if usual.any() else 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(a - e) <= TOLERANCES[kind.name] * scale
        wrong = ~(near | (a == e) | (np.isnan(a) & np.isnan(e)))
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    where = f" at {list(at)}" if at else ""
    return f"{a[at]:g}, expected {e[at]:g}{where}; {int(wrong.sum())} of {wrong.size} elements differ"


def _wide(array: Any) -> npt.NDArray[Any]:
    """Convert to a numpy array that holds the elements of any dtype exactly."""
    kind = dtype_of(array)
    if is_torch(array):
        import torch

        if kind is None or kind.is_integral:
            return array.detach().cpu().numpy() if kind is not None and kind.numpy is not None else to_numpy(array)
        wide = array.detach().cpu().to(torch.complex128 if kind.is_complex else torch.float64)
        return wide.resolve_conj().numpy()
    if kind is None or kind.is_integral:
        return np.asarray(array)
    return np.asarray(array).astype(np.complex128 if kind.is_complex else np.float64)


def _type(array: Any) -> str:
    kind = dtype_of(array)
    return "x".join([*map(str, array.shape), kind.name if kind else str(array.dtype)])
