"""Recurrent layers and cells. A layer is unrolled over its sequence, whose length must be known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flambeau.frontends.nn import functional as F
from flambeau.frontends.nn.core import ops
from flambeau.frontends.nn.core.module import Module
from flambeau.frontends.nn.layers.linear import uniform

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
"""How many gates a cell has, by mode."""

State = tuple[Any, ...]
"""What a cell hands on: `(h,)`, or `(h, c)` of an LSTM."""


def _lstm(x: Any, state: State, project: Callable[[Any], Any]) -> State:
    take, forget, new, give = (project(state[0]) + x).chunk(4, -1)
    cell = forget.sigmoid() * state[1] + take.sigmoid() * new.tanh()
    return give.sigmoid() * cell.tanh(), cell


def _gru(x: Any, state: State, project: Callable[[Any], Any]) -> State:
    (hidden,) = state
    x_reset, x_keep, x_new = x.chunk(3, -1)
    h_reset, h_keep, h_new = project(hidden).chunk(3, -1)
    new = (x_new + (x_reset + h_reset).sigmoid() * h_new).tanh()
    return ((hidden - new) * (x_keep + h_keep).sigmoid() + new,)


def _plain(function: str) -> Callable[..., State]:
    return lambda x, state, project: (getattr(ops, function)(project(state[0]) + x),)


STEPS: dict[str, Callable[[Any, State, Callable[[Any], Any]], State]] = {
    "LSTM": _lstm,
    "GRU": _gru,
    "RNN_TANH": _plain("tanh"),
    "RNN_RELU": _plain("relu"),
}
"""One step: the projected input, the state and the projection of the hidden state to the next state."""


class RNNBase(Module):
    """Layers of cells, in one direction or in both."""

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if mode not in GATES:
            raise ValueError(f"Unrecognized RNN mode: {mode}")
        if proj_size and mode != "LSTM":
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if not 0 <= proj_size < hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size, and not negative")
        if not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1]")
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self.suffixes = [f"_l{i}{end}" for i in range(num_layers) for end in self._ends()]
        bound = 1 / math.sqrt(hidden_size)
        width, rows = proj_size or hidden_size, GATES[mode] * hidden_size
        for i, suffix in enumerate(self.suffixes):
            below = input_size if i < len(self._ends()) else width * len(self._ends())
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, below), "weight_hh": (rows, width)}
            shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)} if bias else {}
            shapes |= {"weight_hr": (proj_size, hidden_size)} if proj_size else {}
            for name, shape in shapes.items():
                setattr(self, name + suffix, uniform(shape, bound, dtype))

    def _ends(self) -> tuple[str, ...]:
        return ("", "_reverse") if self.bidirectional else ("",)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """Return the hidden states of the last layer, and the last state of each layer and direction."""
        many = self.mode == "LSTM"
        states = None if hx is None else list(hx) if many else [hx]
        batched = input.ndim == 3
        if not batched:
            input = input.unsqueeze(1)
            states = None if states is None else [s.unsqueeze(1) for s in states]
        elif self.batch_first:
            input = input.transpose(0, 1)
        if input.meta.shape[0] is None:
            raise ValueError(
                f"{type(self).__name__} is unrolled over its sequence, whose length is not known: "
                "give the length in nn.TensorSpec"
            )
        if states is None:
            states = self._zeros(input)
        output, last = self._layers(input, [s.unbind(0) for s in states])
        final = [ops.stack([state[i] for state in last], 0) for i in range(len(states))]
        if not batched:
            output, final = output.squeeze(1), [f.squeeze(1) for f in final]
        elif self.batch_first:
            output = output.transpose(0, 1)
        return output, tuple(final) if many else final[0]

    def _zeros(self, input: Any) -> list[Any]:
        sizes = [self.proj_size or self.hidden_size, *([self.hidden_size] if self.mode == "LSTM" else [])]
        return [ops.zeros([len(self.suffixes), input.shape[1], size], dtype=input.dtype) for size in sizes]

    def _layers(self, x: Any, states: list[Any]) -> tuple[Any, list[State]]:
        last: list[State] = []
        ends = self._ends()
        for i in range(self.num_layers):
            outputs = []
            for j, end in enumerate(ends):
                state = tuple(s[i * len(ends) + j] for s in states)
                output, state = self._run(x, state, f"_l{i}{end}", bool(end))
                outputs.append(output)
                last.append(state)
            x = ops.cat(outputs, -1) if len(outputs) > 1 else outputs[0]
            if i < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x, last

    def _run(self, x: Any, state: State, suffix: str, backwards: bool) -> tuple[Any, State]:
        """Run one layer in one direction. The inputs of all steps are projected at once."""
        ih, hh, hr = (getattr(self, f"weight_{name}{suffix}", None) for name in ("ih", "hh", "hr"))
        bias_ih, bias_hh = (getattr(self, f"bias_{name}{suffix}", None) for name in ("ih", "hh"))
        projected = list(ops.linear(x, ih, bias_ih).unbind(0))
        hidden = []
        for step in reversed(projected) if backwards else projected:
            state = STEPS[self.mode](step, state, lambda h: ops.linear(h, hh, bias_hh))
            if hr is not None:
                state = (ops.linear(state[0], hr), *state[1:])
            hidden.append(state[0])
        return ops.stack(hidden[::-1] if backwards else hidden, 0), state

    def flatten_parameters(self) -> None:
        """Do nothing: weights of a program lie where the compiler puts them."""

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0,
                 "bidirectional": False}  # fmt: skip
        return text + "".join(f", {k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v)


class LSTM(RNNBase):
    """Long short-term memory."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            "LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size, device,
            dtype,
        )  # fmt: skip


class GRU(RNNBase):
    """Gated recurrent units."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True, batch_first: bool = False,
        dropout: float = 0.0, bidirectional: bool = False, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(
            "GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )


class RNN(RNNBase):
    """Elman's network."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        self._check(nonlinearity)
        mode = f"RNN_{nonlinearity.upper()}"
        super().__init__(
            mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, 0, device, dtype
        )
        self.nonlinearity = nonlinearity

    @staticmethod
    def _check(nonlinearity: str) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"unknown nonlinearity {nonlinearity!r}: select from 'tanh' or 'relu'")


class RNNCellBase(Module):
    """One step."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        bound, rows = 1 / math.sqrt(hidden_size) if hidden_size else 0, num_chunks * hidden_size
        self.weight_ih = uniform((rows, input_size), bound, dtype)
        self.weight_hh = uniform((rows, hidden_size), bound, dtype)
        self.register_parameter("bias_ih", uniform((rows,), bound, dtype) if bias else None)
        self.register_parameter("bias_hh", uniform((rows,), bound, dtype) if bias else None)

    def _step(self, mode: str, input: Any, state: State | None) -> State:
        single = input.ndim == 1
        if single:
            input, state = input.unsqueeze(0), None if state is None else tuple(s.unsqueeze(0) for s in state)
        if state is None:
            zeros = ops.zeros([input.shape[0], self.hidden_size], dtype=input.dtype)
            state = (zeros, zeros) if mode == "LSTM" else (zeros,)
        projected = ops.linear(input, self.weight_ih, self.bias_ih)
        found = STEPS[mode](projected, state, lambda h: ops.linear(h, self.weight_hh, self.bias_hh))
        return tuple(s.squeeze(0) for s in found) if single else found

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if not self.bias:
            text += f", bias={self.bias}"
        kind = getattr(self, "nonlinearity", "tanh")
        return text if kind == "tanh" else f"{text}, nonlinearity={kind}"


class RNNCell(RNNCellBase):
    """One step of Elman's network."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        RNN._check(nonlinearity)
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Any = None) -> Any:
        return self._step(f"RNN_{self.nonlinearity.upper()}", input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """One step of an LSTM."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        return self._step("LSTM", input, None if hx is None else tuple(hx))


class GRUCell(RNNCellBase):
    """One step of gated recurrent units."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        return self._step("GRU", input, None if hx is None else (hx,))[0]
