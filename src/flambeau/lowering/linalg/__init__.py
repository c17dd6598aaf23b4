"""linalg-on-tensors: the rules, by op family."""
