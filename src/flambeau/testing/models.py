"""The model zoo: nine real architectures, built from their configurations with random weights.

Nothing is downloaded. `MODELS["bert"].build()` is the published shape; `build(small=True)` keeps the architecture and
scales it down (2 layers, width at most 64) for tests that run the whole pipeline in a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
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
        """Build the module in eval mode. Its weights are random and the same each time."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            return self.make(small).eval()

    def inputs(self, batch: int = 1, sequence: int = 128, *, small: bool = False) -> dict[str, Tensor]:
        """Make example keyword arguments of `forward`; `sequence` has no effect on images and audio."""
        return self.make_inputs(batch, sequence, small)

    def dynamic_shapes(self, *, batch: bool = True, sequence: bool = True) -> dict[str, dict[int, Any]]:
        """Make the `dynamic_shapes` of `torch.export.export`: the batch and, for text, the sequence length may vary.

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


def _of(family: str, head: str, shape: Mapping[str, Any], small: Mapping[str, Any]) -> Callable[[bool], nn.Module]:
    """Make a builder of the model `family + head` of transformers.

    `shape` is what differs from the defaults of the configuration, `small` what differs from both when scaled down.
    """

    def make(is_small: bool) -> nn.Module:
        config = getattr(import_module("transformers"), f"{family}Config")
        home = import_module(config.__module__.replace("configuration", "modeling"))
        found: nn.Module = getattr(home, family + head)(config(**{**shape, **(small if is_small else {})}))
        return found

    return make


_SHALLOW = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
_SMALL_OPT = _SHALLOW | {
    "word_embed_proj_dim": 64, "ffn_dim": 128, "vocab_size": SMALL_VOCABULARY, "max_position_embeddings": MAX_SEQUENCE,
}  # fmt: skip
_SMALL_BERT = _SHALLOW | {"intermediate_size": 128, "vocab_size": SMALL_VOCABULARY}
_SMALL_GPT2 = {
    "n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": MAX_SEQUENCE, "vocab_size": SMALL_VOCABULARY,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
_LLAMA = {
    "num_hidden_layers": 4, "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16,
    "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 2048,
}  # fmt: skip
"""TinyLlama's proportions at half its width: grouped-query attention, heads of 64."""
_SMALL_T5 = {
    "num_layers": 2, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4, "vocab_size": SMALL_VOCABULARY,
}  # fmt: skip
_SMALL_VIT = _SHALLOW | {"intermediate_size": 128, "image_size": SMALL_IMAGE, "patch_size": 8, "num_labels": 10}
_SMALL_RESNET = {"embedding_size": 8, "hidden_sizes": [16, 32], "depths": [2, 2], "num_labels": 10}
_SMALL_CONVNEXT = {"num_stages": 2, "hidden_sizes": [16, 32], "depths": [1, 1], "num_labels": 10}
_SMALL_WHISPER = {
    "encoder_layers": 2, "d_model": 64, "encoder_attention_heads": 4, "encoder_ffn_dim": 128,
    "max_source_positions": 50,
}  # fmt: skip

# The defaults of the configurations are OPT-125M, BERT-base, GPT-2 of 124M parameters, T5-small, ViT-base with patches
# of 16, ResNet-50, ConvNeXt-tiny and Whisper-tiny.
_opt = _of("OPT", "ForCausalLM", {}, _SMALL_OPT)
_bert = _of("Bert", "Model", {}, _SMALL_BERT)
_gpt2 = _of("GPT2", "LMHeadModel", {}, _SMALL_GPT2)
_llama = _of("Llama", "ForCausalLM", _LLAMA, _SMALL_BERT | {"num_key_value_heads": 2})
_t5 = _of("T5", "ForConditionalGeneration", {"decoder_start_token_id": 0}, _SMALL_T5)
_vit = _of("ViT", "ForImageClassification", {"num_labels": 1000}, _SMALL_VIT)
_resnet = _of("ResNet", "ForImageClassification", {"num_labels": 1000}, _SMALL_RESNET)
_convnext = _of("ConvNext", "ForImageClassification", {"num_labels": 1000}, _SMALL_CONVNEXT)
_whisper = _of("Whisper", "Encoder", {}, _SMALL_WHISPER)


def _token_ids(vocabulary: int) -> Callable[[int, int, bool], dict[str, Tensor]]:
    """Make the inputs of a model of text with so many tokens, from batch size, sequence length and `small`."""
    return lambda batch, sequence, small: {"input_ids": _ids(batch, sequence, _vocabulary(vocabulary, small))}


def _bert_inputs(batch: int, sequence: int, small: bool) -> dict[str, Tensor]:
    return _masked(_ids(batch, sequence, _vocabulary(30522, small)))


def _t5_inputs(batch: int, sequence: int, small: bool) -> dict[str, Tensor]:
    ids = _ids(batch, sequence, _vocabulary(32128, small))
    return {"input_ids": ids, "decoder_input_ids": ids.flip(1)}


def _whisper_inputs(batch: int, sequence: int, small: bool) -> dict[str, Tensor]:
    import torch

    return {"input_features": torch.randn(batch, 80, 100 if small else 3000, generator=_generator())}


MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model("opt-125m", _opt, _token_ids(50272), is_text=True),
        Model("bert-base", _bert, _bert_inputs, is_text=True),
        Model("gpt2", _gpt2, _token_ids(50257), is_text=True),
        Model("llama-4l", _llama, _token_ids(32000), is_text=True),
        Model("t5-small", _t5, _t5_inputs, is_text=True),
        Model("vit-base", _vit, _image, is_text=False),
        Model("resnet-50", _resnet, _image, is_text=False),
        Model("convnext-tiny", _convnext, _image, is_text=False),
        Model("whisper-tiny-encoder", _whisper, _whisper_inputs, is_text=False),
    )
}
