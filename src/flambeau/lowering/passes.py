"""The lowerings as passes; each imports its target's rules when it runs."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from flambeau.ir.module_pass import TorchPass


@dataclass(frozen=True)
class ConvertTorchToLinalg(TorchPass):
    """Lower the backend contract to linalg-on-tensors."""

    name = "convert-torch-to-linalg"

    tm_tensor: bool = False
    """Whether sorts, scans, scatters and attention become ops of torch-mlir's dialect tm_tensor, instead of loops."""

    external: tuple[str, ...] = ()
    """Ops that are left to the engine, `mylib.gate`, or with the name that it has for them, `mylib.gate=symbol`."""

    def __post_init__(self) -> None:
        if not isinstance(self.tm_tensor, bool):
            raise ValueError(f"tm_tensor is true or false, not {self.tm_tensor!r}")

    def run(self, module: ModuleOp) -> ModuleOp:
        from flambeau.lowering.linalg.lower import lower_to_linalg

        return lower_to_linalg(module, self.tm_tensor, self.external)


@dataclass(frozen=True)
class ConvertTorchToStablehlo(TorchPass):
    """Lower the backend contract to StableHLO."""

    name = "convert-torch-to-stablehlo"

    keep: tuple[str, ...] = ()
    """Ops that become composites, as `api.compile` takes them."""
    mesh: tuple[str, ...] = ()
    """The axes of a mesh of devices and their sizes, `data=2`."""
    groups: tuple[str, ...] = ()
    """The axes of the mesh that process groups are along, by the names of the groups: `5=tensor`, `0=data+tensor`."""

    def __post_init__(self) -> None:
        from flambeau.lowering.stablehlo.groups import Groups

        Groups.parse(self.mesh, self.groups)

    external: tuple[str, ...] = ()
    """Ops that are left to the engine, `mylib.gate`, or with the name that it has for them, `mylib.gate=symbol`."""

    def run(self, module: ModuleOp) -> ModuleOp:
        from flambeau.lowering.stablehlo.groups import Groups
        from flambeau.lowering.stablehlo.lower import lower_to_stablehlo

        return lower_to_stablehlo(module, self.keep, self.external, Groups.parse(self.mesh, self.groups))


@dataclass(frozen=True)
class ConvertTorchToTosa(TorchPass):
    """Lower the backend contract to TOSA."""

    name = "convert-torch-to-tosa"

    int64: str = "narrow"
    """`narrow` computes 64-bit integers in 32 bits, `keep` leaves them."""

    external: tuple[str, ...] = ()
    """Ops that are left to the engine, `mylib.gate`, or with the name that it has for them, `mylib.gate=symbol`."""

    def __post_init__(self) -> None:
        if self.int64 not in ("narrow", "keep"):
            raise ValueError(f"int64 is 'narrow' or 'keep', not {self.int64!r}")

    def run(self, module: ModuleOp) -> ModuleOp:
        from flambeau.lowering.tosa.lower import lower_to_tosa

        return lower_to_tosa(module, self.int64, self.external)
