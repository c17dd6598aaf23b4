"""What IREE 3.13 compiles slowly, and the engine rewrites: `python bench/engine_bugs.py [--check] [-k convolution]`.

Each row calls a program in its slow form and in the plain form that a rewrite in `src/flambeau/engines/iree` gives it:
CPU time, one thread, the least of some calls. Where the slow form takes no more than the bar times the plain one, IREE
is mended on this machine, and the rewrite can go. Bugs that no clock is needed for are in
`tests/engines/test_iree_bugs.py`.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Column, Table

import flambeau
from flambeau.engines.iree import prepare, reduction_tiles, row_products, turned_taps, volume_convolutions
from flambeau.engines.iree.compiler import compile_mlir
from flambeau.engines.iree.runtime import Program
from flambeau.ir import dtypes
from flambeau.ir.module import TensorSpec

Call = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """Two forms of a program: how one is called, and how often the least time is looked for."""

    rewrite: str
    """The file that turns the slow form into the plain one."""
    bar: float
    """The bug is there while the slow form takes more than so many times the plain one."""
    forms: Callable[[], tuple[Call, Call]]
    """Compile both: the slow one, the plain one."""
    calls: int


def seconds(call: Call, calls: int) -> float:
    """Return the least CPU time of a call."""
    times = []
    for _ in range(calls):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)


def from_text(text: str, args: list[Any], shape: tuple[int, ...], profile: str) -> Call:
    """Compile a text as it stands; gives a call that passes these arguments."""
    program = Program(compile_mlir(text.encode(), profile=profile).vmfb, {}, "local-sync")
    return lambda: program.call("main", args, [TensorSpec(shape, dtypes.float32)])


def from_torch(function: Callable[..., Any], *args: torch.Tensor) -> Call:
    """Compile a function as the engine does; gives a call that passes these arguments."""
    run = flambeau.load(flambeau.compile(function, args), device="local-sync")
    return lambda: run(*args)


@contextmanager
def without(left_out: object) -> Iterator[None]:
    """Compile without one of the rewrites."""
    kept = prepare.REWRITES
    prepare.REWRITES = tuple(r for r in kept if r is not left_out)
    try:
        yield
    finally:
        prepare.REWRITES = kept


ROW_CONVOLUTION = """
func.func @main(%x: tensor<1x80xROW1002xf32>, %w: tensor<384x80xROW3xf32>) -> tensor<1x384xROW1000xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<1x384xROW1000xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x384xROW1000xf32>) -> tensor<1x384xROW1000xf32>
  %y = linalg.NAME {strides = dense<1> : tensor<RANKxi64>, dilations = dense<1> : tensor<RANKxi64>}
      ins(%x, %w : tensor<1x80xROW1002xf32>, tensor<384x80xROW3xf32>)
      outs(%init : tensor<1x384xROW1000xf32>) -> tensor<1x384xROW1000xf32>
  return %y : tensor<1x384xROW1000xf32>
}
"""


def convolution_in_one_dimension() -> tuple[Call, Call]:
    def form(name: str, row: tuple[int, ...]) -> Call:
        text = ROW_CONVOLUTION.replace("NAME", name).replace("ROW", "1x" * len(row)).replace("RANK", str(1 + len(row)))
        args = [np.ones((1, 80, *row, 1002), np.float32), np.ones((384, 80, *row, 3), np.float32)]
        return from_text(text, args, (1, 384, *row, 1000), "model")

    return form("conv_1d_ncw_fcw", ()), form("conv_2d_nchw_fchw", (1,))


def row_with_a_matrix() -> tuple[Call, Call]:
    args = torch.ones(1, 1024), torch.ones(1024, 1024)
    with without(row_products.REWRITE):
        packed = from_torch(torch.matmul, *args)
    return packed, from_torch(torch.matmul, *args)


def convolution_in_three_dimensions() -> tuple[Call, Call]:
    args = torch.ones(1, 16, 8, 28, 28), torch.ones(16, 16, 3, 3, 3)
    with without(volume_convolutions.REWRITE):
        loops = from_torch(torch.nn.functional.conv3d, *args)
    return loops, from_torch(torch.nn.functional.conv3d, *args)


def sum_of_taps_transposed() -> tuple[Call, Call]:
    x, w = torch.randn(1, 96, 28, 28), torch.randn(96, 1, 7, 7)

    def convolution(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(x, w, groups=96, padding=3)

    with without(turned_taps.REWRITE):
        transposed = from_torch(lambda x, w: convolution(x, w).permute(0, 2, 3, 1), x, w)
        return transposed, from_torch(convolution, x, w)


RUNNING_SUM = """
func.func @main(%x: tensor<4096xf32>) -> tensor<4096xf32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %size = arith.constant 4096 : index
  %start = arith.constant 0.0 : f32
  BEGIN
    %empty = tensor.empty() : tensor<4096xf32>
    %sum, %sums = scf.for %i = %zero to %size step %one iter_args(%total = %start, %into = %empty)
        -> (f32, tensor<4096xf32>) {
      %element = tensor.extract %x[%i] : tensor<4096xf32>
      %new = arith.addf %total, %element : f32
      %next = tensor.insert %new into %into[%i] : tensor<4096xf32>
      scf.yield %new, %next : f32, tensor<4096xf32>
    }
  END
}
"""
ON_ITS_OWN = "", "return %sums : tensor<4096xf32>"
IN_A_DISPATCH = (
    "%result = flow.dispatch.region -> (tensor<4096xf32>) {",
    "flow.return %sums : tensor<4096xf32> } return %result : tensor<4096xf32>",
)


def loop_that_writes_elements() -> tuple[Call, Call]:
    def form(begin: str, end: str) -> Call:
        text = RUNNING_SUM.replace("BEGIN", begin).replace("END", end)
        call = from_text(text, [np.ones(4096, np.float32)], (4096,), "quick")
        if call()[0][-1] != 4096:
            raise SystemExit("the running sum is wrong")
        return call

    return form(*ON_ITS_OWN), form(*IN_A_DISPATCH)


COPIED_ROWS = """
func.func @main(%x: tensor<1000x1000xf32>) -> tensor<1000x1000xf32> {
  %last = arith.constant 999 : index
  %e = tensor.empty() : tensor<1000x1000xf32>
  %0 = linalg.generic {
      indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
      outs(%e : tensor<1000x1000xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %forward = linalg.index 1 : index
    %back = arith.subi %last, %forward : index
    %1 = tensor.extract %x[%i, %DIRECTION] : tensor<1000x1000xf32>
    linalg.yield %1 : f32
  } -> tensor<1000x1000xf32>
  return %0 : tensor<1000x1000xf32>
}
"""


def rows_that_go_backwards() -> tuple[Call, Call]:
    def form(direction: str) -> Call:
        text = COPIED_ROWS.replace("DIRECTION", direction)
        return from_text(text, [np.zeros((1000, 1000), np.float32)], (1000, 1000), "model")

    return form("back"), form("forward")


def largest(dim: int) -> tuple[Call, Call]:
    x = torch.randn(1000, 1000)
    with without(reduction_tiles.REWRITE):
        by_register = from_torch(lambda x: x.amax(dim), x)
    return by_register, from_torch(lambda x: x.amax(dim), x)


CASES = {
    "the largest of rows": Case("reduction_tiles.py", 1.5, partial(largest, 1), 50),
    "the largest of columns": Case("reduction_tiles.py", 1.5, partial(largest, 0), 50),
    "a convolution in one dimension": Case("row_convolutions.py", 3, convolution_in_one_dimension, 5),
    "a row with a matrix that is an argument": Case("row_products.py", 2, row_with_a_matrix, 20),
    "a convolution in three dimensions": Case("volume_convolutions.py", 2, convolution_in_three_dimensions, 5),
    "a sum of taps that is transposed": Case("turned_taps.py", 3, sum_of_taps_transposed, 7),
    "a loop that writes elements": Case("serial_loops.py", 10, loop_that_writes_elements, 5),
    "rows that go backwards": Case("row_loads.py", 2, rows_that_go_backwards, 20),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", default="", metavar="TEXT", help="only the symptoms with this in their names")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a bug is mended")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    columns = ("symptom", Column("rewrite", no_wrap=True), "slow over plain", "bar", "")
    table = Table(*columns, title="what IREE compiles slowly: one thread, CPU time")
    mended = []
    for name, case in CASES.items():
        if arguments.k not in name:
            continue
        slow, plain = (seconds(call, case.calls) for call in case.forms())
        is_there = slow > case.bar * plain
        verdict = "still there" if is_there else "[red]mended: the rewrite can go"
        table.add_row(name, case.rewrite, f"{slow / plain:.1f}", f"{case.bar:g}", verdict)
        if not is_there:
            mended.append(name)
    Console().print(table)
    return 1 if arguments.check and mended else 0


if __name__ == "__main__":
    sys.exit(main())
