"""Result shapes and dtypes, for when PyTorch is not there to say."""
