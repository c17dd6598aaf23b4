"""`--plugin FILE.py`: rules of the user's own, before anything else is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from flambeau.commands.errors import usage_error
from flambeau.python_files import PythonFileError, import_plugin

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def _load(context: click.Context, option: click.Parameter, paths: Sequence[Path]) -> tuple[Path, ...]:
    for path in paths:
        try:
            import_plugin(path)
        except PythonFileError as error:
            raise usage_error(str(error)) from None
    return tuple(paths)


def plugin_option(expose_value: bool = False) -> Callable[[CommandT], CommandT]:
    """Give a command the option, as `plugins` if it wants to know the files."""
    return click.option(
        "--plugin",
        "plugins",
        multiple=True,
        type=click.Path(dir_okay=False, path_type=Path),
        callback=_load,
        expose_value=expose_value,
        is_eager=True,
        help="A Python file with rules for custom ops.",
    )
