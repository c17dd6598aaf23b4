"""Architectures of the transformers library, from their configurations: a line each, and nothing is downloaded.

A line names the class of the model; its configuration is the class's own, scaled down by `SMALL` wherever it has a
field of such a name, and then by what the line says.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

from flambeau.testing.zoo.inputs import (
    Maker,
    audio,
    both,
    boxed_tokens,
    cached_ids,
    decoded,
    ids,
    pixels,
    seq2seq,
    series,
    tensors,
    tokens,
    video,
)
from flambeau.testing.zoo.model import Example, ZooModel, seeded

WIDTH, LAYERS, HEADS, FEED_FORWARD, VOCABULARY, POSITIONS, IMAGE = 32, 2, 4, 64, 128, 64, 32


def _fields(value: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), value)


SMALL: Mapping[str, Any] = {
    **_fields(WIDTH, "hidden_size n_embd d_model dim emb_dim embed_dim embedding_size projection_dim lru_width"),
    **_fields(WIDTH, "word_embed_proj_dim attention_hidden_size classifier_proj_size output_hidden_size conv_channels"),
    **_fields(WIDTH, "decoder_hidden_size image_text_hidden_size entity_emb_size pooler_output_size"),
    **_fields(LAYERS, "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers"),
    **_fields(LAYERS, "num_encoder_layers num_decoder_layers encoder_num_hidden_layers decoder_num_hidden_layers"),
    **_fields(HEADS, "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads"),
    **_fields(HEADS, "encoder_num_attention_heads decoder_num_attention_heads"),
    **_fields(HEADS, "num_encoder_attention_heads num_decoder_attention_heads num_local_experts num_experts"),
    **_fields(HEADS, "n_routed_experts"),
    **_fields(2, "num_key_value_heads num_kv_heads encoder_num_key_value_heads decoder_num_key_value_heads"),
    **_fields(2, "num_experts_per_tok"),
    **_fields(WIDTH // HEADS, "head_dim d_head d_kv attention_head_size qk_nope_head_dim qk_rope_head_dim v_head_dim"),
    **_fields(FEED_FORWARD, "intermediate_size n_inner d_inner ffn_dim d_ff dff encoder_ffn_dim decoder_ffn_dim"),
    **_fields(FEED_FORWARD, "hidden_dim ffn_hidden_size decoder_intermediate_size"),
    **_fields(WIDTH, "moe_intermediate_size shared_expert_intermediate_size"),
    **_fields(VOCABULARY, "vocab_size src_vocab_size tgt_vocab_size entity_vocab_size"),
    **_fields(POSITIONS, "max_position_embeddings n_positions n_ctx max_seq_len max_2d_position_embeddings"),
    **_fields(POSITIONS, "max_source_positions max_target_positions"),
    **_fields(POSITIONS, "max_encoder_position_embeddings max_decoder_position_embeddings"),
    **_fields(4, "sliding_window attention_window_size"),  # Shorter than the inputs, or it does nothing.
    "image_size": IMAGE,
    "patch_size": 8,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 4,
    "pad_token_id": 0,
    "use_cache": False,
}


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    model: str
    """The model's class."""
    inputs: Maker
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """What the configuration has besides `SMALL`, or instead."""
    tags: str = ""
    tolerance: float = 1e-4


def small(config_class: Any, own: Mapping[str, Any]) -> Any:
    """Scale a configuration down; `own` overrides its fields, and those of the configurations in it."""
    from transformers import CONFIG_MAPPING

    default = config_class()
    chosen: dict[str, Any] = {}
    for field in dataclasses.fields(config_class):
        value = getattr(default, field.name, None)
        if field.name in config_class.sub_configs and value is not None:
            inner = dict(own.get(field.name, {}))
            kind = inner.pop("model_type", None)
            chosen[field.name] = small(CONFIG_MAPPING[kind] if kind else type(value), inner)
        elif field.name in SMALL and (value is None or isinstance(value, int)):
            chosen[field.name] = SMALL[field.name]
        elif field.name.endswith("_token_id") and isinstance(value, int) and value >= VOCABULARY:
            chosen[field.name] = VOCABULARY - 1
    return config_class(**chosen | {k: v for k, v in own.items() if k not in config_class.sub_configs})


def make(row: Row) -> Example:
    import transformers

    model_class = getattr(transformers, row.model)

    def build() -> Example:
        config = small(model_class.config_class, row.config)
        return model_class(config), (), row.inputs(config)

    return seeded(row.name, build)


def models() -> Iterator[ZooModel]:
    for family, rows in TABLE.items():
        for row in rows:
            tags = frozenset({"transformers", *row.tags.split()})
            yield ZooModel(row.name, family, functools.partial(make, row), tags, row.tolerance)


def _stages(stages: int = 2, **more: Any) -> dict[str, Any]:
    """Configure a vision model with few stages, narrow and shallow."""
    return {"hidden_sizes": [16, 32, 32, 32][:stages], "depths": [1] * stages, **more}


_WINDOWS = {"embed_dim": 16, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4, "patch_size": 4}
_RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
_WAVES = {"conv_dim": [16, 16], "conv_kernel": [10, 3], "conv_stride": [5, 2], "apply_spec_augment": False}
_PYRAMID = _stages(2, num_encoder_blocks=2, num_attention_heads=[1, 2], mlp_ratios=[2, 2], strides=[4, 2])
_LATENT = {"kv_lora_rank": 16, "q_lora_rank": 16, "n_group": 2, "topk_group": 1, "num_key_value_heads": HEADS}
_FORECAST = {"prediction_length": 4, "context_length": 16, "num_time_features": 2}
_STAGES = ["stage1", "stage2", "stage3", "stage4"]
_RESNET = {"backbone_config": _stages(4, model_type="resnet", embedding_size=16, out_features=_STAGES)}

TABLE: Mapping[str, tuple[Row, ...]] = {
    "text-encoder": (
        Row("bert", "BertModel", tokens()),
        Row("roberta", "RobertaModel", tokens()),
        Row("albert", "AlbertModel", tokens()),
        Row("distilbert", "DistilBertModel", tokens()),
        Row("electra", "ElectraModel", tokens()),
        Row("mpnet", "MPNetModel", tokens()),
        Row("deberta", "DebertaModel", tokens(), _RELATIVE),
        Row("deberta-v2", "DebertaV2Model", tokens(), _RELATIVE | {"position_buckets": 4, "share_att_key": True}),
        Row("camembert", "CamembertForMaskedLM", tokens()),
        Row("xlm", "XLMModel", tokens()),
        Row("funnel", "FunnelModel", tokens(), {"block_sizes": [1, 1]}),
        Row("big-bird", "BigBirdModel", tokens(32), {"block_size": 2, "num_random_blocks": 1}),
        Row("convbert", "ConvBertModel", tokens()),
        Row("squeezebert", "SqueezeBertModel", tokens()),
        Row("layoutlm", "LayoutLMModel", boxed_tokens()),
        Row("modernbert", "ModernBertForMaskedLM", tokens(), {"local_attention": 4}),
        Row("fnet", "FNetModel", ids(), tags="fft"),
        Row("mobilebert", "MobileBertModel", tokens(), {"intra_bottleneck_size": 16}),
        Row("roformer", "RoFormerModel", tokens()),
        Row("canine", "CanineModel", tokens(16), {"num_hash_buckets": 64, "local_transformer_stride": 4}),
        Row("xlnet", "XLNetModel", tokens(), {"mem_len": None}),
        Row("ibert", "IBertModel", tokens()),
        Row("esm", "EsmModel", tokens(), {"position_embedding_type": "rotary"}),
        Row("nomic-bert", "NomicBertModel", tokens()),
        Row("luke", "LukeModel", tokens()),
        Row("lilt", "LiltModel", boxed_tokens(), {"hidden_size": 48}),
        Row("xlm-roberta-xl", "XLMRobertaXLModel", tokens()),
        Row("perceiver", "PerceiverForMaskedLM", tokens(), {"num_latents": 8, "d_latents": 32, "vocab_size": 128}),
    ),
    "decoder": (
        Row("gpt2", "GPT2LMHeadModel", ids()),
        Row("gpt2-cache", "GPT2LMHeadModel", ids(), {"use_cache": True}, "cache"),
        Row("gpt-neo", "GPTNeoForCausalLM", ids(), {"attention_types": [[["global", "local"], 1]], "window_size": 4}),
        Row("gpt-neox", "GPTNeoXForCausalLM", ids()),
        Row("gptj", "GPTJForCausalLM", ids(), {"rotary_dim": 4}),
        Row("gpt-bigcode", "GPTBigCodeForCausalLM", ids()),
        Row("opt", "OPTForCausalLM", tokens()),
        Row("bloom", "BloomForCausalLM", tokens()),
        Row("llama", "LlamaForCausalLM", ids()),
        Row("llama-cache", "LlamaForCausalLM", cached_ids(), {"use_cache": True}, "cache"),
        Row("mistral", "MistralForCausalLM", ids()),
        Row("mistral-cache", "MistralForCausalLM", ids(), {"use_cache": True}, "cache"),
        Row("qwen2", "Qwen2ForCausalLM", ids()),
        Row("qwen3", "Qwen3ForCausalLM", ids()),
        Row("gemma", "GemmaForCausalLM", ids()),
        Row("gemma2", "Gemma2ForCausalLM", ids()),
        Row("gemma3", "Gemma3ForCausalLM", ids()),
        Row("phi", "PhiForCausalLM", ids()),
        Row("phi3", "Phi3ForCausalLM", ids()),
        Row("falcon", "FalconForCausalLM", ids()),
        Row(
            "falcon-alibi", "FalconForCausalLM", tokens(), {"alibi": True, "multi_query": False, "num_kv_heads": HEADS}
        ),
        Row("stablelm", "StableLmForCausalLM", ids()),
        Row("starcoder2", "Starcoder2ForCausalLM", ids()),
        Row("olmo", "OlmoForCausalLM", ids()),
        Row("olmo2", "Olmo2ForCausalLM", ids()),
        Row("mpt", "MptForCausalLM", ids()),
        Row("codegen", "CodeGenForCausalLM", ids(), {"rotary_dim": 4}),
        Row("persimmon", "PersimmonForCausalLM", ids()),
        Row("cohere", "CohereForCausalLM", ids()),
        Row("cohere2", "Cohere2ForCausalLM", ids(), {"layer_types": ["sliding_attention", "full_attention"]}),
        Row("granite", "GraniteForCausalLM", ids()),
        Row("xglm", "XGLMForCausalLM", tokens()),
        Row("biogpt", "BioGptForCausalLM", tokens()),
        Row("ctrl", "CTRLLMHeadModel", ids()),
        Row("glm4", "Glm4ForCausalLM", ids(), {"eos_token_id": 2}),
        Row("nemotron", "NemotronForCausalLM", ids()),
        Row("bitnet", "BitNetForCausalLM", ids()),
        Row("diffllama", "DiffLlamaForCausalLM", ids()),
        Row("imagegpt", "ImageGPTForCausalImageModeling", ids()),
    ),
    "moe": (
        Row("mixtral", "MixtralForCausalLM", ids(), {"sliding_window": None}, "moe"),
        Row("qwen2-moe", "Qwen2MoeForCausalLM", ids(), {}, "moe"),
        Row("olmoe", "OlmoeForCausalLM", ids(), {}, "moe"),
        Row("granitemoe", "GraniteMoeForCausalLM", ids(), {}, "moe"),
        Row("deepseek-v3", "DeepseekV3ForCausalLM", ids(), _LATENT | {"first_k_dense_replace": 1}, "moe"),
        Row("gpt-oss", "GptOssForCausalLM", ids(), {}, "moe"),
        Row("switch-transformers", "SwitchTransformersModel", seq2seq(), {}, "moe"),
    ),
    "recurrent": (
        Row("mamba", "MambaForCausalLM", ids(), {"state_size": 8}),
        Row("mamba2", "Mamba2ForCausalLM", ids(), {"state_size": 8, "num_heads": 8, "n_groups": 2, "chunk_size": 4}),
        Row("falcon-mamba", "FalconMambaForCausalLM", ids(), {"state_size": 8}),
        Row("rwkv", "RwkvForCausalLM", ids(), {"context_length": 64}),
        Row("recurrent-gemma", "RecurrentGemmaForCausalLM", ids(), {"block_types": ["recurrent", "attention"]}),
        Row("lfm2", "Lfm2ForCausalLM", ids(), {"layer_types": ["conv", "full_attention"], "block_multiple_of": 8}),
    ),
    "encoder-decoder": (
        Row("t5", "T5ForConditionalGeneration", seq2seq()),
        Row("t5-cache", "T5ForConditionalGeneration", seq2seq(), {"use_cache": True}, "cache"),
        Row("umt5", "UMT5ForConditionalGeneration", seq2seq()),
        Row("longt5", "LongT5Model", seq2seq(), {"local_radius": 3}),
        Row("bart", "BartForConditionalGeneration", seq2seq()),
        Row("mbart", "MBartForConditionalGeneration", seq2seq()),
        Row("marian", "MarianMTModel", seq2seq()),
        Row("pegasus", "PegasusForConditionalGeneration", seq2seq()),
        Row("blenderbot", "BlenderbotForConditionalGeneration", seq2seq()),
        Row("m2m-100", "M2M100ForConditionalGeneration", seq2seq()),
        Row("prophetnet", "ProphetNetForConditionalGeneration", seq2seq()),
    ),
    "speech": (
        Row(
            "whisper",
            "WhisperForConditionalGeneration",
            both(tensors(input_features=(80, 100)), decoded()),
            {"max_source_positions": 50},
        ),
        Row(
            "speech-to-text",
            "Speech2TextForConditionalGeneration",
            both(tensors(input_features=(24, 16)), decoded()),
            {"input_feat_per_channel": 16},
        ),
        Row("wav2vec2", "Wav2Vec2Model", audio(), _WAVES),
        Row("hubert", "HubertModel", audio(), _WAVES),
        Row("wavlm", "WavLMModel", audio(), _WAVES),
        Row("unispeech", "UniSpeechModel", audio(), _WAVES),
        Row("sew", "SEWModel", audio(), _WAVES),
        Row("data2vec-audio", "Data2VecAudioModel", audio(), _WAVES),
        Row("wav2vec2-conformer", "Wav2Vec2ConformerModel", audio(), _WAVES),
        Row(
            "audio-spectrogram-transformer",
            "ASTModel",
            tensors(input_values=(24, 16)),
            {"max_length": 24, "num_mel_bins": 16, "frequency_stride": 8, "time_stride": 8},
        ),
        Row(
            "dac",
            "DacModel",
            tensors(input_values=(1, 64)),
            {
                "encoder_hidden_size": 8,
                "downsampling_ratios": [2, 4],
                "decoder_hidden_size": 32,
                "upsampling_ratios": [4, 2],
                "n_codebooks": 2,
                "codebook_size": 16,
            },
        ),
    ),
    "vision": (
        Row("vit", "ViTForImageClassification", pixels()),
        Row("deit", "DeiTModel", pixels()),
        Row("swin", "SwinModel", pixels(), _WINDOWS),
        Row("swinv2", "Swinv2Model", pixels(), _WINDOWS | {"pretrained_window_sizes": [0, 0]}),
        Row("beit", "BeitModel", pixels(), {"use_relative_position_bias": True}),
        Row("convnext", "ConvNextModel", pixels(), _stages(num_stages=2, patch_size=4)),
        Row("convnextv2", "ConvNextV2Model", pixels(), _stages(num_stages=2, patch_size=4)),
        Row("resnet", "ResNetForImageClassification", pixels(), _stages(embedding_size=16)),
        Row("regnet", "RegNetForImageClassification", pixels(), _stages(embedding_size=16, groups_width=8)),
        Row("mobilenet-v1", "MobileNetV1Model", pixels(), {"depth_multiplier": 0.125}),
        Row("mobilenet-v2", "MobileNetV2Model", pixels(), {"depth_multiplier": 0.125}),
        Row(
            "efficientnet",
            "EfficientNetModel",
            pixels(),
            {
                "width_coefficient": 0.5,
                "depth_coefficient": 0.5,
                "kernel_sizes": [3, 5],
                "in_channels": [32, 16],
                "out_channels": [16, 24],
                "strides": [1, 2],
                "num_block_repeats": [1, 2],
                "expand_ratios": [1, 4],
                "hidden_dim": 640,
            },
        ),
        Row(
            "levit",
            "LevitModel",
            pixels(64),
            _stages(3, num_attention_heads=[2, 2, 2], key_dim=[8, 8, 8], image_size=64, patch_size=16),
        ),
        Row(
            "poolformer",
            "PoolFormerModel",
            pixels(),
            _stages(num_encoder_blocks=2, patch_sizes=[7, 3], strides=[4, 2], padding=[2, 1]),
        ),
        Row("pvt", "PvtModel", pixels(), _PYRAMID | {"sequence_reduction_ratios": [4, 1], "patch_sizes": [4, 2]}),
        Row("pvt-v2", "PvtV2Model", pixels(), _PYRAMID | {"sr_ratios": [4, 2], "patch_sizes": [7, 3]}),
        Row(
            "segformer",
            "SegformerForSemanticSegmentation",
            pixels(),
            _PYRAMID | {"sr_ratios": [4, 2], "patch_sizes": [7, 3]},
        ),
        Row(
            "dpt",
            "DPTForDepthEstimation",
            pixels(),
            {
                "num_hidden_layers": 4,
                "backbone_out_indices": [0, 1, 2, 3],
                "neck_hidden_sizes": [8, 8, 16, 16],
                "fusion_hidden_size": 16,
            },
        ),
        Row(
            "cvt",
            "CvtModel",
            pixels(),
            {"embed_dim": [16, 32, 32], "num_heads": [1, 2, 2], "depth": [1, 2, 3]},
        ),
        Row(
            "focalnet",
            "FocalNetModel",
            pixels(),
            _stages(embed_dim=16, patch_size=4, focal_levels=[2, 2], focal_windows=[3, 3]),
        ),
        Row("bit", "BitModel", pixels(), _stages(embedding_size=16, num_groups=4)),
        Row(
            "mobilevit",
            "MobileViTModel",
            pixels(64),
            {"hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32], "patch_size": 2},
        ),
        Row("dinov2", "Dinov2Model", pixels()),
        Row(
            "hiera",
            "HieraModel",
            pixels(),
            {
                "embed_dim": 16,
                "image_size": [32, 32],
                "depths": [1, 1],
                "num_heads": [1, 2],
                "num_query_pool": 1,
                "masked_unit_size": [4, 4],
                "masked_unit_attention": [True, False],
            },
        ),
        Row("yolos", "YolosForObjectDetection", pixels(), {"image_size": [32, 32], "num_detection_tokens": 5}),
        Row("upernet", "UperNetForSemanticSegmentation", pixels(64), _RESNET | {"auxiliary_channels": 16}),
        Row("detr", "DetrForObjectDetection", pixels(64), _RESNET | {"num_queries": 5}),
        Row(
            "deformable-detr",
            "DeformableDetrForObjectDetection",
            pixels(64),
            _RESNET | {"num_queries": 5, "encoder_layers": 1, "encoder_n_points": 2, "decoder_n_points": 2},
        ),
        Row("swin2sr", "Swin2SRForImageSuperResolution", pixels(16), _WINDOWS | {"image_size": 16, "patch_size": 1}),
        Row("videomae", "VideoMAEModel", video(), {"num_frames": 4, "image_size": 16}),
        Row("timesformer", "TimesformerModel", video(), {"num_frames": 4, "image_size": 16}),
    ),
    "multimodal": (
        Row("clip", "CLIPModel", both(tokens(), pixels())),
        Row("siglip", "SiglipModel", both(ids(), pixels())),
        Row("blip", "BlipForConditionalGeneration", both(tokens(), pixels())),
        Row(
            "clipseg",
            "CLIPSegForImageSegmentation",
            both(tokens(), pixels()),
            {"extract_layers": [0, 1], "reduce_dim": 16, "decoder_intermediate_size": 32},
        ),
        Row("chinese-clip", "ChineseCLIPModel", both(tokens(), pixels())),
        Row("altclip", "AltCLIPModel", both(tokens(), pixels())),
        Row(
            "layoutlmv3",
            "LayoutLMv3Model",
            both(boxed_tokens(), pixels()),
            {"input_size": 32, "coordinate_size": 6, "shape_size": 4},
        ),
        Row("owlvit", "OwlViTForObjectDetection", both(tokens(), pixels())),
        Row("git", "GitForCausalLM", both(tokens(), pixels())),
    ),
    "time-series": (
        Row("patchtst", "PatchTSTForPrediction", tensors(past_values=(32, 1)), {"patch_length": 8, "patch_stride": 8}),
        Row("patchtsmixer", "PatchTSMixerForPrediction", tensors(past_values=(32, 1))),
        Row("time-series-transformer", "TimeSeriesTransformerModel", series(), _FORECAST),
    ),
}
