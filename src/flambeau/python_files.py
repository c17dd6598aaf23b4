"""Python files that users name on the command line: models, backends, cases."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


class PythonFileError(ValueError):
    """A file that cannot be imported; the text is for whoever named it."""


_PLUGINS: dict[Path, ModuleType] = {}


def import_plugin(path: Path) -> None:
    """Import a file with rules for custom ops. It is imported once: an op cannot be defined twice."""
    _PLUGINS[path.resolve()] = import_file(path)


def import_file(path: Path, name: str | None = None) -> ModuleType:
    """Import a Python file by its path, under `name` or that of the file.

    What lies beside it can be imported too, also later, by the functions in it.
    """
    if (known := _PLUGINS.get(path.resolve())) is not None:
        return known
    if not path.is_file():
        raise PythonFileError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(name or path.stem, path)
    if spec is None or spec.loader is None:
        raise PythonFileError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(spec.name)
    sys.modules[spec.name] = module
    if (folder := str(path.parent.resolve())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        if before is not None:
            sys.modules[spec.name] = before
        raise PythonFileError(f"cannot import {path}: {type(error).__name__}: {error}") from error
    return module
