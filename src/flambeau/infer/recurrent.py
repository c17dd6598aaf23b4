"""Shapes of recurrent layers and their cells."""

from __future__ import annotations

from typing import Any

from flambeau.infer.rules import Meta, infer_rule, product, promoted, promoted_float


def _outputs(x: Meta, state: Meta, bidirectional: bool) -> Meta:
    return Meta((*x.shape[:-1], product([state.shape[-1], 2 if bidirectional else 1])), x.dtype)


@infer_rule("aten.lstm.input")
def lstm(
    x: Meta, state: list[Meta], weights: list[Meta], biases: bool, layers: int, dropout: Any, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[Meta, Meta, Meta]:  # fmt: skip
    return _outputs(x, state[0], bidirectional), state[0], state[1]


@infer_rule("aten.gru.input", "aten.rnn_tanh.input", "aten.rnn_relu.input")
def gru(
    x: Meta, state: Meta, weights: list[Meta], biases: bool, layers: int, dropout: Any, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[Meta, Meta]:  # fmt: skip
    return _outputs(x, state, bidirectional), state


infer_rule("aten.lstm_cell")(lambda x, state, *_: (state[0], state[1]))
infer_rule("aten.gru_cell", "aten.rnn_tanh_cell")(lambda x, state, *_: Meta(state.shape, promoted_float(x, state)))
infer_rule("aten.rnn_relu_cell")(lambda x, state, *_: Meta(state.shape, promoted(x, state)))
