"""The lowerings as passes; each imports its target's rules when it runs."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from flambeau.ir.module_pass import TorchPass


class ConvertTorchToLinalg(TorchPass):
    """Lower the backend contract to linalg-on-tensors."""

    name = "convert-torch-to-linalg"

    def run(self, module: ModuleOp) -> ModuleOp:
        from flambeau.lowering.linalg.lower import lower_to_linalg

        return lower_to_linalg(module)


@dataclass(frozen=True)
class ConvertTorchToStablehlo(TorchPass):
    """Lower the backend contract to StableHLO."""

    name = "convert-torch-to-stablehlo"

    keep: tuple[str, ...] = ()
    """Ops that become composites, as `api.compile` takes them."""

    def run(self, module: ModuleOp) -> ModuleOp:
        from flambeau.lowering.stablehlo.lower import lower_to_stablehlo

        return lower_to_stablehlo(module, self.keep)


@dataclass(frozen=True)
class ConvertTorchToTosa(TorchPass):
    """Lower the backend contract to TOSA."""

    name = "convert-torch-to-tosa"

    int64: str = "narrow"
    """`narrow` computes 64-bit integers in 32 bits, `keep` leaves them."""

    def __post_init__(self) -> None:
        if self.int64 not in ("narrow", "keep"):
            raise ValueError(f"int64 is 'narrow' or 'keep', not {self.int64!r}")

    def run(self, module: ModuleOp) -> ModuleOp:
        from flambeau.lowering.tosa.lower import lower_to_tosa

        return lower_to_tosa(module, self.int64)
