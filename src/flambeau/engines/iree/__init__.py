"""IREE, the embedded default engine: it compiles for the CPU of this machine and runs in this process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from flambeau.engines.errors import EngineError

if TYPE_CHECKING:
    from flambeau.engines.iree.executable import IreeExecutable

__all__ = ["IreeEngine"]


class IreeEngine:
    """Compiles and runs programs with IREE."""

    name = "iree"

    def compile(
        self, module: Any, *, device: str = "local-task", profile: str = "model", cache: bool = True
    ) -> IreeExecutable:
        """Compile a module whose ops IREE knows.

        `device` is `local-task` (all cores) or `local-sync` (the calling thread, with less overhead on small programs).
        `profile` is `model` (fast code), `quick` (fast compilation) or `host` (IREE's defaults). `cache` keeps and
        reuses artefacts on disk.
        """
        try:
            from xdsl.dialects.builtin import ModuleOp

            from flambeau.engines.iree.compiler import compile_mlir
            from flambeau.engines.iree.executable import IreeExecutable
            from flambeau.engines.iree.prepare import for_iree
            from flambeau.ir.printing import generic_text
        except ImportError as error:
            raise EngineError(
                f"the engine 'iree' needs `pip install iree-base-compiler iree-base-runtime`: {error}"
            ) from error

        if (level := str(getattr(module, "output_type", ""))) in ("raw", "torch"):
            raise EngineError(
                f"IREE runs linalg-on-tensors, stablehlo and tosa, and this module is in the torch dialect ({level}): "
                'lower it first, load(flambeau.compile(module, output_type="linalg-on-tensors"))'
            )
        start = time.perf_counter()
        # A program that is text already, written by hand, is taken as it is.
        source = generic_text(for_iree(module.op)) if isinstance(module.op, ModuleOp) else str(module.op)
        printed = time.perf_counter()
        artefact = compile_mlir(source.encode(), profile=profile, use_cache=cache)
        compiled = time.perf_counter()
        executable = IreeExecutable(
            artefact.vmfb, module.weights, module.signatures, device=device, profile=artefact.profile
        )
        loaded = time.perf_counter()
        executable.timings = {"print": printed - start, "compile": compiled - printed, "load": loaded - compiled}
        return executable

    def compile_plainly(self, module: Any) -> IreeExecutable:
        """Compile a module in the way that leaves least room for mistakes, to compare other ways with it."""
        return self.compile(module, device="local-sync", profile="quick")
