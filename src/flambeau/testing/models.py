"""The model zoo: nine real architectures, built from their configurations with random weights.

Nothing is downloaded. `MODELS["bert"].build()` is the published shape; `build(small=True)` keeps the architecture and
scales it down (2 layers, width at most 64) for tests that run the whole pipeline in a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

SEED = 0
MAX_BATCH = 64
MAX_SEQUENCE = 512
"""The longest sequence that every text model takes: BERT's table of positions has 512 rows."""
SMALL_VOCABULARY = 128
SMALL_IMAGE = 32


@dataclass(frozen=True)
class Model:
    """One architecture: how to build it, what to feed it, and which of its dimensions may vary."""

    name: str
    make: Callable[[bool], nn.Module]
    """Makes the module; the argument asks for the scaled-down variant."""
    make_inputs: Callable[[int, int, bool], dict[str, Tensor]]
    """Makes the keyword arguments of `forward` for a batch, a sequence length and a variant."""
    is_text: bool

    def build(self, *, small: bool = False) -> nn.Module:
        """The module in eval mode. Its weights are random and the same each time."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return self.make(small).eval()

    def inputs(self, batch: int = 1, sequence: int = 128, *, small: bool = False) -> dict[str, Tensor]:
        """Example keyword arguments of `forward`; `sequence` has no effect on images and audio."""
        return self.make_inputs(batch, sequence, small)

    def dynamic_shapes(self, *, batch: bool = True, sequence: bool = True) -> dict[str, dict[int, Any]]:
        """The `dynamic_shapes` of `torch.export.export`: the batch and, for text, the sequence length may vary.

        All arguments share one batch and one sequence length. Export with examples of at least 2 in each dimension that
        varies: PyTorch specialises on 0 and 1.
        """
        from torch.export import Dim

        dims: dict[int, Any] = {}
        if batch:
            dims[0] = Dim("batch", min=1, max=MAX_BATCH)
        if sequence and self.is_text:
            dims[1] = Dim("sequence", min=2, max=MAX_SEQUENCE)
        return {name: dict(dims) for name in self.inputs(2, 2, small=True)}


def _generator() -> Any:
    import torch

    return torch.Generator().manual_seed(SEED)


def _ids(batch: int, sequence: int, vocabulary: int) -> Tensor:
    import torch

    # The first few ids are padding and other special tokens, which some models treat apart.
    return torch.randint(4, vocabulary, (batch, sequence), generator=_generator())


def _vocabulary(size: int, small: bool) -> int:
    return SMALL_VOCABULARY if small else size


def _image(batch: int, sequence: int, small: bool) -> dict[str, Tensor]:
    import torch

    side = SMALL_IMAGE if small else 224
    return {"pixel_values": torch.randn(batch, 3, side, side, generator=_generator())}


def _masked(ids: Tensor) -> dict[str, Tensor]:
    import torch

    mask = torch.ones_like(ids)
    mask[1:, -1] = 0  # All rows but the first end in one padding token.
    return {"input_ids": ids, "attention_mask": mask}


def _opt(small: bool) -> nn.Module:
    from transformers import OPTConfig, OPTForCausalLM

    shape: dict[str, Any] = {}  # The defaults are OPT-125M.
    if small:
        shape = {
            "num_hidden_layers": 2,
            "hidden_size": 64,
            "word_embed_proj_dim": 64,
            "ffn_dim": 128,
            "num_attention_heads": 4,
            "vocab_size": SMALL_VOCABULARY,
            "max_position_embeddings": MAX_SEQUENCE,
        }
    return OPTForCausalLM(OPTConfig(**shape))


def _bert(small: bool) -> nn.Module:
    from transformers import BertConfig, BertModel

    shape: dict[str, Any] = {}  # The defaults are BERT-base.
    if small:
        shape = {
            "num_hidden_layers": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "vocab_size": SMALL_VOCABULARY,
        }
    return BertModel(BertConfig(**shape))


def _gpt2(small: bool) -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    shape: dict[str, Any] = {}  # The defaults are GPT-2, 124M parameters.
    if small:
        shape = {
            "n_layer": 2,
            "n_embd": 64,
            "n_head": 4,
            "n_positions": MAX_SEQUENCE,
            "vocab_size": SMALL_VOCABULARY,
            "bos_token_id": 0,
            "eos_token_id": 0,
        }
    return GPT2LMHeadModel(GPT2Config(**shape))


def _llama(small: bool) -> nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    # TinyLlama's proportions at half its width: grouped-query attention, heads of 64.
    shape: dict[str, Any] = {
        "num_hidden_layers": 4,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    }
    if small:
        shape |= {
            "num_hidden_layers": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": SMALL_VOCABULARY,
        }
    return LlamaForCausalLM(LlamaConfig(**shape))


def _t5(small: bool) -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    shape: dict[str, Any] = {"decoder_start_token_id": 0}  # The other defaults are T5-small.
    if small:
        shape |= {
            "num_layers": 2,
            "d_model": 64,
            "d_kv": 16,
            "d_ff": 128,
            "num_heads": 4,
            "vocab_size": SMALL_VOCABULARY,
        }
    return T5ForConditionalGeneration(T5Config(**shape))


def _vit(small: bool) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    shape: dict[str, Any] = {"num_labels": 1000}  # The other defaults are ViT-base, patches of 16.
    if small:
        shape |= {
            "num_hidden_layers": 2,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_attention_heads": 4,
            "image_size": SMALL_IMAGE,
            "patch_size": 8,
            "num_labels": 10,
        }
    return ViTForImageClassification(ViTConfig(**shape))


def _resnet(small: bool) -> nn.Module:
    from transformers import ResNetConfig, ResNetForImageClassification

    shape: dict[str, Any] = {"num_labels": 1000}  # The other defaults are ResNet-50.
    if small:
        shape |= {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [2, 2], "num_labels": 10}
    return ResNetForImageClassification(ResNetConfig(**shape))


def _convnext(small: bool) -> nn.Module:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    shape: dict[str, Any] = {"num_labels": 1000}  # The other defaults are ConvNeXt-tiny.
    if small:
        shape |= {"num_stages": 2, "hidden_sizes": [16, 32], "depths": [1, 1], "num_labels": 10}
    return ConvNextForImageClassification(ConvNextConfig(**shape))


def _whisper(small: bool) -> nn.Module:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    shape: dict[str, Any] = {}  # The defaults are Whisper-tiny.
    if small:
        shape = {"encoder_layers": 2, "d_model": 64, "encoder_attention_heads": 4, "encoder_ffn_dim": 128}
        shape["max_source_positions"] = 50
    return WhisperEncoder(WhisperConfig(**shape))


def _opt_inputs(batch: int, sequence: int, small: bool) -> dict[str, Tensor]:
    return {"input_ids": _ids(batch, sequence, _vocabulary(50272, small))}


def _bert_inputs(batch: int, sequence: int, small: bool) -> dict[str, Tensor]:
    return _masked(_ids(batch, sequence, _vocabulary(30522, small)))


def _gpt2_inputs(batch: int, sequence: int, small: bool) -> dict[str, Tensor]:
    return {"input_ids": _ids(batch, sequence, _vocabulary(50257, small))}


def _llama_inputs(batch: int, sequence: int, small: bool) -> dict[str, Tensor]:
    return {"input_ids": _ids(batch, sequence, _vocabulary(32000, small))}


def _t5_inputs(batch: int, sequence: int, small: bool) -> dict[str, Tensor]:
    ids = _ids(batch, sequence, _vocabulary(32128, small))
    return {"input_ids": ids, "decoder_input_ids": ids.flip(1)}


def _whisper_inputs(batch: int, sequence: int, small: bool) -> dict[str, Tensor]:
    import torch

    return {"input_features": torch.randn(batch, 80, 100 if small else 3000, generator=_generator())}


MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model("opt-125m", _opt, _opt_inputs, is_text=True),
        Model("bert-base", _bert, _bert_inputs, is_text=True),
        Model("gpt2", _gpt2, _gpt2_inputs, is_text=True),
        Model("llama-4l", _llama, _llama_inputs, is_text=True),
        Model("t5-small", _t5, _t5_inputs, is_text=True),
        Model("vit-base", _vit, _image, is_text=False),
        Model("resnet-50", _resnet, _image, is_text=False),
        Model("convnext-tiny", _convnext, _image, is_text=False),
        Model("whisper-tiny-encoder", _whisper, _whisper_inputs, is_text=False),
    )
}
