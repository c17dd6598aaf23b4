"""A program of the torch dialect, called like the Python callable that it came from."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from flambeau.engines.eager.interpreter import Interpreter
from flambeau.engines.executable import ProgramExecutable
from flambeau.ir.arrays import is_numpy, is_torch, to_numpy, to_torch
from flambeau.ir.module import Signature


class EagerExecutable(ProgramExecutable):
    """A program with its weights and, where it has any, the state of its objects and slots."""

    def __init__(self, module: ModuleOp, weights: Mapping[str, Any], signatures: Mapping[str, Signature]) -> None:
        super().__init__(weights, signatures)
        start = time.perf_counter()
        self._interpreter = Interpreter(module, weights)
        self.timings = {"load": time.perf_counter() - start}

    def call_flat(self, name: str, values: Sequence[Any], as_torch: bool = False) -> list[Any]:
        results = self._interpreter.call(name, [to_torch(v) if is_numpy(v) else v for v in values])
        return results if as_torch else [to_numpy(r) if is_torch(r) else r for r in results]
