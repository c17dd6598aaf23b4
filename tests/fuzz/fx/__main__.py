"""`python -m fuzz.fx`: random FX programs, at every stage against eager PyTorch."""

import sys

from fuzz.campaign import main
from fuzz.fx.programs import grow

if __name__ == "__main__":
    sys.exit(
        main(
            "fx",
            "fuzz.fx.check:check_seed",
            sys.argv[1:],
            seconds=120,
            chunk=50,
            count=20_000,
            describe=lambda seed: grow(seed).text(),
        )
    )
