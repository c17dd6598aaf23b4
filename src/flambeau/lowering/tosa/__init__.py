"""Lowering to TOSA 1.0."""
