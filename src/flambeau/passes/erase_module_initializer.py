"""EraseModuleInitializer: an initialiser that initialises nothing goes."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from flambeau.ir.builder import erase
from flambeau.ir.module_pass import TorchPass
from flambeau.passes.symbol_dce import find_initializer


def erase_module_initializer(module: ModuleOp) -> ModuleOp:
    """Erase the module's initialiser, in place, if there is no slot left for it."""
    initializer = find_initializer(module)
    if initializer is not None and not initializer.initialization.operands:
        erase(initializer)
    return module


class EraseModuleInitializer(TorchPass):
    """Remove an initialiser without slots."""

    name = "torch-erase-module-initializer"
    run = staticmethod(erase_module_initializer)
