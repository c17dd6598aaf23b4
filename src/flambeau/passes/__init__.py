"""Torch dialect to torch dialect."""
