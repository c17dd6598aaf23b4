"""A backend for `flambeau cts`, whole: a compiler that takes MLIR text and a runtime that takes numpy arrays.

    flambeau cts --backend examples/backend.py --suite ops --level core

Yours looks like this, and never has to be published. What fails goes into examples/backend.xfail.json with
`--update-xfail`, and from then on only what changes is news.
"""

from importlib.metadata import version

import iree.compiler as iree_compiler
import iree.runtime as iree_runtime
import numpy as np


class Backend:
    name = "example"
    targets = ("linalg-on-tensors",)
    version = version("iree-base-compiler")

    def compile(self, module):
        """Bytes are kept on disk: the same program is compiled once."""
        text = module.text(weights="inline", generic=True)
        return iree_compiler.compile_str(
            text, target_backends=["llvm-cpu"], extra_args=["--iree-llvmcpu-target-cpu=host"]
        )

    def run(self, artefact, function, inputs):
        config = iree_runtime.Config("local-sync")
        context = iree_runtime.SystemContext(config=config)
        context.add_vm_module(iree_runtime.VmModule.copy_buffer(config.vm_instance, artefact))
        results = context.modules.module[function](*inputs)
        results = results if isinstance(results, tuple) else (results,)
        return [np.array(r) if hasattr(r, "shape") else r for r in results]  # copies, while the memory is there
