"""Run many mutated texts: `PYTHONPATH=src:tests python -m fuzz.text --count 100000`."""

from __future__ import annotations

import sys

from fuzz import campaign
from fuzz.text.check import describe

if __name__ == "__main__":
    arguments = sys.argv[1:]
    check = "fuzz.text.warm:check_seed"
    sys.exit(campaign.main("text", check, arguments, seconds=120, chunk=200, count=100_000, describe=describe))
