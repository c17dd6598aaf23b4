"""Evaluating a program on what is known of its values; passes/evaluate/evaluator.py explains."""
