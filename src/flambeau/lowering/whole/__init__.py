"""Rules on whole tensors, for targets whose ops take tensors; whole/builder.py explains."""
