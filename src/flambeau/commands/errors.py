"""Every failure that a user can cause ends in one clear message and exit status 2 (or 1 for a program that fails)."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from flambeau.diagnostics import CompileError


class Group(click.Group):
    """A command group that shows our errors without a Python traceback (FLAMBEAU_TRACEBACK=1 shows it)."""

    def invoke(self, ctx: click.Context) -> Any:
        from flambeau.engines.errors import EngineError, RunError

        try:
            return super().invoke(ctx)
        except (CompileError, EngineError, RunError) as e:
            if os.environ.get("FLAMBEAU_TRACEBACK"):
                raise
            click.echo(f"error: {e}", err=True)
            sys.exit(1)
        except BrokenPipeError:
            sys.exit(1)


class Mistake(click.ClickException):
    """Something wrong with how the command was called: one line, exit status 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.format_message()}", file=file, err=file is None)


def usage_error(message: str) -> Mistake:
    return Mistake(message)
