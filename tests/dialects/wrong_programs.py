"""Programs that are wrong: our verifier refuses them, and so does IREE's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from xdsl.utils.exceptions import VerifyException

from flambeau.dialects.context import parse_module

Wrong = Sequence[tuple[str, str]]
"""Lines that hold one op in its generic form each, and a part of what is said about it."""


def iree(text: str) -> str:
    """Print the program as IREE does; its pretty form is another than torch-mlir's."""
    from iree.compiler import ir

    with ir.Context():
        return str(ir.Module.parse(text).operation.get_asm())


def is_refused(program: Callable[[str], str], line: str, message: str) -> None:
    """Our verifier names the op and says what is wrong with it."""
    name = line.split('"')[1]
    with pytest.raises(VerifyException) as caught:
        parse_module(program(line)).verify()
    assert f"{name}: " in str(caught.value)
    assert message in str(caught.value)


def iree_agrees(program: Callable[[str], str], invalid: Wrong, stricter: Wrong) -> None:
    """IREE refuses what is invalid, and reads that where we are stricter."""
    from iree.compiler import ir

    for line, _ in invalid:
        with pytest.raises(ir.MLIRError), ir.Context():
            ir.Module.parse(program(line))
    for line, _ in stricter:
        assert iree(program(line))
