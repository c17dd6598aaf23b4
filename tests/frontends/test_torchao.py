"""Models that torchao has quantised: whole, by PT2E, and in their weights, as tensors made of others."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import flambeau

warnings.filterwarnings("ignore", module="torchao")
pytestmark = pytest.mark.engine

TARGETS = ["linalg-on-tensors", "stablehlo", "tosa"]


def resnet18() -> nn.Module:
    """Make a ResNet with the blocks of ResNet-18, and fewer channels."""
    import transformers

    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 24, 32], depths=[2, 2, 2, 2], layer_type="basic", num_labels=10
    )
    return transformers.ResNetForImageClassification(config).eval()


def quantized(model: nn.Module, *args: Tensor) -> Any:
    """Quantise a model by PT2E, for integer products."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    prepared = prepare_pt2e(torch.export.export(model, args, strict=False).module(), quantizer)
    with torch.no_grad():
        prepared(*args)
    return convert_pt2e(prepared)


@pytest.mark.parametrize("target", ["linalg-on-tensors", pytest.param("stablehlo", marks=pytest.mark.wide), "tosa"])
def test_a_resnet_by_pt2e(target: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 32, 32)
    model = quantized(resnet18(), x)
    with torch.no_grad():
        module = flambeau.compile(model, (x,), output_type=target)
        actual, expected = flambeau.load(module, profile="quick")(x).logits, model(x).logits
    assert any(w.dtype is torch.int8 for w in module.weights.values())
    # A value between two steps of the quantisation may round to either.
    assert (actual - expected).abs().max() < 0.02 * expected.abs().max()


def llama() -> nn.Module:
    import transformers

    config = transformers.LlamaConfig(
        num_hidden_layers=1, hidden_size=64, intermediate_size=64, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=64, max_position_embeddings=32, use_cache=False, attn_implementation="eager",
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


def weights_of(kind: str) -> Any:
    from torchao import quantization
    from torchao.quantization.granularity import PerGroup

    return {
        "int8": lambda: quantization.Int8WeightOnlyConfig(),
        "int4": lambda: quantization.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
        "float8": lambda: quantization.Float8WeightOnlyConfig(),
        "int8 activations": lambda: quantization.Int8DynamicActivationInt8WeightConfig(),
    }[kind]()


@pytest.mark.usefixtures("_plain_kernels")
@pytest.mark.parametrize("kind", ["int8", "int4", "float8", "int8 activations"])
def test_a_llama_over_small_weights(kind: str) -> None:
    from torchao.quantization import quantize_

    torch.manual_seed(0)
    model, ids = llama(), torch.randint(0, 64, (1, 8))
    quantize_(model.model, weights_of(kind))
    with torch.no_grad():
        module = flambeau.compile(model, kwargs={"input_ids": ids})
        actual = flambeau.load(module, profile="quick")(input_ids=ids).logits
        torch.testing.assert_close(actual, model(input_ids=ids).logits, rtol=2e-3, atol=2e-3)
    small = [name for name, w in module.weights.items() if w.element_size() == 1 and w.numel() > 64]
    assert len(small) == 7, small  # the products of one layer
