"""`python -m fuzz.schemas`: random calls of every overload that we have a rule for."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fuzz import campaign


def _check_the_heap() -> None:
    """Let the C library look at its blocks of memory whenever one is freed: what is written beyond an end is found.

    Worker processes take the settings over. Where there is no such library they do without.
    """
    libraries = sorted(Path("/").glob("lib/*/libc_malloc_debug.so.0"))
    if libraries:
        os.environ |= {"LD_PRELOAD": str(libraries[0]), "MALLOC_CHECK_": "3"}


def main(arguments: list[str]) -> int:
    """Without an engine, or on IREE by the target that `--target` names."""
    if "--target" not in arguments:
        return campaign.main(
            "schemas", "fuzz.schemas.check:check_seed", arguments, seconds=60, chunk=200, count=200_000
        )
    at = arguments.index("--target")
    target = arguments[at + 1]
    rest = [*arguments[:at], *arguments[at + 2 :]]
    _check_the_heap()
    check = f"fuzz.schemas.engine:check_{target.replace('-', '_')}"
    return campaign.main(f"schemas.{target}", check, rest, seconds=600, chunk=40, count=5_000)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
