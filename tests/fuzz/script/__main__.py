"""`python -m fuzz.script`: random TorchScript programs behind every pass; with `--iree`, groups of them on IREE."""

from __future__ import annotations

import sys

from fuzz import campaign
from fuzz.script import seeds


def main(arguments: list[str]) -> int:
    """Run programs by their seeds, or groups of programs by their numbers."""
    if "--iree" in arguments:
        rest = [a for a in arguments if a != "--iree"]
        return campaign.main("script.iree", "fuzz.script.seeds:check_group", rest, seconds=600, chunk=1, count=30)
    return campaign.main(
        "script", "fuzz.script.seeds:check_seed", arguments, seconds=600, count=5000, describe=seeds.describe
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
