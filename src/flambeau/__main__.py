"""`python -m flambeau`: the command line, where the `flambeau` command is not on the path."""

from __future__ import annotations

from flambeau.cli import main

if __name__ == "__main__":
    main()
