"""What the executables of all engines share: from a Python call to flat values and back."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from flambeau.engines.calling import answer_in_torch, bind, check_signature, finish
from flambeau.ir.module import Signature


class ProgramExecutable(ABC):
    """A program with its weights. Calling it calls `function`.

    Arguments are checked, and the tensors that the program writes (arguments and buffers) are written in place, as the
    original would.
    """

    weights: Mapping[str, Any]
    signatures: Mapping[str, Signature]
    timings: dict[str, float]
    """Seconds by stage of the work that made this."""

    def __init__(self, weights: Mapping[str, Any], signatures: Mapping[str, Signature], function: str = "main") -> None:
        for name, signature in signatures.items():
            check_signature(name, signature, weights)
        self.weights = weights
        self.signatures = signatures
        self.timings = {}
        self._writing = threading.Lock()
        self._default = next(iter(signatures)) if function not in signatures and len(signatures) == 1 else function

    @abstractmethod
    def call_flat(self, name: str, values: Sequence[Any], as_torch: bool = False) -> list[Any]:
        """Call a function of the IR with a value for each of its arguments; gives all its results."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._default, args, kwargs)

    def function(self, name: str) -> Callable[..., Any]:
        """One function of the program, for those that have several."""
        self.signature(name)
        return partial(self._call, name)

    def signature(self, name: str) -> Signature:
        """How a function is called."""
        if name not in self.signatures:
            raise ValueError(f"the program has no function {name!r}; it has {', '.join(self.signatures)}")
        return self.signatures[name]

    def _call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        return self._run(name, args, kwargs)

    def _run(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        signature = self.signature(name)
        values = bind(signature, args, kwargs, self.weights)
        as_torch = answer_in_torch(signature, values, self.weights)
        # What a program reads of its state and what it writes there is one step: a second thread waits.
        with self._writing if signature.mutations else nullcontext():
            return finish(signature, values, self.call_flat(name, values, as_torch))
