"""What an engine raises when it cannot compile or run a program."""

from __future__ import annotations

from collections.abc import Sequence


class EngineError(Exception):
    """An engine could not compile, load or save a program."""

    diagnostics: list[tuple[str, str]]
    """What the engine's compiler said, in full and in order: `(severity, message)`."""

    def __init__(self, summary: str, diagnostics: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(summary)
        self.diagnostics = list(diagnostics)


class InvalidProgram(EngineError):
    """An engine's compiler could not even read the program."""


class RunError(RuntimeError):
    """A program stopped while it ran, most often because one of its own checks failed.

    It is a `RuntimeError` because that is what PyTorch raises for the same mistakes.
    """


class WrongResult(RunError):
    """A program gave another result than the one that it was checked against."""
