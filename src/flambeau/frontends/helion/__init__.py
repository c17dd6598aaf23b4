"""Helion: single nodes of its Device IR, and whole kernels."""

from flambeau.frontends.helion.inlining import TextBuilder, inline, inline_text
from flambeau.frontends.helion.nodes import NodeImporter, inputs_of, normalize_node, synthesize_tensor_meta

__all__ = [
    "NodeImporter",
    "TextBuilder",
    "inline",
    "inline_text",
    "inputs_of",
    "normalize_node",
    "synthesize_tensor_meta",
]
