"""The common call without detours: tensors of static shapes in, side by side, and tensors out.

What costs most of a call of a small program is the way into IREE and back. The way of one function is written out as
Python, argument by argument. Nothing is asked there that IREE checks itself; where something is not as expected, the
call is made again on the way that finds out what, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import iree.runtime as rt

from flambeau.engines.iree.buffers import ARGUMENT, DLPACK_CPU, has_dlpack, is_plain, torch_parts
from flambeau.engines.iree.runtime import Function
from flambeau.engines.plans import CallPlan
from flambeau.ir.module import TensorSpec

MISSED: Any = object()
"""What a quick call gives where another way must be taken."""

Quick = Callable[[tuple[Any, ...]], Any]

_CALL = """
def call(args):
    if len(args) != {count}:
        return MISSED
    {names} = args
    {checks}
    inputs, outputs = new_list({count}), new_list({results})
    push = inputs.push_ref
    try:
        {pushes}
        with lock:
            invoke(handle, inputs, outputs)
    except errors:
        return MISSED
    {finish}
"""
_CHECK = """
    if (
        type(a{i}) is not tensor or a{i}.dtype is not dtype{i} or a{i}.shape != {shape}
        or a{i}.requires_grad or a{i}.is_neg()
    ):
        return MISSED
"""
# IREE does not take what is strided, lies elsewhere, or is not aligned.
_PUSH = """
        push(take(to_dlpack(a{i})).ref)
"""
_BIND = """
def bind(args):
    if len(args) != {count}:
        return None
    {names} = args
    {checks}
    inputs = new_list({count})
    push = inputs.push_ref
    try:
        {pushes}
    except errors:
        return None
    return bound({names}inputs)
"""
_BOUND = """
def bound({names}inputs):
    {starts}

    def call():
        {checks}
        outputs = new_list({results})
        try:
            with lock:
                invoke(handle, inputs, outputs)
        except errors:
            return MISSED
        {finish}

    return call
"""
_START = """
    start{i} = a{i}.data_ptr()
"""
_STILL = """
        if (
            a{i}.data_ptr() != start{i} or a{i}.dtype is not dtype{i} or a{i}.shape != {shape}
            or not a{i}.is_contiguous() or a{i}.requires_grad or a{i}.is_neg()
        ):
            return MISSED
"""
_ONE_RESULT = """
    result = from_dlpack(capsule_of(outputs.get_as_object(0, view_type), {cpu}, 0))
    start = result.data_ptr()
    end = start + result.nbytes
"""
_OVERLAP = """
    low = a{i}.data_ptr()
    if low < end and start < low + {size}:
        return result.clone()
"""


class QuickCalls(NamedTuple):
    """The quick ways to call a function."""

    call: Quick
    """Call it with a tuple of arguments."""
    bind: Callable[[tuple[Any, ...]], Callable[[], Any] | None]
    """Make a call with these arguments, which misses if they are not as they were; None if the first way misses."""


def quick_calls(device: Any, function: Function, plan: CallPlan) -> QuickCalls:
    """Make the calls of a function; they always miss if no call is of the common kind."""
    specs = _specs(plan)
    if specs is None:
        return QuickCalls(lambda args: MISSED, lambda args: None)
    tensor, _, _, to_dlpack, from_dlpack = torch_parts()
    known: dict[str, Any] = {
        "MISSED": MISSED,
        "tensor": tensor,
        "to_dlpack": to_dlpack,
        "from_dlpack": from_dlpack,
        "new_list": rt.VmVariantList,
        "take": device.from_dlpack_capsule,
        "capsule_of": device.create_dlpack_capsule,
        "view_type": rt.HalBufferView,
        "invoke": function.context.invoke,
        "handle": function.handle,
        "lock": function.lock,
        "errors": (RuntimeError, ValueError, IndexError, TypeError, BufferError),
        "finish": _finisher(function, plan, specs),
        **{f"dtype{i}": spec.dtype.torch for i, spec in enumerate(specs)},
    }
    exec(_source(plan, specs), known)  # only numbers go into the source
    return QuickCalls(known["call"], known["bind"])


def _specs(plan: CallPlan) -> list[TensorSpec] | None:
    """Return the types of the arguments of a function that may be called quickly; None for another one."""
    specs = [argument.spec for argument in plan.signature.arguments]
    if not specs or not plan.is_plain or not all(isinstance(r, TensorSpec) for r in plan.signature.results):
        return None
    found = [s for s in specs if isinstance(s, TensorSpec) and all(s.shape) and has_dlpack(s.dtype)]
    return found if len(found) == len(specs) and not any(s.dtype.is_complex for s in found) else None


def _source(plan: CallPlan, specs: list[TensorSpec]) -> str:
    results = plan.signature.results
    arguments = [{"i": i, "shape": tuple(s.shape), "size": _bytes(s)} for i, s in enumerate(specs)]

    def each(template: str) -> str:
        return "".join(template.format(**a) for a in arguments).strip()

    names = "".join(f"a{i}, " for i in range(len(specs)))
    finish = f"return finish(outputs, ({names}))"
    if len(results) == 1 and plan.gives_one_result and is_plain(results[0]):
        finish = f"{_ONE_RESULT.format(cpu=DLPACK_CPU).strip()}\n    {each(_OVERLAP)}\n    return result"
    counts = {"count": len(specs), "results": len(results), "names": names}
    pushes, checks = each(_PUSH), each(_CHECK)
    return "".join(
        [
            _CALL.format(**counts, checks=checks, pushes=pushes, finish=finish),
            _BIND.format(**counts, checks=checks.replace("MISSED", "None"), pushes=pushes),
            _BOUND.format(**counts, starts=each(_START), checks=each(_STILL), finish=finish.replace("\n", "\n    ")),
        ]
    )


def _bytes(spec: TensorSpec) -> int:
    size = spec.dtype.size
    for n in spec.shape:
        assert n is not None
        size *= n
    return size


def _finisher(function: Function, plan: CallPlan, specs: list[TensorSpec]) -> Callable[[Any, tuple[Any, ...]], Any]:
    """Make what takes IREE's results and the arguments to what the caller gets, where that is not a single tensor."""
    read, sizes = function.read, [_bytes(spec) for spec in specs]

    def finish(outputs: Any, args: tuple[Any, ...]) -> Any:
        starts = [arg.data_ptr() for arg in args]
        spans = [(start, start + size, ARGUMENT) for start, size in zip(starts, sizes, strict=True)]
        return plan.finish((), read(outputs, True, spans))

    return finish
