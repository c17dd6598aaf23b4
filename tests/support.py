"""Compile a function, run it on IREE, compare with eager PyTorch: what most tests do."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch

import flambeau
from flambeau.testing.merging import merge

TOLERANCE = {
    torch.float64: (1e-6, 1e-9),
    torch.float32: (1e-5, 1e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (2e-2, 2e-2),
    torch.complex64: (1e-4, 1e-5),
    torch.complex128: (1e-6, 1e-9),
}


class _Wrapper(torch.nn.Module):
    def __init__(self, functions: Sequence[tuple[Callable[..., Any], int]]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, *args: Any) -> Any:
        results, at = [], 0
        for function, count in self.functions:
            results.append(function(*args[at : at + count]))
            at += count
        return results


def assert_same(
    actual: Any, expected: Any, label: str = "", rtol: float | None = None, atol: float | None = None
) -> None:
    """Equal structure, dtypes, shapes and values (NaN equals NaN; integers and bools exactly)."""
    if isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected), label
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            assert_same(a, e, f"{label}[{i}]", rtol, atol)
        return
    if not isinstance(expected, torch.Tensor):
        assert actual == expected, label
        return
    default = TOLERANCE.get(expected.dtype, (0, 0))
    torch.testing.assert_close(
        actual,
        expected,
        rtol=default[0] if rtol is None else rtol,
        atol=default[1] if atol is None else atol,
        equal_nan=True,
        msg=lambda m: f"{label}: {m}",
    )


def check(
    function: Callable[..., Any],
    *inputs: Any,
    dynamic: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
) -> flambeau.Module:
    """Compile `function` for these inputs, run it, compare with eager. `dynamic` makes every dim over 1 dynamic."""
    return check_all([(function, inputs)], dynamic=dynamic, rtol=rtol, atol=atol)


def _is_not_in_tosa(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.dtype is torch.float64 or value.is_complex())


TARGET = os.environ.get("FLAMBEAU_TEST_TARGET", "linalg-on-tensors")
"""What the programs of these tests are lowered to."""


def check_all(
    cases: Sequence[tuple[Callable[..., Any], Sequence[Any]]],
    *,
    dynamic: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
) -> flambeau.Module:
    """Check many small functions in one program: IREE takes 50 ms for each instead of 250 ms.

    TOSA has neither 64-bit floats nor complex numbers: cases that begin with them are left out there.
    """
    if TARGET == "tosa":
        cases = [(f, inputs) for f, inputs in cases if not any(map(_is_not_in_tosa, inputs))]
        assert cases, "TOSA has no case of this test"
    arguments = tuple(x for _, inputs in cases for x in inputs)
    model = _Wrapper([(f, len(inputs)) for f, inputs in cases])
    shapes = None
    if dynamic:
        auto = torch.export.Dim.AUTO
        shapes = {
            "args": tuple(
                {i: auto for i, d in enumerate(x.shape) if d > 1} if isinstance(x, torch.Tensor) else None
                for x in arguments
            )
        }
    expected = model(*(x.clone() if isinstance(x, torch.Tensor) else x for x in arguments))
    module = flambeau.compile(model, arguments, dynamic_shapes=shapes, output_type=TARGET)
    run = flambeau.load(module, engine="iree", profile="quick", device="local-sync")
    actual = run(*arguments)
    for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
        assert_same(a, e, f"case {i}", rtol, atol)
    return module


def assert_matches(module: flambeau.Module, patterns: str) -> None:
    """Check a program's text with filecheck: `patterns` has `CHECK` lines."""
    from filecheck.finput import FInput
    from filecheck.matcher import Matcher
    from filecheck.options import Options
    from filecheck.parser import Parser, pattern_for_opts

    options = Options(match_filename="<patterns>")
    checks = Parser(options, io.StringIO(patterns), *pattern_for_opts(options))
    text = str(module)
    assert Matcher(options, FInput("<module>", text), checks).run() == 0, text


class Together:
    """Programs that are compiled one by one up to IREE, and by IREE as one module, when the first is asked for.

    For tests with many parameters. What cannot be compiled fails in its own test only.
    """

    def __init__(self, makers: Mapping[str, Callable[[], flambeau.Module]]) -> None:
        self.makers = dict(makers)
        self.failures: dict[str, Exception] = {}
        self.modules: dict[str, flambeau.Module] = {}

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Give the program of that name to be called, or raise what came of compiling it."""
        if name not in self._found:
            raise self.failures[name]
        return self._found[name]

    @cached_property
    def _found(self) -> dict[str, Callable[..., Any]]:
        for name, make in self.makers.items():
            try:
                self.modules[name] = make()
            except Exception as error:
                self.failures[name] = error
        return self._loaded(list(self.modules))

    def _loaded(self, names: list[str]) -> dict[str, Callable[..., Any]]:
        symbols = {name: f"f{i}" for i, name in enumerate(names)}
        try:
            merged = merge({symbols[name]: self.modules[name] for name in names})
            run = flambeau.load(merged, engine="iree", profile="quick", device="local-sync")
        except Exception as error:
            if len(names) < 2:
                self.failures |= dict.fromkeys(names, error)
                return {}
            half = len(names) // 2
            return self._loaded(names[:half]) | self._loaded(names[half:])
        return {name: run.function(symbol) for name, symbol in symbols.items()}
