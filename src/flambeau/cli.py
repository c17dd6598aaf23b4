"""The `flambeau` command."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the entry point of the console script."""
    try:
        from flambeau.commands import flambeau
    except ImportError as e:
        if e.name not in ("click", "rich"):
            raise
        print("flambeau: the command line needs `pip install flambeau[cli]`", file=sys.stderr)
        sys.exit(2)
    flambeau(prog_name="flambeau")
