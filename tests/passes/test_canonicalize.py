"""Canonicalize: what is known is computed, and what is left is what only the run time knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import flambeau
from flambeau import torchscript
from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.opt import run_pipeline

PASS = "canonicalize"
Check = Callable[[str, str], None]


# --- Numbers and sizes ---


def test_constants_are_computed_as_python_does(check: Check) -> None:
    """Floor division and remainder of a negative number, true division, a comparison."""
    check(
        PASS,
        """
        // CHECK-DAG: %[[Q:.*]] = torch.constant.int -4
        // CHECK-DAG: %[[R:.*]] = torch.constant.int 1
        // CHECK-DAG: %[[D:.*]] = torch.constant.float -3.500000e+00
        // CHECK-DAG: %[[B:.*]] = torch.constant.bool false
        // CHECK-NEXT: func.return %[[Q]], %[[R]], %[[D]], %[[B]]
        func.func @f() -> (!torch.int, !torch.int, !torch.float, !torch.bool) {
          %a = torch.constant.int -7
          %b = torch.constant.int 2
          %0 = torch.aten.floordiv.int %a, %b : !torch.int, !torch.int -> !torch.int
          %1 = torch.aten.remainder.int %a, %b : !torch.int, !torch.int -> !torch.int
          %2 = torch.aten.div.int %a, %b : !torch.int, !torch.int -> !torch.float
          %3 = torch.aten.gt.int %a, %b : !torch.int, !torch.int -> !torch.bool
          func.return %0, %1, %2, %3 : !torch.int, !torch.int, !torch.float, !torch.bool
        }
        """,
    )


def test_what_would_fail_at_run_time_is_not_computed() -> None:
    """A division by zero that always happens is an error of the program."""
    module = parse_module(
        """
        func.func @f() -> !torch.int {
          %a = torch.constant.int 7
          %b = torch.constant.int 0
          %0 = torch.aten.floordiv.int %a, %b : !torch.int, !torch.int -> !torch.int loc("model.py":3:0)
          func.return %0 : !torch.int
        }
        """
    )
    with pytest.raises(CompileError) as error:
        run_pipeline(module, PASS)
    assert error.value.diagnostics[0].line == 3


def test_static_sizes_are_numbers(check: Check) -> None:
    """Sizes, ranks and numbers of elements; what is open stays a question to the tensor."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2,?,4],f32>)
        // CHECK: %[[S:.*]] = torch.aten.size.int %[[X]], %int1
        // CHECK-NEXT: func.return %int4, %[[S]], %int3, %int3
        func.func @f(%x: !torch.vtensor<[2,?,4],f32>) -> (!torch.int, !torch.int, !torch.int, !torch.int) {
          %int1 = torch.constant.int 1
          %int_1 = torch.constant.int -1
          %0 = torch.aten.size.int %x, %int_1 : !torch.vtensor<[2,?,4],f32>, !torch.int -> !torch.int
          %1 = torch.aten.size %x : !torch.vtensor<[2,?,4],f32> -> !torch.list<int>
          %2 = torch.aten.__getitem__.t %1, %int1 : !torch.list<int>, !torch.int -> !torch.int
          %3 = torch.aten.dim %x : !torch.vtensor<[2,?,4],f32> -> !torch.int
          %4 = torch.aten.len.t %1 : !torch.list<int> -> !torch.int
          func.return %0, %2, %3, %4 : !torch.int, !torch.int, !torch.int, !torch.int
        }
        """,
    )


def test_numbers_that_went_through_tensors(check: Check) -> None:
    """S1, S7: a trace makes sizes tensors, computes on them, and makes them ints again for view and arange."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[?,4,6],f32>)
        // CHECK: %[[N:.*]] = torch.aten.size.int %[[X]], %int0
        // CHECK-NEXT: %[[M:.*]] = torch.aten.mul.int %[[N]], %int2
        // CHECK-NEXT: %[[SIZES:.*]] = torch.prim.ListConstruct %[[M]], %int4, %int3
        // CHECK-NEXT: torch.aten.view %[[X]], %[[SIZES]] : {{.*}} -> !torch.vtensor<[?,4,3],f32>
        // CHECK-NEXT: torch.aten.arange %int6, {{.*}} : !torch.int, {{.*}} -> !torch.vtensor<[6],si64>
        func.func @f(%x: !torch.vtensor<[?,4,6],f32>) -> (!torch.vtensor, !torch.vtensor) {
          %int0 = torch.constant.int 0
          %int1 = torch.constant.int 1
          %int2 = torch.constant.int 2
          %floor = torch.constant.str "floor"
          %none = torch.constant.none
          %0 = torch.aten.size.int %x, %int0 : !torch.vtensor<[?,4,6],f32>, !torch.int -> !torch.int
          %1 = torch.prim.NumToTensor.Scalar %0 : !torch.int -> !torch.vtensor
          %2 = torch.aten.size.int %x, %int2 : !torch.vtensor<[?,4,6],f32>, !torch.int -> !torch.int
          %3 = torch.prim.NumToTensor.Scalar %2 : !torch.int -> !torch.vtensor
          %two = torch.vtensor.literal(dense<2> : tensor<si64>) : !torch.vtensor<[],si64>
          %4 = torch.aten.mul.Tensor %1, %two : !torch.vtensor, !torch.vtensor<[],si64> -> !torch.vtensor
          %5 = torch.aten.div.Tensor_mode %3, %two, %floor
            : !torch.vtensor, !torch.vtensor<[],si64>, !torch.str -> !torch.vtensor
          %6 = torch.aten.Int.Tensor %4 : !torch.vtensor -> !torch.int
          %7 = torch.aten.Int.Tensor %5 : !torch.vtensor -> !torch.int
          %int4 = torch.constant.int 4
          %sizes = torch.prim.ListConstruct %6, %int4, %7
            : (!torch.int, !torch.int, !torch.int) -> !torch.list<int>
          %8 = torch.aten.view %x, %sizes : !torch.vtensor<[?,4,6],f32>, !torch.list<int> -> !torch.vtensor
          %9 = torch.aten.ScalarImplicit %3 : !torch.vtensor -> !torch.number
          %10 = torch.aten.arange %9, %none, %none, %none, %none
            : !torch.number, !torch.none, !torch.none, !torch.none, !torch.none -> !torch.vtensor
          func.return %8, %10 : !torch.vtensor, !torch.vtensor
        }
        """,
    )


# --- Lists, tuples, dictionaries, strings ---


def test_lists_are_computed(check: Check) -> None:
    """append, slices, concatenation, membership: nothing of the list is left."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[N:.*]]: !torch.int)
        // CHECK-NOT: torch.prim.ListConstruct
        // CHECK: func.return %int3, %[[N]], %true
        func.func @f(%n: !torch.int) -> (!torch.int, !torch.int, !torch.bool) {
          %int0 = torch.constant.int 0
          %int1 = torch.constant.int 1
          %int2 = torch.constant.int 2
          %none = torch.constant.none
          %a = torch.prim.ListConstruct %int1, %int2 : (!torch.int, !torch.int) -> !torch.list<int>
          %b = torch.prim.ListConstruct %n : (!torch.int) -> !torch.list<int>
          %0 = torch.aten.append.t %b, %int2 : !torch.list<int>, !torch.int -> !torch.list<int>
          %1 = torch.aten.add.t %a, %b : !torch.list<int>, !torch.list<int> -> !torch.list<int>
          %2 = torch.aten.slice.t %1, %int1, %none, %int1
            : !torch.list<int>, !torch.int, !torch.none, !torch.int -> !torch.list<int>
          %3 = torch.aten.len.t %2 : !torch.list<int> -> !torch.int
          %4 = torch.aten.__getitem__.t %2, %int1 : !torch.list<int>, !torch.int -> !torch.int
          %5 = torch.aten.__contains__.int_list %a, %int2 : !torch.list<int>, !torch.int -> !torch.bool
          func.return %3, %4, %5 : !torch.int, !torch.int, !torch.bool
        }
        """,
    )


def test_tuples_are_taken_apart(check: Check) -> None:
    """S17: construct, index, unpack."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2],f32>, %[[N:.*]]: !torch.int)
        // CHECK-NEXT: func.return %[[X]], %[[N]]
        func.func @f(%x: !torch.vtensor<[2],f32>, %n: !torch.int) -> (!torch.vtensor<[2],f32>, !torch.int) {
          %int0 = torch.constant.int 0
          %0 = torch.prim.TupleConstruct %x, %n : !torch.vtensor<[2],f32>, !torch.int
            -> !torch.tuple<vtensor<[2],f32>, int>
          %1 = torch.prim.TupleConstruct %0, %n : !torch.tuple<vtensor<[2],f32>, int>, !torch.int
            -> !torch.tuple<tuple<vtensor<[2],f32>, int>, int>
          %2 = torch.prim.TupleIndex %1, %int0
            : !torch.tuple<tuple<vtensor<[2],f32>, int>, int>, !torch.int -> !torch.tuple<vtensor<[2],f32>, int>
          %3:2 = torch.prim.TupleUnpack %2 : !torch.tuple<vtensor<[2],f32>, int>
            -> !torch.vtensor<[2],f32>, !torch.int
          func.return %3#0, %3#1 : !torch.vtensor<[2],f32>, !torch.int
        }
        """,
    )


def test_dictionaries_are_taken_apart(check: Check) -> None:
    """Keys in their order, values by key, a default."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[N:.*]]: !torch.int, %[[M:.*]]: !torch.int)
        // CHECK-NEXT: %[[TRUE:.*]] = torch.constant.bool true
        // CHECK-NEXT: func.return %[[M]], %[[TRUE]], %[[M]], %[[N]]
        func.func @f(%n: !torch.int, %m: !torch.int) -> (!torch.int, !torch.bool, !torch.int, !torch.int) {
          %int1 = torch.constant.int 1
          %k = torch.constant.str "k"
          %l = torch.constant.str "l"
          %d = torch.prim.DictConstruct keys(%k : !torch.str) values(%n : !torch.int) -> !torch.dict<str, int>
          torch.aten._set_item.str %d, %l, %m : !torch.dict<str, int>, !torch.str, !torch.int
          %0 = torch.aten.__getitem__.Dict_str %d, %l : !torch.dict<str, int>, !torch.str -> !torch.int
          %1 = torch.aten.__contains__.str %d, %k : !torch.dict<str, int>, !torch.str -> !torch.bool
          %2 = torch.aten.keys.str %d : !torch.dict<str, int> -> !torch.list<str>
          %3 = torch.aten.__getitem__.t %2, %int1 : !torch.list<str>, !torch.int -> !torch.str
          %4 = torch.aten.__getitem__.Dict_str %d, %3 : !torch.dict<str, int>, !torch.str -> !torch.int
          %o = torch.constant.str "o"
          %5 = torch.aten.get.default_str %d, %o, %n
            : !torch.dict<str, int>, !torch.str, !torch.int -> !torch.int
          func.return %0, %1, %4, %5 : !torch.int, !torch.bool, !torch.int, !torch.int
        }
        """,
    )


def test_strings_are_formatted(filecheck: Check) -> None:
    """The message of an assertion is made while compiling, where its parts are known."""
    filecheck(
        PASS,
        """
        // CHECK: func.func @f(%{{.*}}, %[[FLAG:.*]]: !torch.bool)
        // CHECK-NEXT: torch.runtime.assert %[[FLAG]], "expected 4 columns, got 3"
        // CHECK-NEXT: func.return
        func.func @f(%x: !torch.vtensor<[2,3],f32>, %flag: !torch.bool) {
          %int1 = torch.constant.int 1
          %none = torch.constant.none
          %text = torch.constant.str "expected 4 columns, got {}"
          %n = torch.aten.size.int %x, %int1 : !torch.vtensor<[2,3],f32>, !torch.int -> !torch.int
          %message = torch.aten.format(%text, %n) : !torch.str, !torch.int -> !torch.str
          torch.prim.If %flag -> () {
            torch.prim.If.yield
          } else {
            torch.prim.RaiseException %message, %none : !torch.str, !torch.none
            torch.prim.If.yield
          }
          func.return
        }
        """,
    )


# --- Optionals and branches ---


def test_none_defaults_are_resolved(check: Check) -> None:
    """S18: `flag = flag if flag is not None else self.config`: no branch and no optional is left."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2],f32>)
        // CHECK-NEXT: %[[T:.*]] = torch.aten.tanh %[[X]]
        // CHECK-NEXT: func.return %[[T]]
        func.func @f(%x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {
          %none = torch.constant.none
          %config = torch.constant.bool true
          %flag = torch.derefine %none : !torch.none to !torch.optional<bool>
          %0 = torch.aten.__isnot__ %flag, %none : !torch.optional<bool>, !torch.none -> !torch.bool
          %1 = torch.prim.If %0 -> (!torch.bool) {
            %2 = torch.prim.unchecked_cast %flag : !torch.optional<bool> -> !torch.bool
            torch.prim.If.yield %2 : !torch.bool
          } else {
            torch.prim.If.yield %config : !torch.bool
          }
          %3 = torch.prim.If %1 -> (!torch.vtensor<[2],f32>) {
            %4 = torch.aten.tanh %x : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
            torch.prim.If.yield %4 : !torch.vtensor<[2],f32>
          } else {
            torch.prim.If.yield %x : !torch.vtensor<[2],f32>
          }
          func.return %3 : !torch.vtensor<[2],f32>
        }
        """,
    )


class Decoder(torch.nn.Module):
    """Flags whose defaults are in a configuration, and outputs that depend on them, as in transformers."""

    def __init__(self, use_cache: bool) -> None:
        super().__init__()
        self.use_cache = use_cache

    def forward(self, x: torch.Tensor, use_cache: bool | None = None, mask: torch.Tensor | None = None):  # type: ignore[no-untyped-def]
        use_cache = use_cache if use_cache is not None else self.use_cache
        if mask is not None:
            x = x + mask
        cache: list[torch.Tensor] = []
        if use_cache:
            cache.append(x.sin())
        return x.tanh(), cache


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("arguments", [1, 2, 3])
def test_optional_arguments_leave_no_branches(use_cache: bool, arguments: int) -> None:
    """S18: what nobody passes is None while compiling; None is what it says, and a flag of the model is known."""
    given = (torch.randn(2, 3), None, torch.randn(3))[:arguments]
    model = Decoder(use_cache)
    module = torchscript.compile(model, given, "torch")
    text = str(module)
    assert "torch.prim.If" not in text
    assert "optional" not in text
    assert ("torch.aten.sin" in text) == use_cache
    assert ("torch.aten.add.Tensor" in text) == (arguments == 3)
    torch.testing.assert_close(flambeau.load(module, engine="eager")(*given), model(*given))


def test_a_known_branch_is_taken_and_what_nobody_uses_goes(check: Check) -> None:
    """The condition follows from a shape; an unknown one stays, without its unused result."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2,3],f32>, %[[FLAG:.*]]: !torch.bool)
        // CHECK-NEXT: %[[T:.*]] = torch.aten.tanh %[[X]]
        // CHECK-NEXT: %[[R:.*]] = torch.prim.If %[[FLAG]] -> (!torch.vtensor<[2,3],f32>) {
        // CHECK-NEXT: %[[C:.*]] = torch.aten.cos %[[T]]
        // CHECK-NEXT: torch.prim.If.yield %[[C]]
        // CHECK-NEXT: } else {
        // CHECK-NEXT: torch.prim.If.yield %[[T]]
        // CHECK-NEXT: }
        // CHECK-NEXT: func.return %[[R]]
        func.func @f(%x: !torch.vtensor<[2,3],f32>, %flag: !torch.bool) -> !torch.vtensor<[2,3],f32> {
          %int2 = torch.constant.int 2
          %rank = torch.aten.dim %x : !torch.vtensor<[2,3],f32> -> !torch.int
          %is_matrix = torch.aten.eq.int %rank, %int2 : !torch.int, !torch.int -> !torch.bool
          %0 = torch.prim.If %is_matrix -> (!torch.vtensor<[2,3],f32>) {
            %1 = torch.aten.tanh %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
            torch.prim.If.yield %1 : !torch.vtensor<[2,3],f32>
          } else {
            %2 = torch.aten.sin %x : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
            torch.prim.If.yield %2 : !torch.vtensor<[2,3],f32>
          }
          %3:2 = torch.prim.If %flag -> (!torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32>) {
            %4 = torch.aten.cos %0 : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
            %5 = torch.aten.exp %0 : !torch.vtensor<[2,3],f32> -> !torch.vtensor<[2,3],f32>
            torch.prim.If.yield %4, %5 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32>
          } else {
            torch.prim.If.yield %0, %0 : !torch.vtensor<[2,3],f32>, !torch.vtensor<[2,3],f32>
          }
          func.return %3#0 : !torch.vtensor<[2,3],f32>
        }
        """,
    )


def test_both_branches_give_the_same_constant(check: Check) -> None:
    """What is known on both sides is known behind them."""
    check(
        PASS,
        """
        // CHECK: func.func @f
        // CHECK-NEXT: %[[SIX:.*]] = torch.constant.int 6
        // CHECK-NEXT: func.return %[[SIX]]
        func.func @f(%flag: !torch.bool) -> !torch.int {
          %int2 = torch.constant.int 2
          %a = torch.constant.int 3
          %b = torch.constant.int 3
          %0 = torch.prim.If %flag -> (!torch.int) {
            torch.prim.If.yield %a : !torch.int
          } else {
            torch.prim.If.yield %b : !torch.int
          }
          %1 = torch.aten.mul.int %0, %int2 : !torch.int, !torch.int -> !torch.int
          func.return %1 : !torch.int
        }
        """,
    )


# --- Loops ---


def test_a_loop_of_known_length_is_unrolled(check: Check) -> None:
    """A list that grows in the body has three elements behind the loop."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2],f32>)
        // CHECK: %[[A:.*]] = torch.aten.tanh %[[X]]
        // CHECK-NEXT: %[[B:.*]] = torch.aten.tanh %[[A]]
        // CHECK-NEXT: %[[C:.*]] = torch.aten.tanh %[[B]]
        // CHECK-NEXT: %[[LIST:.*]] = torch.prim.ListConstruct %[[A]], %[[B]], %[[C]]
        // CHECK-NEXT: torch.aten.cat %[[LIST]], %{{.*}} -> !torch.vtensor<[6],f32>
        func.func @f(%x: !torch.vtensor<[2],f32>) -> !torch.vtensor {
          %int0 = torch.constant.int 0
          %int3 = torch.constant.int 3
          %true = torch.constant.bool true
          %list = torch.prim.ListConstruct : () -> !torch.list<vtensor>
          %last = torch.prim.Loop %int3, %true, init(%x) {
          ^bb0(%i: !torch.int, %a: !torch.vtensor<[2],f32>):
            %1 = torch.aten.tanh %a : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
            %2 = torch.aten.append.t %list, %1
              : !torch.list<vtensor>, !torch.vtensor<[2],f32> -> !torch.list<vtensor>
            torch.prim.Loop.condition %true, iter(%1 : !torch.vtensor<[2],f32>)
          } : (!torch.int, !torch.bool, !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32>
          %0 = torch.aten.cat %list, %int0 : !torch.list<vtensor>, !torch.int -> !torch.vtensor
          func.return %0 : !torch.vtensor
        }
        """,
    )


def test_a_loop_ends_where_its_condition_says(check: Check) -> None:
    """`while i < 5: i += 2`, with PyTorch's huge trip count."""
    check(
        PASS,
        """
        // CHECK: func.func @f
        // CHECK-NEXT: %[[SIX:.*]] = torch.constant.int 6
        // CHECK-NEXT: func.return %[[SIX]]
        func.func @f() -> !torch.int {
          %int0 = torch.constant.int 0
          %int2 = torch.constant.int 2
          %int5 = torch.constant.int 5
          %forever = torch.constant.int 9223372036854775807
          %true = torch.constant.bool true
          %0 = torch.prim.Loop %forever, %true, init(%int0) {
          ^bb0(%i: !torch.int, %a: !torch.int):
            %1 = torch.aten.add.int %a, %int2 : !torch.int, !torch.int -> !torch.int
            %2 = torch.aten.lt.int %1, %int5 : !torch.int, !torch.int -> !torch.bool
            torch.prim.Loop.condition %2, iter(%1 : !torch.int)
          } : (!torch.int, !torch.bool, !torch.int) -> !torch.int
          func.return %0 : !torch.int
        }
        """,
    )


def test_a_loop_of_unknown_length_stays(check: Check) -> None:
    """What does not change in it is known inside and behind it; what changes is carried."""
    check(
        PASS,
        """
        // CHECK: func.func @f(%[[N:.*]]: !torch.int)
        // CHECK-DAG: %[[SEVEN:.*]] = torch.constant.int 7
        // CHECK: %[[R:.*]] = torch.prim.Loop %[[N]], %{{.*}}, init(%int0) {
        // CHECK-NEXT: ^bb0(%{{.*}}: !torch.int, %[[A:.*]]: !torch.int):
        // CHECK-NEXT: %[[SUM:.*]] = torch.aten.add.int %[[A]], %[[SEVEN]]
        // CHECK-NEXT: torch.prim.Loop.condition %{{.*}}, iter(%[[SUM]] : !torch.int)
        // CHECK: func.return %[[R]], %[[SEVEN]]
        func.func @f(%n: !torch.int) -> (!torch.int, !torch.int) {
          %int0 = torch.constant.int 0
          %int1 = torch.constant.int 1
          %int7 = torch.constant.int 7
          %true = torch.constant.bool true
          %0:2 = torch.prim.Loop %n, %true, init(%int0, %int7) {
          ^bb0(%i: !torch.int, %a: !torch.int, %b: !torch.int):
            %1 = torch.aten.add.int %a, %b : !torch.int, !torch.int -> !torch.int
            %2 = torch.aten.mul.int %b, %int1 : !torch.int, !torch.int -> !torch.int
            torch.prim.Loop.condition %true, iter(%1, %2 : !torch.int, !torch.int)
          } : (!torch.int, !torch.bool, !torch.int, !torch.int) -> (!torch.int, !torch.int)
          func.return %0#0, %0#1 : !torch.int, !torch.int
        }
        """,
    )


def test_a_list_that_grows_in_a_loop_of_unknown_length_is_an_error() -> None:
    """Its length would be known at run time only."""
    module = parse_module(
        """
        func.func @f(%n: !torch.int) -> !torch.int {
          %true = torch.constant.bool true
          %list = torch.prim.ListConstruct : () -> !torch.list<int>
          torch.prim.Loop %n, %true, init() {
          ^bb0(%i: !torch.int):
            %1 = torch.aten.append.t %list, %i : !torch.list<int>, !torch.int -> !torch.list<int> loc("model.py":4:8)
            torch.prim.Loop.condition %true, iter()
          } : (!torch.int, !torch.bool) -> () loc("model.py":3:4)
          %0 = torch.aten.len.t %list : !torch.list<int> -> !torch.int
          func.return %0 : !torch.int
        }
        """
    )
    with pytest.raises(CompileError, match="a list grows or shrinks in a loop whose trip count is not known") as error:
        run_pipeline(module, PASS)
    assert error.value.diagnostics[0].line == 3


# --- Programs that raise ---


def test_an_assertion_stays_one(filecheck: Check) -> None:
    """`assert flag, "..."`: the branch that raises is gone, and the other one stands in its place."""
    filecheck(
        PASS,
        """
        // CHECK: func.func @f(%[[X:.*]]: !torch.vtensor<[2],f32>, %[[FLAG:.*]]: !torch.bool)
        // CHECK-NEXT: torch.runtime.assert %[[FLAG]], "flag must hold"
        // CHECK-NEXT: %[[T:.*]] = torch.aten.tanh %[[X]]
        // CHECK-NEXT: func.return %[[T]]
        func.func @f(%x: !torch.vtensor<[2],f32>, %flag: !torch.bool) -> !torch.vtensor<[2],f32> {
          %message = torch.constant.str "flag must hold"
          %none = torch.constant.none
          %0 = torch.prim.If %flag -> (!torch.vtensor<[2],f32>) {
            %1 = torch.aten.tanh %x : !torch.vtensor<[2],f32> -> !torch.vtensor<[2],f32>
            torch.prim.If.yield %1 : !torch.vtensor<[2],f32>
          } else {
            torch.prim.RaiseException %message, %none : !torch.str, !torch.none
            %2 = torch.prim.Uninitialized : !torch.vtensor<[2],f32>
            torch.prim.If.yield %2 : !torch.vtensor<[2],f32>
          }
          func.return %0 : !torch.vtensor<[2],f32>
        }
        """,
    )


def test_a_program_that_always_raises_is_an_error() -> None:
    """The program's own message, and its line."""
    module = parse_module(
        """
        func.func @f(%x: !torch.vtensor<[2],f32>) -> !torch.vtensor<[2],f32> {
          %message = torch.constant.str "needs a matrix"
          %none = torch.constant.none
          %int2 = torch.constant.int 2
          %rank = torch.aten.dim %x : !torch.vtensor<[2],f32> -> !torch.int
          %0 = torch.aten.ne.int %rank, %int2 : !torch.int, !torch.int -> !torch.bool
          torch.prim.If %0 -> () {
            torch.prim.RaiseException %message, %none : !torch.str, !torch.none loc("model.py":5:12)
            torch.prim.If.yield
          } else {
            torch.prim.If.yield
          }
          func.return %x : !torch.vtensor<[2],f32>
        }
        """
    )
    with pytest.raises(CompileError, match="the program always raises: needs a matrix") as error:
        run_pipeline(module, PASS)
    assert error.value.diagnostics[0].line == 5


def test_what_is_written_has_the_dtype_of_the_tensor() -> None:
    """Where types show only now that an in-place op computes in another dtype, its result is converted."""
    text = """
    func.func @f(%x: !torch.tensor<[2],f16>, %y: !torch.vtensor<[2],f32>) {
      %0 = torch.tensor_static_info_cast %y : !torch.vtensor<[2],f32> to !torch.vtensor
      torch.overwrite.tensor.contents %0 overwrites %x : !torch.vtensor, !torch.tensor<[2],f16>
      func.return
    }
    """
    module = run_pipeline(parse_module(text), PASS)
    module.verify()
    assert "torch.aten.to.dtype" in str(module)
