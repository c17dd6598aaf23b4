"""Makes the checkpoints beside this file: tiny PyTorch models, an input each, and what PyTorch answers to it.

    python tests/frontends/nn/make_checkpoints.py

With them the frontend is tested where PyTorch is not installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "checkpoints"
SHAPES: dict[str, dict[str, Any]] = {
    "resnet50": {"embedding_size": 4, "hidden_sizes": [8, 16], "depths": [1, 2], "num_labels": 5},
    "gpt2": {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 12, "vocab_size": 24},
    "bert": {
        "num_hidden_layers": 2,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_attention_heads": 2,
        "vocab_size": 24,
        "max_position_embeddings": 12,
    },
}
"""The configurations of the models, smaller than in any other test."""


def torch_model(name: str) -> Any:
    """Make the PyTorch model, with random weights."""
    import torch
    from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, ResNetConfig
    from transformers import ResNetForImageClassification as ResNet

    classes = {
        "resnet50": (ResNet, ResNetConfig),
        "gpt2": (GPT2LMHeadModel, GPT2Config),
        "bert": (BertModel, BertConfig),
    }
    model, config = classes[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = model(config(**SHAPES[name])).eval()
        with torch.no_grad():
            for tensor in (*made.parameters(), *(b for n, b in made.named_buffers() if n.endswith("running_mean"))):
                tensor.add_(torch.randn_like(tensor), alpha=0.1)  # biases of zero would hide that they are forgotten
    return made


def torch_results(model: Any, x: Any) -> list[Any]:
    """Run the PyTorch model; return its results as a flat list of tensors."""
    import torch

    with torch.no_grad():
        found = model(x)
    return (
        [found.logits] if getattr(found, "logits", None) is not None else [found.last_hidden_state, found.pooler_output]
    )


def main() -> None:
    import torch
    from safetensors.torch import save_file

    for name in SHAPES:
        model = torch_model(name)
        torch.manual_seed(1)
        x = torch.randn(2, 3, 32, 32) if name == "resnet50" else torch.randint(24, (2, 9))
        tensors = {k: v.clone().contiguous() for k, v in model.state_dict().items()}
        save_file(tensors, FOLDER / f"{name}.safetensors")
        answers = {f"result{i}": r.contiguous() for i, r in enumerate(torch_results(model, x))}
        save_file({"input": x, **answers}, FOLDER / f"{name}.answers.safetensors")


if __name__ == "__main__":
    main()
