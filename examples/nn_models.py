"""ResNet-50, GPT-2 and BERT written against `flambeau.nn`: from a checkpoint on disk to numbers, without PyTorch.

    python examples/nn_models.py gpt2 gpt2.safetensors

The names of the modules are those of the PyTorch models (transformers'), so that their checkpoints fit as they are.
Without a checkpoint the weights are random.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import flambeau
from flambeau import nn, ops

# --- ResNet ---


class ConvLayer(nn.Module):
    def __init__(self, inputs, outputs, kernel=3, stride=1, activation=True):
        super().__init__()
        self.convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.normalization = nn.BatchNorm2d(outputs)
        self.activation = activation

    def forward(self, x):
        x = self.normalization(self.convolution(x))
        return x.relu() if self.activation else x


class Bottleneck(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        inner = outputs // 4
        self.shortcut = None
        if inputs != outputs or stride != 1:
            self.shortcut = ConvLayer(inputs, outputs, 1, stride, activation=False)
        self.layer = nn.Sequential(
            ConvLayer(inputs, inner, 1),
            ConvLayer(inner, inner, 3, stride),
            ConvLayer(inner, outputs, 1, activation=False),
        )

    def forward(self, x):
        return (self.layer(x) + (self.shortcut(x) if self.shortcut is not None else x)).relu()


class Stage(nn.Module):
    def __init__(self, inputs, outputs, depth, stride):
        super().__init__()
        blocks = [Bottleneck(inputs if i == 0 else outputs, outputs, stride if i == 0 else 1) for i in range(depth)]
        self.layers = nn.Sequential(*blocks)

    def forward(self, x):
        return self.layers(x)


class ResNet(nn.Module):
    """ResNet-50, if nothing else is said."""

    def __init__(self, stem=64, widths=(256, 512, 1024, 2048), depths=(3, 4, 6, 3), classes=1000):
        super().__init__()
        inputs = (stem, *widths)
        self.resnet = nn.ModuleDict(
            {
                "embedder": nn.ModuleDict({"embedder": ConvLayer(3, stem, 7, 2)}),
                "encoder": nn.ModuleDict(
                    {
                        "stages": nn.ModuleList(
                            [Stage(inputs[i], w, d, 1 if i == 0 else 2) for i, (w, d) in enumerate(zip(widths, depths))]
                        )
                    }
                ),
            }
        )
        self.classifier = nn.ModuleDict({"1": nn.Linear(widths[-1], classes)})

    def forward(self, pixels):
        x = ops.max_pool2d(self.resnet["embedder"]["embedder"](pixels), 3, 2, 1)
        for stage in self.resnet["encoder"]["stages"]:
            x = stage(x)
        return self.classifier["1"](x.mean([2, 3]))


# --- Attention, for both of the others ---


def attend(q, k, v, heads, causal):
    """`softmax(q k^T) v`, head by head."""

    def split(x):
        return x.unflatten(-1, [heads, x.shape[-1] // heads]).transpose(1, 2)

    attended = ops.scaled_dot_product_attention(split(q), split(k), split(v), is_causal=causal)
    return attended.transpose(1, 2).flatten(2)


# --- GPT-2 ---


class Conv1D(nn.Module):
    """A linear layer that keeps its weight as (in, out)."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(np.random.default_rng(0).normal(0, 0.02, (inputs, outputs)).astype(np.float32))
        self.bias = nn.Parameter(np.zeros(outputs, np.float32))

    def forward(self, x):
        return x @ self.weight + self.bias


class GPT2Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x):
        q, k, v = self.c_attn(x).chunk(3, -1)
        return self.c_proj(attend(q, k, v, self.heads, causal=True))


class GPT2MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Conv1D(width, 4 * width)
        self.c_proj = Conv1D(4 * width, width)

    def forward(self, x):
        return self.c_proj(ops.gelu(self.c_fc(x), approximate="tanh"))


class GPT2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = GPT2Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = GPT2MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, vocabulary=50257, positions=1024, width=768, layers=12, heads=12):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(positions, width),
                "h": nn.ModuleList([GPT2Block(width, heads) for _ in range(layers)]),
                "ln_f": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, ids):
        parts = self.transformer
        x = parts["wte"](ids) + parts["wpe"](ops.arange(ids.shape[1]))
        for block in parts["h"]:
            x = block(x)
        return self.lm_head(parts["ln_f"](x))


# --- BERT ---


class BertEmbeddings(nn.Module):
    def __init__(self, vocabulary, positions, types, width):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocabulary, width)
        self.position_embeddings = nn.Embedding(positions, width)
        self.token_type_embeddings = nn.Embedding(types, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, ids):
        words = self.word_embeddings(ids)
        positions = self.position_embeddings(ops.arange(ids.shape[1]))
        return self.LayerNorm(words + self.token_type_embeddings(ops.zeros_like(ids)) + positions)


class BertSelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)

    def forward(self, x):
        return attend(self.query(x), self.key(x), self.value(x), self.heads, causal=False)


class BertOutput(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.dense = nn.Linear(inputs, width)
        self.LayerNorm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x, residual):
        return self.LayerNorm(self.dense(x) + residual)


class BertLayer(nn.Module):
    def __init__(self, width, inner, heads):
        super().__init__()
        self.attention = nn.ModuleDict({"self": BertSelfAttention(width, heads), "output": BertOutput(width, width)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = BertOutput(inner, width)

    def forward(self, x):
        x = self.attention["output"](self.attention["self"](x), x)
        return self.output(ops.gelu(self.intermediate["dense"](x)), x)


class Bert(nn.Module):
    def __init__(self, vocabulary=30522, positions=512, types=2, width=768, inner=3072, layers=12, heads=12):
        super().__init__()
        self.embeddings = BertEmbeddings(vocabulary, positions, types, width)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList([BertLayer(width, inner, heads) for _ in range(layers)])})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(width, width)})

    def forward(self, ids):
        x = self.embeddings(ids)
        for layer in self.encoder["layer"]:
            x = layer(x)
        return x, self.pooler["dense"](x[:, 0]).tanh()


MODELS = {
    "resnet50": (ResNet, nn.TensorSpec([None, 3, 224, 224], "f32")),
    "gpt2": (GPT2, nn.TensorSpec([None, None], "i64")),
    "bert": (Bert, nn.TensorSpec([None, None], "i64")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("checkpoint", nargs="?", help="a .safetensors file of the PyTorch model")
    options = parser.parse_args()
    make, spec = MODELS[options.model]
    model = make().eval()
    if options.checkpoint:
        model.load_state_dict(options.checkpoint)
    start = time.perf_counter()
    module = flambeau.trace(model, spec)
    traced = time.perf_counter()
    run = flambeau.load(flambeau.compile(module))
    compiled = time.perf_counter()
    x = np.ones((1, 3, 224, 224), np.float32) if options.model == "resnet50" else np.arange(16)[None]
    result = run(x)
    print(f"traced in {traced - start:.2f} s, compiled in {compiled - traced:.1f} s")
    for array in result if isinstance(result, (list, tuple)) else [result]:
        print(array.shape, array.dtype, array.ravel()[:4])


if __name__ == "__main__":
    main()
