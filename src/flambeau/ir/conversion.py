"""The one mechanism: a conversion is an interpreter.

A function is walked once, in order. Each op's rule is called with the already converted operands and gives the
converted results. Constants never become ops on the way: a rule sees Python values, and lists of them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, TypeVar

from xdsl.ir import Block, Operation, SSAValue

from flambeau.diagnostics import CompileError, Diagnostic, Unsupported, diagnostic_for, failure

RuleFunction = Callable[..., Any]
RuleT = TypeVar("RuleT", bound=RuleFunction)


class RuleTable:
    """Rules by op name. A name has one rule; a second one is a mistake and raises."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules: dict[str, RuleFunction] = {}
        self.families: dict[str, str] = {}
        """The op family of each rule: the name of the module that adds it, such as `reduce`."""

    def __call__(self, *names: str, family: str | None = None) -> Callable[[RuleT], RuleT]:
        """Decorate a rule for the ops of these names: `@linalg_rule("aten.relu")`.

        `family` is the op family that they are of, by default that of the module which says so.
        """
        family = family or _caller_family()

        def register(function: RuleT) -> RuleT:
            for name in names:
                if name in self.rules:
                    raise ValueError(f"{self.name} has two rules for {name}")
                self.rules[name] = function
                self.families[name] = family
            return function

        return register

    def load(self, package: str, families: Sequence[str]) -> RuleTable:
        """Import a package's modules, which add their rules on import, and return the table."""
        for family in families:
            import_module(f"{package}.{family}")
        return self

    def get(self, name: str) -> RuleFunction | None:
        return self.rules.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self.rules

    def __iter__(self) -> Iterator[str]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)


def _caller_family() -> str:
    """Name the module that adds a rule; modules called `rules` only have the means to do so."""
    frame = sys._getframe(2)
    while (module := frame.f_globals["__name__"].rpartition(".")[2]) == "rules" and frame.f_back is not None:
        frame = frame.f_back
    return str(module)


ON_NUMBERS = (ArithmeticError, AttributeError, TypeError, ValueError)
"""What Python raises where a rule computes with a number that is no number yet."""


class Conversion:
    """Walks blocks and calls rules. Subclasses say how operands look to a rule and how results are recorded."""

    stage: str
    """What this conversion is called in error messages."""

    def __init__(self) -> None:
        self.values: dict[SSAValue, Any] = {}
        self.problems: list[Diagnostic] = []
        self.rule: RuleFunction | None = None
        """The rule that is being applied, or was last."""
        self.cause: Exception | None = None
        """The exception of a rule that failed, where it did not say that it does not support something."""

    def convert_block(self, block: Block) -> None:
        """Convert all ops of a block; problems are collected, not raised."""
        op = block.first_op
        while op is not None:
            # The op may be replaced or erased by its rule, never its successor.
            following = op.next_op
            try:
                self.convert_op(op)
            except Unsupported as e:
                self.problems.append(diagnostic_for(op, self.stage, e.reason, e.hint))
                self._go_on(op)
            except CompileError:
                raise
            except Exception as e:
                if isinstance(e, ON_NUMBERS) and (numbers := self.unknown_numbers(op)):
                    reason = f"it takes {' and '.join(numbers)} only as a number that is known when it is compiled"
                    self.problems.append(diagnostic_for(op, self.stage, reason, "Make the number a constant."))
                    self._go_on(op)
                    op = following
                    continue
                # Behind a problem, what a rule trips over is likely to be a consequence of it.
                if not self.problems:
                    self.cause = e
                    self.problems.append(failure(e, self.stage, op, self.rule))
                self._go_on(op)
            op = following

    def _go_on(self, op: Operation) -> None:
        try:
            self.poison(op)
        except Unsupported:
            self.finish()

    def convert_op(self, op: Operation) -> None:
        raise NotImplementedError

    def unknown_numbers(self, op: Operation) -> Sequence[str]:
        """Name the arguments of an op that are numbers and known only at run time: most rules compute with numbers."""
        return ()

    def poison(self, op: Operation) -> None:
        """Give the results of a failed op some value, so that the walk can go on and find further problems."""
        raise NotImplementedError

    def record(self, op: Operation, converted: Any) -> None:
        """Remember what a rule returned: one value, or a sequence of them."""
        results = op.results
        if len(results) == 1:
            self.values[results[0]] = converted
        elif results:
            if not isinstance(converted, Sequence) or len(converted) != len(results):
                raise TypeError(f"the rule for {op.name} must give {len(results)} results")
            for old, new in zip(results, converted, strict=True):
                self.values[old] = new

    def finish(self) -> None:
        """Raise if anything went wrong."""
        if self.problems:
            raise CompileError(self.problems, summary=_summary(self.problems, self.stage)) from self.cause


def _summary(problems: Sequence[Diagnostic], stage: str) -> str:
    ops = {p.op for p in problems}
    count = f"{len(problems)} op{'s' if len(problems) != 1 else ''}"
    return f"cannot {stage}: {count} not supported ({', '.join(sorted(ops))})"
