"""A program of the torch dialect, called like the Python callable that it came from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from flambeau.engines.arrays import is_numpy, is_torch, to_numpy, to_torch
from flambeau.engines.calling import answer_in_torch, bind, check_signature, finish
from flambeau.engines.eager.interpreter import Interpreter
from flambeau.ir.module import Signature


class EagerExecutable:
    """A program with its weights and, where it has any, the state of its objects and slots."""

    weights: Mapping[str, Any]
    signatures: Mapping[str, Signature]
    timings: dict[str, float]
    """Seconds of the work that made this: `load`."""

    def __init__(self, module: ModuleOp, weights: Mapping[str, Any], signatures: Mapping[str, Signature]) -> None:
        for name, signature in signatures.items():
            check_signature(name, signature, weights)
        start = time.perf_counter()
        self.weights = weights
        self.signatures = signatures
        self._default = next(iter(signatures)) if len(signatures) == 1 else "main"
        self._interpreter = Interpreter(module, weights)
        self.timings = {"load": time.perf_counter() - start}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._default, args, kwargs)

    def function(self, name: str) -> Callable[..., Any]:
        """One function of the program, for those that have several."""
        self._signature(name)
        return partial(self._call, name)

    def _call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        return self._run(name, args, kwargs)

    def _run(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        signature = self._signature(name)
        values = bind(signature, args, kwargs, self.weights)
        as_torch = answer_in_torch(signature, values, self.weights)
        results = self._interpreter.call(name, [to_torch(v) if is_numpy(v) else v for v in values])
        if not as_torch:
            results = [to_numpy(r) if is_torch(r) else r for r in results]
        return finish(signature, values, results)

    def _signature(self, name: str) -> Signature:
        if name not in self.signatures:
            raise ValueError(f"the program has no function {name!r}; it has {', '.join(self.signatures)}")
        return self.signatures[name]
