"""Types of ops that are others by another name."""

from __future__ import annotations

from flambeau.dialects.torch.aliases import alias_overloads
from flambeau.infer.rules import INFER_RULES


def _renamed(name: str, real: str) -> None:
    INFER_RULES(name)(lambda *metas: INFER_RULES.rules[real](*metas))


for _name, _real in alias_overloads().items():
    _renamed(_name, _real)
