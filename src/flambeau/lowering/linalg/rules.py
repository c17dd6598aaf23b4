"""The table of linalg rules, and how a pointwise op is declared."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from xdsl.ir import SSAValue

from flambeau.infer.promotion import promote_operands
from flambeau.ir.conversion import RuleTable
from flambeau.ir.dtypes import DType
from flambeau.lowering.builder import Tensor
from flambeau.lowering.element import Element
from flambeau.lowering.verbs import RuleBuilder

LINALG_RULES = RuleTable("linalg")
linalg_rule = LINALG_RULES

LOOP_RULES = RuleTable("loop nests")
"""Rules for ops that other targets decompose, or have an op for: what only a loop nest can say."""
loop_rule = LOOP_RULES


def pointwise(
    *names: str, inputs: str = "result", guard: Callable[..., None] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare an elementwise op by what it does to one element.

    The function gets one argument for each of the schema: tensors arrive as Elements, constants as Python values.
    `inputs` says in which dtype the Elements come: `result` (that of the result), `common` (what the operands promote
    to, for comparisons), `own` (unconverted). 16-bit floats are computed in f32, as in PyTorch.
    `guard` gets the builder and the arguments first: what it checks is checked for the whole program.
    """

    def register(body: Callable[..., Any]) -> Callable[..., Any]:
        @linalg_rule(*names)
        @wraps(body)
        def rule(b: RuleBuilder, *args: Any) -> Any:
            if guard is not None:
                guard(b, *args)
            return apply_pointwise(b, args, body, inputs)

        return body

    return register


def apply_pointwise(b: RuleBuilder, args: tuple[Any, ...], body: Callable[..., Any], inputs: str = "result") -> Tensor:
    """Run one loop that calls `body` with an element of each tensor argument."""
    tensors = [a for a in args if isinstance(a, Tensor)]
    dtype = b.out_dtype
    wanted: DType | None = None
    if inputs == "result":
        wanted = dtype
    elif inputs == "common":
        wanted = promote_operands([_operand(a) for a in args if _is_number(a)])

    # Operands meet in one dtype and are computed with in another. Of 16-bit floats it shows: all that is compared is
    # rounded to them, numbers too; in arithmetic only tensors of integers are.
    is_narrow = wanted is not None and wanted.compute is not wanted
    is_compared = is_narrow and inputs == "common"

    def met(element: Element, is_rounded: bool) -> Element:
        if wanted is None:
            return element
        return (element.to(wanted) if is_rounded else element).to(wanted.compute)

    def at_element(*elements: Element) -> Any:
        remaining = iter(elements)
        converted: list[Any] = []
        for argument in args:
            if isinstance(argument, Tensor):
                is_rounded = is_compared or (is_narrow and argument.dtype.is_integral and argument.rank > 0)
                converted.append(met(next(remaining), is_rounded))
            elif isinstance(argument, SSAValue):
                number = b.scalar(argument)
                converted.append(met(number, True) if is_compared else number)
            elif is_compared and wanted is not None and _is_number(argument):
                converted.append(met(b.element(argument, wanted), True))
            else:
                converted.append(argument)
        return body(*converted)

    return b.elementwise(tensors, at_element, dtype)


def _is_number(value: Any) -> bool:
    return isinstance(value, (Tensor, SSAValue, int, float, complex))


def _operand(value: Any) -> Any:
    """Return what promotion needs to know: (dtype, rank) of a tensor, or a number of the scalar's kind."""
    if isinstance(value, Tensor):
        return (value.dtype, value.rank)
    if isinstance(value, SSAValue):
        from xdsl.dialects.builtin import f64, i1

        return 0.0 if value.type == f64 else False if value.type == i1 else 0
    return value
