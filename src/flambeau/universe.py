"""What an installed Flambeau adds to `xdsl-opt` and xDSL's other tools: its dialects and its passes.

xDSL takes no name twice. A dialect that it has itself is left to it; a pass that it has one of the same name of goes by
`torch-` and its name there: `torch-canonicalize`.
"""

from __future__ import annotations

from functools import partial

from xdsl.dialects import get_all_dialects
from xdsl.transforms import get_all_passes
from xdsl.universe import Universe

from flambeau.dialects.context import DIALECTS, load_dialect
from flambeau.ir.module_pass import TorchPass
from flambeau.opt import PASSES, get_pass, named


def _renamed(ours: str, theirs: str) -> type[TorchPass]:
    return named(get_pass(ours), theirs)


_TAKEN = get_all_passes()
_NAMES = {f"torch-{name}" if name in _TAKEN else name: name for name in PASSES}

UNIVERSE = Universe(
    all_dialects={
        name: partial(load_dialect, path) for name, path in DIALECTS.items() if name not in get_all_dialects()
    },
    all_passes={theirs: partial(_renamed, ours, theirs) for theirs, ours in _NAMES.items()},
)
"""The entry point of the group `xdsl.universe`."""
