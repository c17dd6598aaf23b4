"""What the tests of MaximizeValueSemantics share."""

from __future__ import annotations

from collections.abc import Callable

PASS = "torch-reduce-op-variants,torch-maximize-value-semantics,dce"
Check = Callable[[str, str], None]
