"""Shape and dtype rules against PyTorch: every ATen call that PyTorch's own op samples make, inferred and compared."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.enums import MEMORY_FORMATS
from flambeau.dialects.torch.schema import REQUIRED, Schema
from flambeau.infer.builder import rules
from flambeau.infer.rules import InferenceError, Meta, Unknown
from flambeau.ir import dtypes

DATA_DEPENDENT = frozenset(
    {
        "aten._unique2", "aten._unsafe_index.Tensor", "aten.argwhere", "aten.bincount", "aten.index.Tensor",
        "aten.index.Tensor_hacked_twin", "aten.masked_select", "aten.nonzero", "aten.nonzero_numpy", "aten.one_hot",
        "aten.repeat_interleave.Tensor", "aten.repeat_interleave.self_Tensor", "aten.unique_consecutive",
        "aten.unique_dim",
    }
)  # fmt: skip
"""Ops with sizes that the contents of their tensors decide."""

_ONES = "which dims go depends on which have size 1"
_PARTS = "how many results there are depends on a size"
CANNOT_KNOW = {
    **dict.fromkeys(("aten.squeeze", "aten.squeeze.dim", "aten.squeeze.dims"), _ONES),
    **dict.fromkeys(("aten.squeeze_copy", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims"), _ONES),
    "prims.squeeze": _ONES,
    **dict.fromkeys(("aten.split.Tensor", "aten.unsafe_split.Tensor", "aten.chunk", "aten.unsafe_chunk"), _PARTS),
    **dict.fromkeys(("aten.split_copy.Tensor", "aten.unbind.int", "aten.unbind_copy.int"), _PARTS),
}
"""Ops that rightly refuse tensors of unknown sizes, and why."""
UNCHECKED_WHEN_EMPTY = {"aten.cholesky", "aten.linalg_lu", "aten.linalg_lu_factor_ex", "aten._linalg_svd"}
"""Ops with which PyTorch does not look at dtypes and sizes that it refuses otherwise, if the matrix has no elements."""


@dataclass(frozen=True)
class Mismatch:
    """A call that a rule and PyTorch disagree about."""

    overload: str
    sample_of: str
    """The OpInfo whose sample makes the call."""
    arguments: str
    expected: str
    inferred: str

    def __str__(self) -> str:
        return (
            f"{self.overload}({self.arguments}) in {self.sample_of}: PyTorch says {self.expected}, we {self.inferred}"
        )


@dataclass
class Report:
    """What a run over samples found."""

    checked: Counter[str] = field(default_factory=Counter)
    """How many different calls of each overload were compared."""
    without_rule: Counter[str] = field(default_factory=Counter)
    """Calls of overloads that have no rule."""
    refused: set[str] = field(default_factory=set)
    """Ops that CANNOT_KNOW names and that did refuse."""
    mismatches: dict[str, list[Mismatch]] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """One call of an overload, as a rule would see it, and what came of it."""

    overload: str
    arguments: list[Any]
    results: Any


class _NotOurs(Exception):
    """A value that the torch dialect cannot spell: a sparse tensor, a quantised dtype."""


def check_rules(names: Iterable[str], types: Sequence[torch.dtype], samples: int | None = None) -> Report:
    """Compare all rules that the samples of these OpInfos reach; `samples` is the most for an OpInfo and a dtype."""
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = set(names)
    report, seen = Report(), set[str]()
    recorder = _Recorder()  # type: ignore[no-untyped-call]
    with warnings.catch_warnings(), torch.no_grad(), _one_thread(), _recording_composites() as calls:
        warnings.simplefilter("ignore")
        recorder.calls = calls
        for info in op_db:
            for dtype in types:
                if info.name not in wanted or dtype not in info.supported_dtypes("cpu"):
                    continue
                torch.manual_seed(0)
                random.seed(0)
                for sample in islice(info.sample_inputs_func(info, "cpu", dtype, False), samples):
                    calls.clear()
                    try:
                        with recorder:
                            info(sample.input, *sample.args, **sample.kwargs)
                    except Exception:  # what PyTorch refuses is no sample; the calls before it are
                        pass
                    found = list(calls)
                    for call in found:
                        key = f"{call.overload}{call.arguments}"
                        if key not in seen:
                            seen.add(key)
                            _check(call, info.name, report)
    return report


def check_call(report: Report, name: str, *args: Any, **kwargs: Any) -> None:
    """Compare the rule of one op for one call."""
    calls: list[Call] = []
    op = _overload(name)
    _record(calls, op, op, args, kwargs)
    for call in calls:
        _check(call, name, report)


def all_names() -> list[str]:
    """List the names of all OpInfos."""
    from torch.testing._internal.common_methods_invocations import op_db

    return sorted({info.name for info in op_db})


@contextmanager
def _one_thread() -> Iterator[None]:
    """Run on one thread: the samples are so small that more only cost time."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)


# --- Recording ---


class _Recorder(TorchDispatchMode):
    calls: list[Call]

    def __torch_dispatch__(
        self, op: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _record(self.calls, op, op, args, kwargs or {})


@contextmanager
def _recording_composites() -> Iterator[list[Call]]:
    """Record the ops that PyTorch takes apart before a dispatch mode sees them, such as `aten.linear`."""
    calls: list[Call] = []
    library = torch.library.Library("aten", "IMPL", "AutogradCPU")
    try:
        for name in rules():
            if _is_composite(name):
                op = _overload(name)
                library.impl(op, _composite(calls, op))
        yield calls
    finally:
        library._destroy()


def _composite(calls: list[Call], op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        def original(*args: Any, **kwargs: Any) -> Any:
            return op._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)

        return _record(calls, op, original, args, kwargs)

    return kernel


def _overload(name: str) -> Any:
    """Return the `torch.ops` object of an op of ours."""
    namespace, _, rest = name.partition(".")
    base, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")


def _is_composite(name: str) -> bool:
    if not name.startswith("aten.") or name in registry.snapshot().jit_only:
        return False
    qualified = name.replace("aten.", "aten::", 1)
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    keys = torch._C.DispatchKey
    return has_kernel(qualified, keys.CompositeImplicitAutograd) and not has_kernel(qualified, keys.AutogradCPU)


def _record(
    calls: list[Call], op: Any, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    name = str(op).removesuffix(".default")
    schema = registry.schema(name)
    try:
        arguments = None if schema is None else _arguments(schema, args, kwargs)
    except _NotOurs:
        arguments = None
    results = function(*args, **kwargs)
    if arguments is not None:
        try:
            calls.append(Call(name, arguments, () if results is None else _converted(results)))
        except _NotOurs:
            pass
    return results


def _arguments(schema: Schema, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    given = {a.name: v for a, v in zip(schema.arguments, args)} | kwargs
    values = [_converted(given.get(a.name, a.default)) for a in schema.arguments]
    if any(v is REQUIRED for v in values):
        raise _NotOurs
    return values


def _converted(value: Any) -> Any:
    """Convert a value of PyTorch to what rules take; raise _NotOurs if they have no such."""
    match value:
        case torch.Tensor():
            dtype = dtypes.from_torch(value.dtype)
            if dtype is None or value.layout is not torch.strided or value.is_nested:
                raise _NotOurs
            return Meta(tuple(value.shape), dtype)
        case tuple():
            return tuple(map(_converted, value))
        case list():
            return list(map(_converted, value))
        case torch.dtype():
            found = dtypes.from_torch(value)
            if found is None:
                raise _NotOurs
            return found.code
        case torch.device():
            return str(value)
        case torch.memory_format():
            return MEMORY_FORMATS[str(value).removeprefix("torch.")]
        case torch.layout():
            if value is not torch.strided:
                raise _NotOurs
            return 0
        case torch.Generator():
            return None
        case _:
            return value


# --- Comparing ---


def _check(call: Call, sample_of: str, report: Report) -> None:
    rule = rules().get(call.overload)
    if rule is None:
        report.without_rule[call.overload] += 1
        return
    if call.overload in UNCHECKED_WHEN_EMPTY and 0 in call.arguments[0].shape:
        return
    report.checked[call.overload] += 1
    exact = call.overload not in DATA_DEPENDENT
    sizeless = _without_sizes(call.arguments)
    for arguments, is_exact in ((call.arguments, exact), (sizeless, False), (_at_run_time(call.arguments), False)):
        try:
            inferred = rule(*arguments)
            if _agrees(call.results, inferred, is_exact):
                continue
            text = _spell(inferred)
        except InferenceError as e:
            if arguments is sizeless and call.overload in CANNOT_KNOW:
                report.refused.add(call.overload)
                continue
            if arguments is not call.arguments and arguments is not sizeless:
                continue  # most numbers are needed to know the rank
            text = f"refuse: {e}"
        except Exception as e:
            text = f"{type(e).__name__}: {e}"
        spelt = ", ".join(map(_spell, arguments))
        mismatch = Mismatch(call.overload, sample_of, spelt, _spell(call.results), text)
        report.mismatches.setdefault(call.overload, []).append(mismatch)


def _without_sizes(value: Any) -> Any:
    """Forget all sizes of tensors in an argument: they are dynamic."""
    if isinstance(value, Meta):
        return Meta((None,) * value.rank, value.dtype)
    return [_without_sizes(v) for v in value] if isinstance(value, (list, tuple)) else value


def _at_run_time(value: Any) -> Any:
    """Forget all numbers in an argument: they are known at run time only."""
    if isinstance(value, (bool, int, float)):
        return Unknown(type(value))
    return [_at_run_time(v) for v in value] if isinstance(value, (list, tuple)) else value


def _agrees(expected: Any, inferred: Any, exact: bool) -> bool:
    """Tell whether an inferred result is right; where not `exact`, it may leave out sizes and numbers."""
    if isinstance(expected, Meta):
        return (
            isinstance(inferred, Meta)
            and expected.dtype is inferred.dtype
            and expected.rank == inferred.rank
            and all(b == a or (b is None and not exact) for a, b in zip(expected.shape, inferred.shape))
        )
    if isinstance(expected, (list, tuple)):
        return (
            type(inferred) is type(expected)
            and len(expected) == len(inferred)
            and all(_agrees(a, b, exact) for a, b in zip(expected, inferred))
        )
    if isinstance(inferred, Unknown):
        return type(expected) is inferred.kind
    return type(expected) is type(inferred) and expected == inferred


def _spell(value: Any) -> str:
    if isinstance(value, Meta):
        return f"{value.dtype}[{','.join('?' if d is None else str(d) for d in value.shape)}]"
    if isinstance(value, list):
        return f"[{', '.join(map(_spell, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(_spell, value))})"
    return repr(value)
