"""StableHLO."""
