"""What the executables of all engines share: from a Python call to flat values and back."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from flambeau.engines.calling import check_signature
from flambeau.engines.plans import CallPlan
from flambeau.ir.arrays import is_torch, overwrite
from flambeau.ir.module import Signature
from flambeau.ir.random_state import state_words
from flambeau.lowering.globals import GET_STATE, SET_STATE


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
        self._plans = {name: CallPlan(signature) for name, signature in signatures.items()}
        callable_ = [name for name in signatures if name not in (GET_STATE, SET_STATE)]
        self._default = callable_[0] if function not in signatures and len(callable_) == 1 else function

    @abstractmethod
    def call_flat(self, name: str, values: Sequence[Any], as_torch: bool = False) -> list[Any]:
        """Call a function of the IR with a value for each of its arguments; gives all its results."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._default, args, kwargs)

    def function(self, name: str) -> Callable[..., Any]:
        """Return one function of the program, for those that have several."""
        self.signature(name)
        return partial(self._call, name)

    @property
    def random_states(self) -> set[str]:
        """Name the weights that hold the state of random numbers; there are none in a program that draws none."""
        arguments = (a for signature in self.signatures.values() for a in signature.arguments)
        return {a.state for a in arguments if a.is_random and a.state is not None}

    def seed(self, seed: int, *, stream: int = 0, offset: int = 0) -> None:
        """Start the program's random numbers anew from a seed.

        Programs that run side by side draw different numbers from one seed if each has a `stream` of its own: the rank
        of a process, say. `offset` goes on where PyTorch's CUDA generator of this seed and offset would.
        """
        words = state_words(seed, stream, offset)
        if not (states := self.random_states):
            raise ValueError("the program draws no random numbers: there is nothing to seed")
        self.set_state(dict.fromkeys(states, words))

    def state(self) -> dict[str, Any]:
        """Return the tensors that the program keeps and writes, by name.

        They are the program's own where it was compiled with `state="functional"`, and copies of its variables with
        `state="globals"`.
        """
        if GET_STATE in self.signatures:
            # In torch tensors where the weights are: a program has no other inputs to tell by.
            as_torch = any(is_torch(weight) for weight in self.weights.values())
            with self._writing:
                return dict(zip(self._state_of(SET_STATE), self.call_flat(GET_STATE, [], as_torch), strict=True))
        return {name: self.weights[name] for function in self.signatures for name in self._state_of(function)}

    def _state_of(self, function: str) -> list[str]:
        """Name the state that a function takes, in order."""
        return [a.state for a in self.signatures[function].arguments if a.state is not None]

    def set_state(self, values: Mapping[str, Any]) -> None:
        """Write tensors that the program keeps, by name; those that are not named stay as they are."""
        state = self.state()
        if unknown := [name for name in values if name not in state]:
            known = ", ".join(state) or "none"
            raise ValueError(f"the program keeps no state {unknown[0]!r}; it keeps: {known}")
        for name, value in values.items():
            if tuple(value.shape) != tuple(state[name].shape):
                shapes = tuple(state[name].shape), tuple(value.shape)
                raise ValueError(f"the state {name!r} has shape {shapes[0]}, and the value {shapes[1]}")
        with self._writing:
            for name, value in values.items():
                overwrite(state[name], value)
            if SET_STATE in self.signatures:
                self.call_flat(SET_STATE, [state[name] for name in self._state_of(SET_STATE)])

    def bind(self, *args: Any, **kwargs: Any) -> Callable[[], Any]:
        """Bind these arguments to a call, for callers that repeat it with the same tensors and new contents.

        Arguments are checked here and not in each call. What it gives takes no arguments: it reads what is in the
        tensors when it is called. If one was given other memory or another shape meanwhile, it is checked again.
        """
        name = self._default
        plan = self._plan(name)
        values, as_torch = plan.bind(args, kwargs, self.weights)
        places = plan.places(values)
        run = self.bind_flat(name, values, as_torch)

        def call() -> Any:
            nonlocal values, as_torch, places, run
            if plan.places(values) != places:
                values, as_torch = plan.bind(args, kwargs, self.weights)
                places = plan.places(values)
                run = self.bind_flat(name, values, as_torch)
            plan.check_gradients(values)
            return self._finish(plan, values, run)

        return call

    def bind_flat(self, name: str, values: Sequence[Any], as_torch: bool) -> Callable[[], list[Any]]:
        """Bind these values to a call of a function of the IR; an engine may prepare what all calls have in common."""
        return partial(self.call_flat, name, values, as_torch)

    def signature(self, name: str) -> Signature:
        """Return how a function is called; ValueError if there is none of that name."""
        if name not in self.signatures:
            raise ValueError(f"the program has no function {name!r}; it has {', '.join(self.signatures)}")
        return self.signatures[name]

    def _call(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        return self._run(name, args, kwargs)

    def _run(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        plan = self._plan(name)
        values, as_torch = plan.bind(args, kwargs, self.weights)
        if plan.signature.mutations:
            return self._finish(plan, values, partial(self.call_flat, name, values, as_torch))
        return plan.finish(values, self.call_flat(name, values, as_torch))

    def _finish(self, plan: CallPlan, values: Sequence[Any], run: Callable[[], list[Any]]) -> Any:
        if not plan.signature.mutations:
            return plan.finish(values, run())
        # What a program reads of its state and what it writes there is one step: a second thread waits.
        with self._writing:
            return plan.finish(values, run())

    def _plan(self, name: str) -> CallPlan:
        return self._plans.get(name) or CallPlan(self.signature(name))
