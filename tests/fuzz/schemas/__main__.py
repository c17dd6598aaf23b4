"""`python -m fuzz.schemas`: random calls of every overload that we have a rule for."""

from __future__ import annotations

import sys

from fuzz import campaign


def main(arguments: list[str]) -> int:
    """Without an engine, or on IREE by the target that `--target` names."""
    if "--target" not in arguments:
        return campaign.main(
            "schemas", "fuzz.schemas.check:check_seed", arguments, seconds=60, chunk=200, count=200_000
        )
    at = arguments.index("--target")
    target = arguments[at + 1]
    rest = [*arguments[:at], *arguments[at + 2 :]]
    check = f"fuzz.schemas.engine:check_{target.replace('-', '_')}"
    return campaign.main(f"schemas.{target}", check, rest, seconds=600, chunk=40, count=5_000)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
