"""The common call without detours: tensors and numbers in, side by side, and tensors out.

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
from flambeau.ir.module import ScalarSpec, TensorSpec

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
_CHECK_OPEN = """
    s{i} = a{i}.shape if type(a{i}) is tensor else ()
    if (
        len(s{i}) != {rank} or 0 in s{i} or a{i}.dtype is not dtype{i} or a{i}.requires_grad or a{i}.is_neg()
    ):
        return MISSED
"""
_CHECK_NUMBER = """
    if type(a{i}) is not {kind}:
        return MISSED
"""
_REFUSE = """
    if {condition}:
        return MISSED
"""
# IREE does not take what is strided, lies elsewhere, or is not aligned.
_PUSH = """
        push(take(to_dlpack(a{i})).ref)
"""
_PUSH_NUMBER = """
        inputs.push_{kind}(a{i})
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
_OPEN_RESULT = """
    if 0 in outputs.get_as_object(0, view_type).shape:
        return finish(outputs, ({names}))
"""
_OVERLAP = """
    low = a{i}.data_ptr()
    if low < end and start < low + {size}:
        return result.clone()
"""

Specs = list[TensorSpec | ScalarSpec]


class QuickCalls(NamedTuple):
    """The quick ways to call a function."""

    call: Quick
    """Call it with a tuple of arguments."""
    bind: Callable[[tuple[Any, ...]], Callable[[], Any] | None]
    """Make a call with these arguments, which misses if they are not as they were; None if the first way misses."""


def quick_calls(device: Any, function: Function, plan: CallPlan) -> QuickCalls:
    """Make the calls of a function; they always miss if no call is of the common kind."""
    specs = _specs(plan)
    checks = None if specs is None else _checks(plan, specs)
    if specs is None or checks is None:
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
        **{f"dtype{i}": spec.dtype.torch for i, spec in enumerate(specs) if isinstance(spec, TensorSpec)},
    }
    exec(_source(plan, specs, checks), known)  # only numbers go into the source
    return QuickCalls(known["call"], known.get("bind", lambda args: None))


def _specs(plan: CallPlan) -> Specs | None:
    """Return the types of the arguments of a function that may be called quickly; None for another one."""
    specs = [argument.spec for argument in plan.signature.arguments]
    tensors = [spec for spec in specs if isinstance(spec, TensorSpec)]
    if not tensors or not plan.is_plain or not all(isinstance(r, TensorSpec) for r in plan.signature.results):
        return None
    are_known = all(0 not in s.shape and has_dlpack(s.dtype) and not s.dtype.is_complex for s in tensors)
    return specs if are_known else None


def _checks(plan: CallPlan, specs: Specs) -> str | None:
    """Write what is checked of the arguments before a call; None if that cannot be written so."""
    lines = []
    known: dict[str, str] = {}
    ranges = {symbol.name: symbol for symbol in plan.signature.symbols}
    for i, (argument, spec) in enumerate(zip(plan.signature.arguments, specs, strict=True)):
        if isinstance(spec, ScalarSpec):
            lines.append(_CHECK_NUMBER.format(i=i, kind=spec.kind))
            continue
        if None not in spec.shape:
            lines.append(_CHECK.format(i=i, shape=tuple(spec.shape)))
        else:
            lines.append(_CHECK_OPEN.format(i=i, rank=len(spec.shape)))
            lines += [_REFUSE.format(condition=f"s{i}[{d}] != {n}") for d, n in enumerate(spec.shape) if n is not None]
        for d, dim in enumerate(argument.dims):
            if dim is None or dim.symbol is None or spec.shape[d] is not None:
                continue
            size = f"s{i}[{d}]"
            if dim.symbol in known:
                lines.append(_REFUSE.format(condition=f"{size} != {dim.factor} * {known[dim.symbol]} + {dim.offset}"))
                continue
            if (dim.factor, dim.offset) != (1, 0):
                return None
            known[dim.symbol] = size
            if (symbol := ranges.get(dim.symbol)) is not None:
                low, high = symbol.low, "" if symbol.high is None else f" <= {symbol.high}"
                lines.append(_REFUSE.format(condition=f"not {low} <= {size}{high}"))
    return "".join(lines).strip()


def _source(plan: CallPlan, specs: Specs, checks: str) -> str:
    results = plan.signature.results
    tensors = [(i, s) for i, s in enumerate(specs) if isinstance(s, TensorSpec)]
    arguments = [{"i": i, "shape": tuple(s.shape), "size": _bytes(s) or f"a{i}.nbytes"} for i, s in tensors]

    def each(template: str) -> str:
        return "".join(template.format(**a) for a in arguments).strip()

    names = "".join(f"a{i}, " for i in range(len(specs)))
    given = "".join(f"a{i}, " for i, _ in tensors)
    finish = f"return finish(outputs, ({given}))"
    if len(results) == 1 and plan.gives_one_result and _is_float(results[0]):
        is_open = "" if is_plain(results[0]) and plan.is_static else _OPEN_RESULT.format(names=given)
        taken = f"{is_open}{_ONE_RESULT.format(cpu=DLPACK_CPU)}".strip()
        finish = f"{taken}\n    {each(_OVERLAP)}\n    return result"
    counts = {"count": len(specs), "results": len(results), "names": names}
    pushes = "".join(
        (_PUSH if isinstance(s, TensorSpec) else _PUSH_NUMBER).format(i=i, kind=_PUSHED.get(str(s), ""))
        for i, s in enumerate(specs)
    ).strip()
    call = _CALL.format(**counts, checks=checks, pushes=pushes, finish=finish)
    if not plan.is_static:
        return call
    return "".join(
        [
            call,
            _BIND.format(**counts, checks=checks.replace("MISSED", "None"), pushes=pushes),
            _BOUND.format(**counts, starts=each(_START), checks=each(_STILL), finish=finish.replace("\n", "\n    ")),
        ]
    )


_PUSHED = {"int": "int", "bool": "int", "float": "float"}
"""How IREE's list takes a number of each kind."""


def _is_float(spec: Any) -> bool:
    """Tell whether a result is one that PyTorch takes as IREE gives it, if it has elements."""
    return isinstance(spec, TensorSpec) and spec.dtype.is_float and has_dlpack(spec.dtype) and 0 not in spec.shape


def _bytes(spec: TensorSpec) -> int | None:
    """Return the size of a tensor in bytes; None if only a call knows."""
    size = spec.dtype.size
    for n in spec.shape:
        if n is None:
            return None
        size *= n
    return size


def _finisher(function: Function, plan: CallPlan, specs: Specs) -> Callable[[Any, tuple[Any, ...]], Any]:
    """Make what takes IREE's results and the tensors among the arguments to what the caller gets, in other cases."""
    read, sizes = function.read, [_bytes(spec) for spec in specs if isinstance(spec, TensorSpec)]

    def finish(outputs: Any, tensors: tuple[Any, ...]) -> Any:
        spans = []
        for tensor, size in zip(tensors, sizes, strict=True):
            start = tensor.data_ptr()
            spans.append((start, start + (tensor.nbytes if size is None else size), ARGUMENT))
        return plan.finish((), read(outputs, True, spans))

    return finish
