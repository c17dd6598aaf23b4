"""Dialects whose ops are a table with a line for each: StableHLO and TOSA."""
