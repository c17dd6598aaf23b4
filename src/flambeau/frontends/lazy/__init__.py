"""Tensors that record what is computed with them: graphs of ATen ops, cut at step marks and compiled once."""
