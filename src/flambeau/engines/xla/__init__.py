"""XLA, the second engine: StableHLO on the CPU, on GPUs and on many devices, through JAX."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from flambeau.engines.errors import EngineError
from flambeau.engines.own_state import over_own_state

if TYPE_CHECKING:
    from flambeau.engines.external import Functions
    from flambeau.engines.xla.executable import XlaExecutable
    from flambeau.ir.module import Signature

__all__ = ["XlaEngine"]


class XlaEngine:
    """Compiles and runs programs with XLA."""

    name = "xla"

    output_type = "stablehlo"
    """What programs are lowered to for it, where nobody says."""

    output_types = ("stablehlo",)
    """What it runs."""

    takes_sizes = False
    """Whether programs may take sizes as numbers: XLA compiles for known sizes."""

    binds_weights = False
    """Whether weights are better the program's own than arguments: to XLA they are arguments either way."""

    def compile(
        self,
        module: Any,
        *,
        device: str = "cpu",
        mesh: Mapping[str, int] | None = None,
        cache: bool = True,
        checks: bool | Literal["late"] = True,
        tf32: bool | None = None,
        specializations: int = 32,
        functions: Functions | None = None,
        gather: bool = True,
    ) -> XlaExecutable:
        """Compile a module of output type `stablehlo`.

        `device` is `cpu`, `gpu`, or one of several by its number, `gpu:1`. `cache` keeps and reuses artefacts on disk.
        `checks=False` leaves out the program's own checks, such as that indices are in range. `checks="late"` is for
        GPUs, which a call then does not wait for: as with PyTorch's own kernels, what a call failed at is raised
        later, by the next call or by `wait()`. A function of dynamic shapes is compiled for the shapes that it is
        called with, at the first such call; the last `specializations` of them are kept. A module that was compiled
        with a mesh runs on as many devices as that has, or as `mesh` says, with the same axes: all sizes 1 for one
        device. `gather=False` leaves results on their devices that the plan splits: they are arrays of JAX's,
        `jax.Array`. `tf32` says whether GPUs may round the operands of f32 products; PyTorch's own setting decides if
        nobody does (`torch.set_float32_matmul_precision`). `functions` are those of Python's that the program calls
        on a CPU for its `external` ops: with tensors, and numbers by their names.
        """
        try:
            from flambeau.engines.xla.executable import XlaExecutable
            from flambeau.engines.xla.foreign import bind
            from flambeau.engines.xla.programs import Wanted
        except ImportError as error:
            raise EngineError(f"the engine 'xla' needs `pip install jax`: {error}") from error

        if (level := str(getattr(module, "output_type", ""))) != "stablehlo":
            raise EngineError(
                f"XLA runs stablehlo, and this module is {level or 'something else'}: compile it with "
                'output_type="stablehlo"'
            )
        start = time.perf_counter()
        module = over_own_state(module, "XLA")
        exact = not (tf32 if tf32 is not None else _allows_tf32()) and not device.startswith("cpu")
        targets = bind(module.op, functions, device) if functions else {}
        external = tuple(getattr(module, "options", {}).get("external", ()))
        if checks not in (True, False, "late"):
            raise ValueError(f'checks is True, False or "late", not {checks!r}')
        late = checks == "late" and not device.startswith("cpu")
        wanted = Wanted(bool(checks), exact, mesh, targets, external, gather, device.startswith("cpu"), late)
        cache = cache and not targets
        executable = XlaExecutable.of(module, device=device, wanted=wanted, cache=cache, kept=specializations)
        executable.timings["load"] = time.perf_counter() - start - sum(executable.timings.values())
        return executable

    @staticmethod
    def device_of(kind: str, number: int) -> str:
        """Name the device on which PyTorch has a tensor: `gpu:1` for `cuda:1`."""
        return f"{'gpu' if kind == 'cuda' else kind}:{number}"

    def pack(self, executable: XlaExecutable) -> bytes:
        """Give what is to be kept of a program, beside its weights and signatures: what XLA compiles."""
        from flambeau.engines.xla.saving import packed

        return packed(executable)

    def unpack(
        self, payload: bytes, weights: Mapping[str, Any], signatures: Mapping[str, Signature], **options: Any
    ) -> XlaExecutable:
        """Make the program of which this was kept; the options are those of `compile`."""
        from flambeau.engines.xla.saving import unpacked

        return unpacked(payload, weights, signatures, **options)

    def compile_plainly(self, module: Any) -> XlaExecutable:
        """Compile a module in the way that leaves least room for mistakes, to compare other ways with it."""
        return self.compile(module)


def _allows_tf32() -> bool:
    """Tell whether PyTorch lets a GPU round the operands of f32 products; not where there is no PyTorch."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and torch.get_float32_matmul_precision() != "highest"
