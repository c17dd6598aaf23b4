"""Loops on single elements as dispatches: `engines/iree/serial_loops.py`."""

from __future__ import annotations

import pytest
import torch
from xdsl.context import Context
from xdsl.dialects import arith, builtin, func, linalg, scf, tensor
from xdsl.dialects.builtin import DYNAMIC_INDEX, ModuleOp, TensorType, UnregisteredOp
from xdsl.ir import Block, Operation
from xdsl.parser import Parser

import flambeau
from flambeau.engines.iree import serial_loops, stored_truths

CONTEXT = Context()
for dialect in (builtin.Builtin, arith.Arith, func.Func, linalg.Linalg, scf.Scf, tensor.Tensor):
    CONTEXT.load_dialect(dialect)


BARRIER = "iree_tensor_ext.compute_barrier.start"


def rewritten(text: str) -> ModuleOp:
    """Rewrite a program and verify it, which fails if a value is used before it is made."""
    module = serial_loops.REWRITE(Parser(CONTEXT, text).parse_module())
    module.verify()
    return module


def name_of(op: Operation | Block) -> str:
    return op.op_name.data if isinstance(op, UnregisteredOp) else getattr(op, "name", "")


def named(module: Operation, name: str) -> list[Operation]:
    return [op for op in module.walk() if name_of(op) == name]


def dispatches(module: Operation) -> list[Operation]:
    return named(module, "flow.dispatch.region")


def shapes(values: object) -> list[tuple[int, ...]]:
    return [v.type.get_shape() for v in values if isinstance(v.type, TensorType)]  # type: ignore[attr-defined]


UNIT_DIMS = """
func.func @main(%x: tensor<1x8x1xf32>) -> tensor<1x8x1xf32> {
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %8 = arith.constant 8 : index
  %y = scf.for %i = %0 to %8 step %1 iter_args(%t = %x) -> (tensor<1x8x1xf32>) {
    %e = tensor.extract %t[%0, %i, %0] : tensor<1x8x1xf32>
    %f = arith.addf %e, %e : f32
    %u = tensor.insert %f into %t[%0, %i, %0] : tensor<1x8x1xf32>
    scf.yield %u : tensor<1x8x1xf32>
  }
  func.return %y : tensor<1x8x1xf32>
}
"""


def test_dims_of_size_1_are_dropped_inside() -> None:
    module = rewritten(UNIT_DIMS)
    (dispatch,) = dispatches(module)
    (loop,) = named(dispatch, "scf.for")
    assert shapes(dispatch.results) == shapes(loop.results) == [(8,)]
    (extract,), (insert,) = named(loop, "tensor.extract"), named(loop, "tensor.insert")
    assert (len(extract.operands), len(insert.operands)) == (2, 3)
    (function,) = named(module, "func.func")
    returned = function.regions[0].block.last_op
    assert returned is not None
    assert shapes(returned.operands) == [(1, 8, 1)]


def test_a_loop_does_not_write_into_what_it_starts_with() -> None:
    """The start is copied into the memory of the result: it may be an argument of the caller's."""
    (dispatch,) = dispatches(rewritten(UNIT_DIMS))
    (copy,) = named(dispatch, "bufferization.materialize_in_destination")
    (loop,) = named(dispatch, "scf.for")
    assert isinstance(loop, scf.ForOp)
    assert list(loop.iter_args) == list(copy.results)
    assert isinstance(copy.operands[1].owner, tensor.EmptyOp)


TWO_RESULTS = """
func.func @main(%x: tensor<8xf32>, %n: index) -> tensor<?xf32> {
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %s = arith.constant 0.0 : f32
  %a = tensor.empty(%n) : tensor<?xf32>
  %b = tensor.empty() : tensor<8xf32>
  %r, %y, %z, %w = scf.for %i = %0 to %n step %1 iter_args(%t = %s, %u = %a, %v = %b, %k = %x)
      -> (f32, tensor<?xf32>, tensor<8xf32>, tensor<8xf32>) {
    %e = tensor.extract %k[%i] : tensor<8xf32>
    %f = arith.addf %t, %e : f32
    %g = tensor.insert %f into %u[%i] : tensor<?xf32>
    %h = tensor.insert %e into %v[%i] : tensor<8xf32>
    scf.yield %f, %g, %h, %k : f32, tensor<?xf32>, tensor<8xf32>, tensor<8xf32>
  }
  func.return %y : tensor<?xf32>
}
"""


def test_tensors_that_no_turn_changes_are_read_as_they_are() -> None:
    module = rewritten(TWO_RESULTS)
    (dispatch,) = dispatches(module)
    assert shapes(dispatch.results) == [(DYNAMIC_INDEX,), (8,)]
    (function,) = named(module, "func.func")
    (extract,) = named(dispatch, "tensor.extract")
    assert extract.operands[0] is function.regions[0].block.args[0]


def test_a_result_that_nobody_reads_is_kept() -> None:
    module = rewritten(TWO_RESULTS)
    (dispatch,) = dispatches(module)
    (kept,) = (op for op in named(module, "util.optimization_barrier") if op.operands[0].owner is dispatch)
    assert shapes(kept.operands) == [(8,)]


def test_a_dispatch_has_the_sizes_of_its_results_as_operands() -> None:
    module = rewritten(TWO_RESULTS)
    (dispatch,) = dispatches(module)
    assert len(dispatch.operands) == 1
    (function,) = named(module, "func.func")
    size = function.regions[0].block.args[1]
    assert dispatch.operands[0] is size or name_of(dispatch.operands[0].owner) == "tensor.dim"


ONE_AFTER_THE_OTHER = """
func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %8 = arith.constant 8 : index
  %a = tensor.empty() : tensor<8xf32>
  %y = scf.for %i = %0 to %8 step %1 iter_args(%t = %a) -> (tensor<8xf32>) {
    %e = tensor.extract %x[%i] : tensor<8xf32>
    %u = tensor.insert %e into %t[%i] : tensor<8xf32>
    scf.yield %u : tensor<8xf32>
  }
  %z = scf.for %j = %0 to %8 step %1 iter_args(%t2 = %a) -> (tensor<8xf32>) {
    %f = tensor.extract %y[%j] : tensor<8xf32>
    %g = tensor.extract %y[%0] : tensor<8xf32>
    %h = arith.addf %f, %g : f32
    %u2 = tensor.insert %h into %t2[%j] : tensor<8xf32>
    scf.yield %u2 : tensor<8xf32>
  }
  func.return %z : tensor<8xf32>
}
"""


def test_what_another_loop_computed_is_read_behind_a_barrier() -> None:
    """Otherwise the compiler may put the first loop into the dispatch of the second, and its tensor on the stack."""
    module = rewritten(ONE_AFTER_THE_OTHER)
    first, second = dispatches(module)
    reads = named(second, "tensor.extract")
    assert [name_of(op.operands[0].owner) for op in reads] == [BARRIER] * 2
    (barrier,) = {op.operands[0].owner for op in reads}
    assert isinstance(barrier, Operation)
    assert barrier.operands[0].owner is first


WHOLE_ROWS = """
func.func @main(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %8 = arith.constant 8 : index
  %y = scf.for %i = %0 to %8 step %1 iter_args(%t = %x) -> (tensor<8x4xf32>) {
    %s = tensor.extract_slice %t[%i, 0] [1, 4] [1, 1] : tensor<8x4xf32> to tensor<1x4xf32>
    %u = tensor.insert_slice %s into %t[%0, 0] [1, 4] [1, 1] : tensor<1x4xf32> into tensor<8x4xf32>
    scf.yield %u : tensor<8x4xf32>
  }
  func.return %y : tensor<8x4xf32>
}
"""


def test_loops_on_slices_stay_as_they_are() -> None:
    module = Parser(CONTEXT, WHOLE_ROWS).parse_module()
    assert serial_loops.REWRITE(module) is module
    assert serial_loops.flags(module) == ()


@pytest.mark.parametrize("dynamic", [False, True])
def test_ops_that_go_through_elements_are_dispatches(dynamic: bool) -> None:
    def ops(x: torch.Tensor, index: torch.Tensor) -> list[torch.Tensor]:
        return [*x.sort(), x.cumsum(0), x.index_add(0, index, x), x.topk(2).values]

    sizes = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO}, {0: torch.export.Dim.AUTO}) if dynamic else None
    compiled = flambeau.compile(ops, (torch.randn(5, 7), torch.arange(5)), dynamic_shapes=sizes).op
    module = serial_loops.REWRITE(compiled)
    assert len(dispatches(module)) >= 4
    assert all(serial_loops.is_dispatched(op) for op in named(module, "tensor.insert"))
    assert serial_loops.flags(module)
    assert not serial_loops.flags(compiled)


def test_other_ops_of_the_engine_are_no_dispatches() -> None:
    """Constants that become ops of IREE's get no flags for loops, and the loops around them are found."""
    splat = UnregisteredOp.with_name("flow.tensor.splat")
    module = Parser(CONTEXT, UNIT_DIMS).parse_module()
    module.body.block.add_op(splat.create(regions=[module.body.block.first_op.body.clone()]))
    assert serial_loops.flags(module) == ()
    assert len(dispatches(serial_loops.REWRITE(module))) == 2


def test_a_result_that_is_only_reshaped_for_nobody_is_kept() -> None:
    """IREE drops it otherwise, and puts what the loop has in it on the stack."""
    module = rewritten("""
    func.func @main(%n: index, %start: tensor<?xf32>) -> tensor<?xf32> {
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %value = arith.constant 1.0 : f32
      %room = tensor.empty(%n) : tensor<?xf32>
      %out:2 = scf.for %i = %zero to %n step %one iter_args(%a = %room, %b = %room)
          -> (tensor<?xf32>, tensor<?xf32>) {
        %c = tensor.insert %value into %a[%i] : tensor<?xf32>
        %d = tensor.insert %value into %b[%i] : tensor<?xf32>
        scf.yield %c, %d : tensor<?xf32>, tensor<?xf32>
      }
      %unread = tensor.cast %out#1 : tensor<?xf32> to tensor<5xf32>
      func.return %out#0 : tensor<?xf32>
    }
    """)
    (dispatch,) = dispatches(module)
    kept = named(module, "util.optimization_barrier")
    assert [op.operands[0] for op in kept] == [dispatch.results[1]]


TRUTHS = """
func.func @main(%x: tensor<8xi1>) -> tensor<8xi1> {
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  %8 = arith.constant 8 : index
  %y = scf.for %i = %0 to %8 step %1 iter_args(%t = %x) -> (tensor<8xi1>) {
    %z = scf.for %j = %0 to %i step %1 iter_args(%u = %t) -> (tensor<8xi1>) {
      %a = tensor.extract %u[%i] : tensor<8xi1>
      %b = tensor.extract %x[%j] : tensor<8xi1>
      %c = arith.xori %a, %b : i1
      %v = tensor.insert %c into %u[%i] : tensor<8xi1>
      scf.yield %v : tensor<8xi1>
    }
    scf.yield %z : tensor<8xi1>
  }
  func.return %y : tensor<8xi1>
}
"""


def test_truth_values_are_bytes_in_a_loop() -> None:
    """What the loops carry is converted before and behind them; what is only read keeps its type."""
    module = stored_truths.REWRITE(Parser(CONTEXT, TRUTHS).parse_module())
    module.verify()
    for loop in named(module, "scf.for"):
        assert [v.type for v in (*loop.operands[3:], *loop.results)] == [TensorType(builtin.i8, [8])] * 2
    own, read = named(module, "tensor.extract")
    assert own.operands[0].type == TensorType(builtin.i8, [8])
    assert read.operands[0].type == TensorType(builtin.i1, [8])
    (function,) = named(module, "func.func")
    last = function.regions[0].block.last_op
    assert last is not None
    assert last.operands[0].type == TensorType(builtin.i1, [8])


@pytest.mark.engine
@pytest.mark.parametrize("size", [1, 3, 40, None])
def test_truth_values_are_sorted(size: int | None) -> None:
    x = torch.rand(3, size or 5) < 0.5
    dynamic = None if size else ({1: torch.export.Dim.AUTO},)
    module = flambeau.compile(lambda x: x.sort(dim=-1, stable=True), (x,), dynamic_shapes=dynamic)
    results = flambeau.load(module, profile="quick", device="local-sync")(x)
    for result, expected in zip(results, x.sort(dim=-1, stable=True), strict=True):
        assert torch.equal(result, expected)
