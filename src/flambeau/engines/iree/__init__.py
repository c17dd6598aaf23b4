"""IREE, the embedded default engine: it compiles for the CPU of this machine and runs in this process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from flambeau.engines.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from flambeau.engines.external import Functions
    from flambeau.engines.iree.executable import IreeExecutable
    from flambeau.ir.module import Signature

__all__ = ["IreeEngine"]


class IreeEngine:
    """Compiles and runs programs with IREE."""

    name = "iree"

    output_types = ("linalg-on-tensors", "stablehlo", "tosa")
    """What it runs, the usual first."""

    device_for_little_work = "local-sync"
    """The device for programs that take less time than it takes to wake other threads."""

    binds_weights = True
    """Whether weights are better the program's own than arguments: IREE packs those once, and these in each call."""

    def compile(
        self,
        module: Any,
        *,
        device: str = "local-task",
        profile: str = "model",
        cache: bool = True,
        functions: Functions | None = None,
    ) -> IreeExecutable:
        """Compile a module whose ops IREE knows.

        `device` is `local-task` (all cores) or `local-sync` (the calling thread, with less overhead on small programs).
        `profile` is `model` (fast code), `quick` (fast compilation) or `host` (IREE's defaults). `cache` keeps and
        reuses artefacts on disk. `functions` are those of Python's that the program calls for its `external` ops, with
        torch tensors, or with arrays where there is no PyTorch.
        """
        try:
            from xdsl.dialects.builtin import ModuleOp

            from flambeau.engines.iree import serial_loops
            from flambeau.engines.iree.compiler import compile_mlir
            from flambeau.engines.iree.executable import IreeExecutable
            from flambeau.engines.iree.external import bind
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
        if isinstance(module.op, ModuleOp) and any(op.name.startswith("tm_tensor.") for op in module.op.walk()):
            raise EngineError(
                "IREE does not take the ops of tm_tensor in linalg-on-tensors: compile without the option tm_tensor, "
                "which gives loops"
            )
        is_ours = isinstance(module.op, ModuleOp)
        bound = bind(module.op, functions or {}) if is_ours else ()
        start = time.perf_counter()
        # A program that is text already, written by hand, is taken as it is.
        prepared = for_iree(module.op) if is_ours else None
        source = str(module.op) if prepared is None else generic_text(prepared)
        flags = serial_loops.flags(prepared) if prepared is not None else ()
        printed = time.perf_counter()
        artefact = compile_mlir(source.encode(), profile=profile, use_cache=cache, extra_flags=flags)
        compiled = time.perf_counter()
        loading: Any = {"device": device, "profile": artefact.profile, "functions": bound}
        executable = IreeExecutable(artefact.vmfb, module.weights, module.signatures, **loading)
        loaded = time.perf_counter()
        executable.timings = {"print": printed - start, "compile": compiled - printed, "load": loaded - compiled}
        return executable

    def pack(self, executable: IreeExecutable) -> bytes:
        """Give what is to be kept of a program, beside its weights and signatures, so that it is not compiled again."""
        from flambeau.engines.iree.packing import packed

        return packed(executable)

    def unpack(
        self, payload: bytes, weights: Mapping[str, Any], signatures: Mapping[str, Signature], **options: Any
    ) -> IreeExecutable | None:
        """Make the program of which this was kept; the options are those of `compile`. None for that of another CPU."""
        from flambeau.engines.iree.packing import unpacked

        return unpacked(payload, weights, signatures, **options)

    def compile_plainly(self, module: Any) -> IreeExecutable:
        """Compile a module in the way that leaves least room for mistakes, to compare other ways with it."""
        return self.compile(module, device="local-sync", profile="quick")
