"""Run a program by the passes and the execution engine of the torch-mlir wheel, which lower tm_tensor to loops."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

import flambeau

PASSES = (
    "func.func(tm-tensor-bufferize)",
    "one-shot-bufferize{copy-before-write bufferize-function-boundaries "
    "function-boundary-type-conversion=identity-layout-map}",
    "func.func(tm-tensor-to-loops)",
    "func.func(refback-munge-memref-copy)",
    "func.func(convert-linalg-to-loops)",
    "func.func(lower-affine)",
    "convert-scf-to-cf",
    "func.func(llvm-request-c-wrappers)",
    "expand-strided-metadata",
    "lower-affine",
    "func.func(refback-expand-ops-for-llvm)",
    "func.func(arith-expand)",
    "convert-math-to-llvm",
    "convert-math-to-libm",
    "convert-complex-to-llvm",
    "finalize-memref-to-llvm",
    "convert-cf-to-llvm",
    "convert-func-to-llvm",
    "convert-arith-to-llvm",
    "convert-index-to-llvm",
    "reconcile-unrealized-casts",
)


def parse(text: str) -> Any:
    """Read and verify a program, by real MLIR."""
    pytest.importorskip("torch_mlir")
    from torch_mlir.dialects import torch as torch_dialect
    from torch_mlir.ir import Context, Module
    from torch_mlir.passmanager import PassManager

    with Context() as context:
        torch_dialect.register_dialect(context)
        # A pass that makes ops of tm_tensor loads the dialect, which nothing in Python registers.
        PassManager.parse("builtin.module(func.func(convert-torch-to-tmtensor))").run(Module.parse("").operation)
        return Module.parse(text)


def run(module: flambeau.Module, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Compile a program to machine code, with its weights in the text, and call it."""
    parsed = parse(module.text(weights="literal"))
    from torch_mlir.execution_engine import ExecutionEngine
    from torch_mlir.passmanager import PassManager

    with parsed.context:
        PassManager.parse(f"builtin.module({','.join(PASSES)})").run(parsed.operation)
        engine = ExecutionEngine(parsed, opt_level=0)
    # A memref is passed as 64-bit integers: where it is, twice, an offset, sizes and strides. Results come so too.
    held = [x.contiguous() for x in inputs]
    arguments = [_numbers([x.data_ptr(), x.data_ptr(), 0, *x.shape, *x.stride()]) for x in held]
    specs = module.signatures["main"].results
    results = _numbers([0] * sum(3 + 2 * len(spec.shape) for spec in specs))
    engine.invoke("main", *(ctypes.pointer(ctypes.pointer(a)) for a in (results, *arguments)))
    found, at = [], 0
    for spec in specs:
        rank = len(spec.shape)
        _, start, _, *sizes = results[at : at + 3 + rank]
        at += 3 + 2 * rank
        dtype = getattr(torch, spec.dtype.name)
        like = torch.empty(sizes, dtype=dtype)
        if like.numel():
            ctypes.memmove(like.data_ptr(), start, like.numel() * like.element_size())
        found.append(like)
    return found


def _numbers(values: list[int]) -> Any:
    return (ctypes.c_int64 * len(values))(*values)
