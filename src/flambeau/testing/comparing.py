"""How results differ from what was expected, down to the first element and its distance in ulps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

from flambeau.testing.cases import Case

_BITS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
}


@dataclass(frozen=True)
class Mismatch:
    """The first element that differs, and how much of the result does."""

    output: int
    """Which of the results."""
    what: str
    """`value`, `shape`, `dtype` or `structure`."""
    expected: str
    got: str
    index: tuple[int, ...] = ()
    ulps: int | None = None
    differing: int = 0
    elements: int = 0
    worst: float = 0.0
    """The largest difference, relative to the expected value."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        where = f"result {self.output}"
        if self.what != "value":
            return f"{where}: {self.what} {self.got}, expected {self.expected}"
        at = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        ulps = f", {self.ulps} ulps apart" if self.ulps is not None else ""
        share = f"{self.differing} of {self.elements} elements differ, at worst by {self.worst:.3g} relative"
        return f"{where}{at}: {self.got}, expected {self.expected}{ulps}; {share}"


def compare(case: Case, actual: Any, expected: Any) -> Mismatch | None:
    """Find the first difference between two results of a case; None if they are equal within its tolerance."""
    got, got_tree = tree_flatten(actual)
    want, want_tree = tree_flatten(expected)
    if len(got) != len(want):
        return Mismatch(0, "structure", str(want_tree), str(got_tree))
    if case.compare == "norm":
        return _compare_norm(case, got, want)
    for i, (a, e) in enumerate(zip(got, want, strict=True)):
        found = _compare_leaf(case, i, a, e)
        if found is not None:
            return found
    return None


def either(case: Case, actual: Any, expected: Any, alone: Any) -> Any:
    """Replace elements of `expected` by those of `alone` where the actual result agrees with `alone`."""

    def choose(got: Any, want: Any, other: Any) -> Any:
        if not isinstance(want, torch.Tensor) or not isinstance(got, torch.Tensor) or got.shape != want.shape:
            return want
        return torch.where(_differing(case, got, other.to(want.dtype)), want, other.to(want.dtype))

    return tree_map(choose, actual, expected, alone)


OWN_ERRORS = 8.0
"""How many times as far from the truth as PyTorch a result may be."""


def is_near(case: Case, actual: Any, expected: Any, truth: Any) -> bool:
    """Tell whether results are about as near to the truth, computed in f64, as PyTorch's own are."""
    leaves = [tree_flatten(x)[0] for x in (actual, expected, truth)]
    return all(_is_near_leaf(case, a, e, t) for a, e, t in zip(*leaves, strict=True))


def _is_near_leaf(case: Case, actual: Any, expected: Any, truth: Any) -> bool:
    if not isinstance(expected, torch.Tensor) or not expected.is_floating_point():
        return _compare_leaf(case, 0, actual, expected) is None
    if _compare_types(0, actual, expected) is not None or not bool(truth.isfinite().all()):
        return False
    if not bool(actual.isfinite().all()) or truth.numel() == 0:
        return truth.numel() == 0
    own = float((expected.double() - truth).abs().nan_to_num(float("inf")).max())
    limit = (case.tolerance or (1e-4, 0.0))[0] * float(truth.abs().max())
    return float((actual.double() - truth).abs().max()) <= limit + OWN_ERRORS * own


def _compare_types(output: int, actual: torch.Tensor, expected: torch.Tensor) -> Mismatch | None:
    if actual.dtype != expected.dtype:
        return Mismatch(output, "dtype", str(expected.dtype), str(actual.dtype))
    if actual.shape != expected.shape:
        return Mismatch(output, "shape", str(tuple(expected.shape)), str(tuple(actual.shape)))
    return None


def _compare_leaf(case: Case, output: int, actual: Any, expected: Any) -> Mismatch | None:
    if not isinstance(expected, torch.Tensor):
        if isinstance(expected, (float, complex)) and isinstance(actual, (int, float, complex)):
            dtype = torch.complex128 if isinstance(expected, complex) else torch.float64
            return _compare_leaf(case, output, torch.tensor(actual, dtype=dtype), torch.tensor(expected, dtype=dtype))
        same = type(actual) is type(expected) and actual == expected
        return None if same else Mismatch(output, "structure", repr(expected), repr(actual))
    if not isinstance(actual, torch.Tensor):
        return Mismatch(output, "structure", "a tensor", repr(actual)[:80])
    if (wrong := _compare_types(output, actual, expected)) or case.compare == "types":
        return wrong
    a, e = _plain(actual), _plain(expected)
    bad = _differing(case, a, e)
    if not bool(bad.any()):
        return None
    index = tuple(int(i) for i in bad.nonzero()[0])
    relative = ((_wide(a) - _wide(e)).abs() / _wide(e).abs().clamp_min(1e-30))[bad]
    finite = relative[relative.isfinite()]
    return Mismatch(
        output,
        "value",
        str(e[index].item()),
        str(a[index].item()),
        index,
        _ulps(a[index], e[index]),
        int(bad.sum()),
        bad.numel(),
        float(finite.max()) if finite.numel() else float("inf"),
    )


def _differing(case: Case, actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Mark the elements that differ by more than the case allows."""
    if not (actual.is_floating_point() or actual.is_complex()):
        return actual != expected
    rtol, atol = case.tolerance_of(str(expected.dtype).removeprefix("torch."))
    a, e = _wide(actual), _wide(expected)
    bad = ~torch.isclose(a, e, rtol=rtol, atol=atol, equal_nan=True)
    if case.compare == "signs" and not a.is_complex():
        bad |= (a == 0) & (e == 0) & (a.signbit() != e.signbit())
    return bad


def _plain(x: torch.Tensor) -> torch.Tensor:
    return x.detach().resolve_conj().resolve_neg()


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def _ulps(actual: torch.Tensor, expected: torch.Tensor) -> int | None:
    """Count the ULPs between two numbers; None for dtypes without bits to count, infinities and NaN."""
    bits = _BITS.get(actual.dtype)
    if bits is None or not (bool(actual.isfinite()) and bool(expected.isfinite())):
        return None

    def position(x: torch.Tensor) -> int:
        raw = int(x.view(bits).item())
        low = torch.iinfo(bits).min
        return raw if raw >= 0 else low - raw

    return abs(position(actual) - position(expected))


def _compare_norm(case: Case, got: Sequence[Any], want: Sequence[Any]) -> Mismatch | None:
    limit = case.tolerance[0] if case.tolerance else 1e-4
    for i, (a, e) in enumerate(zip(got, want, strict=True)):
        if not isinstance(e, torch.Tensor) or not e.is_floating_point():
            found = _compare_leaf(case, i, a, e)
        elif not isinstance(a, torch.Tensor):
            found = Mismatch(i, "structure", "a tensor", repr(a)[:80])
        else:
            found = _compare_types(i, a, e) or _worst(i, a.double(), e.double(), limit)
        if found is not None:
            return found
    return None


def _worst(output: int, actual: torch.Tensor, expected: torch.Tensor, limit: float) -> Mismatch | None:
    if expected.numel() == 0:
        return None
    usual = expected.isfinite()
    special = ~usual
    wrong = special & ~torch.isclose(actual, expected, equal_nan=True)
    scale = float(expected[usual].abs().max()) if bool(usual.any()) else 1.0
    wrong |= usual & ~((actual - expected).abs() <= limit * (scale or 1.0))
    if not bool(wrong.any()):
        return None
    difference = (actual - expected).abs().nan_to_num(float("inf"))
    at = int(torch.where(wrong, difference, -1.0).argmax())
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(at), expected.shape))
    worst = float(difference.flatten()[at]) / (scale or 1.0)
    return Mismatch(
        output,
        "value",
        str(expected[index].item()),
        str(actual[index].item()),
        index,
        None,
        int(wrong.sum()),
        wrong.numel(),
        worst,
    )
