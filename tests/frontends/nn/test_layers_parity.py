"""Layers written once, for torch and for flambeau: the same IR after the pipeline, the same numbers on IREE."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
from frontends.nn.layer_cases import CASES, PADDED, T, X
from frontends.nn.parity import as_torch, same_ir, specs_of
from support import assert_same

import flambeau
from flambeau import nn
from flambeau.frontends.nn.core.module import Module

DECOMPOSED = "torch.export decomposes the operator, which is written in another way here"
CELLS = "torch.export writes its linear layers as addmm, and joins the steps of cells in another order"
NUMBERS_ONLY = {
    **dict.fromkeys(
        ("Bilinear", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "CrossEntropyLoss weight", "Fold",
         "KLDivLoss", "LinearCrossEntropyLoss", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "NLLLoss",
         "PoissonNLLLoss", "TripletMarginLoss", "Unfold", "Upsample bicubic"),
        DECOMPOSED,
    ),
    **dict.fromkeys(
        ("RNN", "LSTM", "LSTM proj", "GRU", "GRU unbatched", "RNNCell", "LSTMCell", "GRUCell"), CELLS
    ),
    **dict.fromkeys(
        ("EmbeddingBag", "EmbeddingBag sum offsets", "EmbeddingBag max padded", "HingeEmbeddingLoss",
         "MultiLabelMarginLoss", "MultiMarginLoss", "RReLU"),
        "written with other ops than PyTorch's decomposition",
    ),
    **dict.fromkeys(("Dropout2d", "AlphaDropout"), "PyTorch leaves an op that is the identity; there is none here"),
    **dict.fromkeys(
        ("GaussianNLLLoss", "AdaptiveLogSoftmaxWithLoss", "CTCLoss", "CTCLoss row"),
        "torch.export refuses it, or leaves it whole: it looks at what tensors hold",
    ),
}  # fmt: skip
"""Layers whose IR is not compared, with the reason."""


def in_a_module(n: Any, layer: Any, call: Any) -> Any:
    """Make a module that calls a layer in some way of its own."""

    class Called(n.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, *xs: Any) -> Any:
            return call(self.layer, *xs)

    return Called()


def pair_of(name: str) -> tuple[Any, Any, tuple[torch.Tensor, ...]]:
    """Make torch's layer and ours with the same weights, in evaluation mode; return them and inputs."""
    make, inputs, *call = CASES[name]
    torch.manual_seed(0)
    theirs, ours = (in_a_module(n, make(n), call[0]) if call else make(n) for n in (torch.nn, nn))
    for key, value in theirs.state_dict().items():
        if "running_var" in key or "running_mean" in key:
            value.add_(torch.linspace(0, 1, len(value)))
    assert ours.load_state_dict(theirs.state_dict()) == ([], [])
    return theirs.eval(), ours.eval(), inputs


def test_the_table_is_long() -> None:
    assert len(CASES.keys() - NUMBERS_ONLY) >= 110
    assert set(NUMBERS_ONLY) <= set(CASES)


@pytest.mark.parametrize("name", [name for name in CASES if name not in NUMBERS_ONLY])
def test_same_ir(name: str) -> None:
    theirs, ours, inputs = pair_of(name)
    same_ir(theirs, ours, *inputs)


PARTS = 8


@pytest.mark.engine
@pytest.mark.parametrize("part", range(PARTS))
def test_same_numbers(part: int) -> None:
    names = list(CASES)[part::PARTS]
    triples = [pair_of(name) for name in names]

    class Everything(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(ours for _, ours, _ in triples)

        def forward(self, *xs: Any) -> list[Any]:
            results, at = [], 0
            for layer, (_, _, inputs) in zip(self.layers, triples, strict=True):
                found = layer(*xs[at : at + len(inputs)])
                results.append(list(found) if isinstance(found, tuple) else found)
                at += len(inputs)
            return results

    arguments = [x for _, _, inputs in triples for x in inputs]
    module = flambeau.compile(flambeau.trace(Everything().eval(), *specs_of(arguments)))
    run = flambeau.load(module, engine="iree", profile="quick", device="local-sync")
    actual = run(*(x.clone().numpy() for x in arguments))
    for name, (theirs, _, inputs), found in zip(names, triples, actual, strict=True):
        with torch.no_grad():
            wanted = theirs(*(x.clone() for x in inputs))
        assert_same(as_torch(found), as_torch(list(wanted) if isinstance(wanted, tuple) else wanted), name, 1e-4, 1e-5)


# --- Names, shapes, text ---

OTHER_TEXT = {
    "MultiheadAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer", "TripletMarginWithDistanceLoss",
}  # fmt: skip
"""Classes whose text shows parts of theirs that are classes of PyTorch's own."""


@pytest.mark.parametrize("name", CASES)
def test_state_and_text(name: str) -> None:
    theirs, ours, _ = pair_of(name)
    wanted = {key: (tuple(value.shape), str(value.numpy().dtype)) for key, value in theirs.state_dict().items()}
    assert {key: (value.shape, str(value.dtype)) for key, value in ours.state_dict().items()} == wanted
    assert list(ours.state_dict()) == list(wanted)
    if name.split()[0] not in OTHER_TEXT:
        assert repr(ours) == repr(theirs)


CLASSES = [
    name for name in dir(nn)
    if isinstance(getattr(nn, name), type) and issubclass(getattr(nn, name), Module) and hasattr(torch.nn, name)
    and name not in ("Module", "Sequential", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList")
]  # fmt: skip
OWN_SIGNATURES = {
    "LSTM": ["input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size",
             "device", "dtype"],
    "GRU": ["input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "device",
            "dtype"],
    "RNN": ["input_size", "hidden_size", "num_layers", "nonlinearity", "bias", "batch_first", "dropout",
            "bidirectional", "device", "dtype"],
}  # fmt: skip
"""Where PyTorch's constructor takes `*args, **kwargs`: what its overloads say."""


def arguments_of(cls: Any) -> dict[str, inspect.Parameter]:
    found = inspect.signature(cls).parameters.values()
    return {p.name: p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


@pytest.mark.parametrize("name", CLASSES)
def test_constructors_are_those_of_torch(name: str) -> None:
    theirs, ours = arguments_of(getattr(torch.nn, name)), arguments_of(getattr(nn, name))
    assert list(ours) == OWN_SIGNATURES.get(name, list(theirs))
    plain = (int, float, str, bool, type(None), tuple, type)
    for argument, wanted in theirs.items():
        if isinstance(wanted.default, plain) and wanted.default is not wanted.empty:
            assert ours[argument].default == wanted.default, argument
        assert ours[argument].kind == wanted.kind, argument


def test_every_class_has_a_case() -> None:
    bases = {"RNNBase", "RNNCellBase"}
    twins = {"Dropout1d", "Dropout3d", "FeatureAlphaDropout"}  # dropouts that differ in training alone
    assert set(CLASSES) - {name.split()[0] for name in CASES} == bases | twins


# --- Behaviour ---


def run(model: Any, *specs: Any) -> Any:
    """Compile a model for these types and load it."""
    module = flambeau.compile(flambeau.trace(model, *specs))
    return flambeau.load(module, engine="iree", profile="quick", device="local-sync")


DROPOUTS = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout", "RReLU"]


@pytest.mark.parametrize("name", DROPOUTS)
def test_randomness_in_training_is_refused(name: str) -> None:
    layer = getattr(nn, name)()
    with pytest.raises(NotImplementedError, match=r"in training needs random numbers.*call model.eval\(\)"):
        flambeau.trace(layer, nn.TensorSpec([2, 3, 4]))
    assert flambeau.trace(layer.eval(), nn.TensorSpec([2, 3, 4])).signatures["main"].results
    if name != "RReLU":
        assert flambeau.trace(getattr(nn, name)(0.0), nn.TensorSpec([2, 3, 4])).signatures["main"].results
        with pytest.raises(ValueError, match="between 0 and 1"):
            getattr(nn, name)(1.5)


def test_what_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="max_norm writes to the weights"):
        nn.Embedding(3, 4, max_norm=1.0)
    with pytest.raises(NotImplementedError, match="momentum=None takes the mean over all batches"):
        flambeau.trace(nn.BatchNorm1d(4, momentum=None), nn.TensorSpec([3, 4]))
    with pytest.raises(ValueError, match="expected 4D input"):
        flambeau.trace(nn.BatchNorm2d(4), nn.TensorSpec([3, 4]))
    with pytest.raises(ValueError, match="LSTM is unrolled over its sequence, whose length is not known"):
        flambeau.trace(nn.LSTM(4, 3), nn.TensorSpec([None, 2, 4]))
    with pytest.raises(NotImplementedError, match="random numbers"):
        flambeau.trace(nn.LSTM(4, 3, 2, dropout=0.5), nn.TensorSpec([3, 2, 4]))
    with pytest.raises(NotImplementedError, match="random numbers"):
        flambeau.trace(lambda x: nn.MultiheadAttention(4, 2, dropout=0.5)(x, x, x), nn.TensorSpec([3, 2, 4]))
    for make, message in (
        (lambda: nn.Conv2d(3, 4, 3, groups=2), "divisible by groups"),
        (lambda: nn.Conv2d(3, 4, 3, padding="some"), "invalid padding string"),
        (lambda: nn.Conv2d(3, 4, 3, stride=2, padding="same"), "strided"),
        (lambda: nn.Conv2d(3, 4, 3, padding_mode="other"), "padding_mode must be one of"),
        (lambda: nn.ConvTranspose2d(3, 4, 3, padding_mode="reflect"), "Only .zeros. padding mode"),
        (lambda: nn.GroupNorm(3, 4), "divisible by num_groups"),
        (lambda: nn.MultiheadAttention(5, 2), "multiple of num_heads"),
        (lambda: nn.RNN(3, 4, nonlinearity="sin"), "unknown nonlinearity"),
        (lambda: nn.GRU(3, 4, dropout=2.0), r"range \[0, 1\]"),
        (lambda: nn.LSTM(3, 4, proj_size=4), "smaller than hidden_size"),
        (lambda: nn.Embedding(3, 4, padding_idx=3), "within num_embeddings"),
        (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 9, [5, 2]), "unique, positive, rising"),
        (lambda: nn.MSELoss(reduction="most"), None),
    ):
        if message is None:
            with pytest.raises(ValueError, match="most is not a valid value for reduction"):
                flambeau.trace(make(), nn.TensorSpec([3]), nn.TensorSpec([3]))
        else:
            with pytest.raises(ValueError, match=message):
                make()
    with pytest.raises(TypeError, match="unexpected keyword argument 'beta'"):
        nn.ELU(beta=1)


@pytest.mark.engine
def test_statistics_of_instance_norm_in_training() -> None:
    x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    theirs, ours = (n.InstanceNorm2d(3, track_running_stats=True) for n in (torch.nn, nn))
    got = run(ours, nn.TensorSpec([2, 3, 4, 4]))(x.numpy())
    assert_same(torch.from_numpy(got), theirs(x), "result", 1e-4, 1e-5)
    for name, value in theirs.state_dict().items():
        np.testing.assert_allclose(ours.state_dict()[name], value.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.engine
def test_sizes_that_the_run_time_knows() -> None:
    """A batch of any size: recurrence, attention, a masked encoder, pooling and losses."""

    def model_in(n: Any) -> Any:
        class Model(n.Module):
            def __init__(self) -> None:
                super().__init__()
                self.lstm = n.LSTM(6, 6, batch_first=True)
                self.encoder = n.TransformerEncoderLayer(6, 2, 8, batch_first=True)
                self.pool, self.loss = n.AdaptiveAvgPool1d(1), n.CrossEntropyLoss()

            def forward(self, x: Any, padded: Any, target: Any) -> Any:
                x, (h, _) = self.lstm(x)
                x = self.encoder(x, src_key_padding_mask=padded)
                return x, h, self.loss(self.pool(x.transpose(1, 2)).flatten(1), target)

        return Model().eval()

    torch.manual_seed(0)
    theirs, ours = model_in(torch.nn), model_in(nn)
    ours.load_state_dict(theirs.state_dict())
    call = run(ours, nn.TensorSpec([None, 5, 6]), nn.TensorSpec([None, 5], "i1"), nn.TensorSpec([None], "i64"))
    for size in (2, 1):
        inputs = (T.transpose(0, 1)[:size].contiguous(), PADDED[:size], torch.arange(size))
        with torch.inference_mode(False), torch.enable_grad():  # with gradients, PyTorch takes no other path
            wanted = theirs(*inputs)
        assert_same(as_torch(call(*(x.numpy() for x in inputs))), list(wanted), f"batch {size}", 1e-4, 1e-5)


@pytest.mark.engine
def test_forms_in_place_and_tables() -> None:
    def f(x: Any) -> Any:
        y = x.clone()
        z = nn.ELU(inplace=True)(y)
        return y, nn.Hardtanh(inplace=True)(z) is z, nn.Dropout(inplace=True).eval()(z)

    y, same, z = run(f, nn.TensorSpec([3, 4]))(X.numpy())
    assert same
    np.testing.assert_allclose(y, torch.nn.functional.elu(X).clamp(-1, 1).numpy(), rtol=1e-5)
    np.testing.assert_array_equal(y, z)
    table = np.arange(6, dtype="f").reshape(3, 2)
    layer = nn.Embedding.from_pretrained(table, padding_idx=1)
    assert layer.weight.data is table
    assert (layer.num_embeddings, layer.embedding_dim, layer.padding_idx) == (3, 2, 1)
    assert nn.EmbeddingBag.from_pretrained(table, mode="sum").mode == "sum"


@pytest.mark.engine
def test_a_causal_mask_and_prediction() -> None:
    mask, likely = run(
        lambda x: (
            nn.Transformer.generate_square_subsequent_mask(3),
            nn.AdaptiveLogSoftmaxWithLoss(4, 9, [2, 5], 2.0).log_prob(x).exp().sum(1),
        ),
        nn.TensorSpec([3, 4]),
    )(X.numpy())
    np.testing.assert_array_equal(mask, torch.nn.Transformer.generate_square_subsequent_mask(3).numpy())
    np.testing.assert_allclose(likely, np.ones(3), rtol=1e-5)


def test_weights_of_new_layers() -> None:
    nn.manual_seed(3)
    first = nn.Transformer(8, 2, 1, 1, 16)
    nn.manual_seed(3)
    again = nn.Transformer(8, 2, 1, 1, 16)
    for (name, value), other in zip(first.state_dict().items(), again.state_dict().values(), strict=True):
        np.testing.assert_array_equal(value, other, err_msg=name)
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    stack = nn.TransformerEncoder(layer, 2)
    assert stack.layers[0].linear1.weight is not stack.layers[1].linear1.weight
    bound = 1 / math.sqrt(3 * 9)
    weights = nn.Conv2d(3, 64, 3).weight.data
    assert bound * 0.9 < np.abs(weights).max() <= bound
