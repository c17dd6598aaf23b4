"""The check, ready to run: the texts are made when this is imported, so that no case has to wait for them."""

from __future__ import annotations

from fuzz.text.check import check_seed, warm

__all__ = ["check_seed"]

warm()
