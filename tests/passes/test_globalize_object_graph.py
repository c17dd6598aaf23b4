"""GlobalizeObjectGraph, IR in and IR out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flambeau.diagnostics import CompileError
from flambeau.dialects.context import parse_module
from flambeau.ir.printing import pretty_text
from flambeau.opt import run_pipeline

PASS = "torch-globalize-object-graph"
Check = Callable[[str, str], None]


def test_an_attribute_becomes_a_slot(filecheck: Check) -> None:
    """S76, S86: the deck's program, in today's spelling."""
    filecheck(
        PASS,
        """
        // CHECK: torch.global_slot.module_initializer {
        // CHECK-NEXT: %[[W:.*]] = torch.tensor.literal(dense<[0, 1, 2, 3]> : tensor<4xsi64>) : !torch.tensor<[4],si64>
        // CHECK-NEXT: torch.initialize.global_slots [
        // CHECK-NEXT: @arange(%[[W]] : !torch.tensor<[4],si64>)
        // CHECK-NEXT: ]
        // CHECK: torch.global_slot "private" @arange : !torch.tensor
        // CHECK-NEXT: func.func @forward(%[[X:.*]]: !torch.tensor) -> !torch.tensor {
        // CHECK-NEXT: %[[A:.*]] = torch.global_slot.get @arange : !torch.tensor
        // CHECK-NEXT: %[[R:.*]] = torch.aten.mul.Tensor %[[X]], %[[A]]
        // CHECK-NEXT: func.return %[[R]]
        // CHECK-NOT: nn
        func private @__torch__.TestModule.forward(
            %arg0: !torch.nn.Module<"__torch__.TestModule">, %arg1: !torch.tensor) -> !torch.tensor {
          %2 = torch.prim.GetAttr %arg0["arange"] : !torch.nn.Module<"__torch__.TestModule"> -> !torch.tensor
          %3 = torch.aten.mul.Tensor %arg1, %2 : !torch.tensor, !torch.tensor -> !torch.tensor
          return %3 : !torch.tensor
        }
        torch.class_type @__torch__.TestModule {
          torch.attr "arange" : !torch.tensor
          torch.method "forward", @__torch__.TestModule.forward
        }
        %0 = torch.tensor.literal(dense<[0, 1, 2, 3]> : tensor<4xsi64>) : !torch.tensor<[4],si64>
        %1 = torch.nn_module {
          torch.slot "arange", %0 : !torch.tensor<[4],si64>
        } : !torch.nn.Module<"__torch__.TestModule">
        """,
    )


def test_the_old_spelling_of_the_result_is_read(filecheck: Check) -> None:
    """S86: slots with their initial values inside, as of 2021; nothing is left to globalise."""
    filecheck(
        PASS,
        """
        // CHECK: torch.global_slot @arange : !torch.tensor
        // CHECK-NEXT: torch.global_slot.module_initializer {
        // CHECK-NEXT: %[[W:.*]] = torch.tensor.literal
        // CHECK-NEXT: torch.initialize.global_slots [
        // CHECK-NEXT: @arange(%[[W]] : !torch.tensor<[4],si64>)
        // CHECK: func.func @forward
        // CHECK-NEXT: torch.global_slot.get @arange
        torch.global_slot @arange : !torch.tensor {
          %0 = torch.tensor.literal(dense<[0, 1, 2, 3]> : tensor<4xsi64>) : !torch.tensor<[4],si64>
          torch.global_slot.init %0 : !torch.tensor<[4],si64>
        }
        func @forward(%arg0: !torch.tensor) -> !torch.tensor {
          %0 = torch.global_slot.get @arange : !torch.tensor
          %1 = torch.aten.mul.Tensor %arg0, %0 : !torch.tensor, !torch.tensor -> !torch.tensor
          return %1 : !torch.tensor
        }
        """,
    )


COUNTER = """
func.func private @Counter.bump(%self: !torch.nn.Module<"Counter">, %by: !torch.int) -> !torch.int {
  %0 = torch.prim.GetAttr %self["count"] : !torch.nn.Module<"Counter"> -> !torch.int
  %1 = torch.aten.add.int %0, %by : !torch.int, !torch.int -> !torch.int
  torch.prim.SetAttr %self["count"] = %1 : !torch.nn.Module<"Counter">, !torch.int
  func.return %1 : !torch.int
}
torch.class_type @Counter { torch.attr "count" : !torch.int  torch.method "bump", @Counter.bump }
"""


def test_a_class_with_two_instances_has_two_functions(filecheck: Check) -> None:
    filecheck(
        PASS,
        COUNTER
        + """
        // CHECK: @a.count(%{{.*}} : !torch.int)
        // CHECK-NEXT: @b.count(%{{.*}} : !torch.int)
        // CHECK: torch.global_slot "private" @a.count : !torch.int
        // CHECK-NEXT: torch.global_slot "private" @b.count : !torch.int
        // CHECK: func.func @forward(%[[N:.*]]: !torch.int) -> !torch.int
        // CHECK-NEXT: %[[A:.*]] = func.call @a.bump(%[[N]])
        // CHECK-NEXT: %[[B:.*]] = func.call @b.bump(%[[A]])
        // CHECK-NEXT: %[[C:.*]] = func.call @a.bump(%[[B]])
        // CHECK-NEXT: func.return %[[C]]
        // CHECK: func.func private @a.bump(%{{.*}}: !torch.int) -> !torch.int
        // CHECK-NEXT: torch.global_slot.get @a.count
        // CHECK: torch.global_slot.set @a.count
        // CHECK: func.func private @b.bump
        // CHECK-NEXT: torch.global_slot.get @b.count
        // CHECK: torch.global_slot.set @b.count
        // CHECK-NOT: func.func
        func.func private @M.forward(%self: !torch.nn.Module<"M">, %n: !torch.int) -> !torch.int {
          %a = torch.prim.GetAttr %self["a"] : !torch.nn.Module<"M"> -> !torch.nn.Module<"Counter">
          %b = torch.prim.GetAttr %self["b"] : !torch.nn.Module<"M"> -> !torch.nn.Module<"Counter">
          %0 = torch.prim.CallMethod %a["bump"] (%n) : !torch.nn.Module<"Counter">, (!torch.int) -> !torch.int
          %1 = torch.prim.CallMethod %b["bump"] (%0) : !torch.nn.Module<"Counter">, (!torch.int) -> !torch.int
          %2 = torch.prim.CallMethod %a["bump"] (%1) : !torch.nn.Module<"Counter">, (!torch.int) -> !torch.int
          func.return %2 : !torch.int
        }
        torch.class_type @M {
          torch.attr "a" : !torch.nn.Module<"Counter">
          torch.attr "b" : !torch.nn.Module<"Counter">
          torch.method "forward", @M.forward
        }
        %0 = torch.constant.int 0
        %1 = torch.nn_module { torch.slot "count", %0 : !torch.int } : !torch.nn.Module<"Counter">
        %2 = torch.nn_module { torch.slot "count", %0 : !torch.int } : !torch.nn.Module<"Counter">
        %3 = torch.nn_module {
          torch.slot "a", %1 : !torch.nn.Module<"Counter">
          torch.slot "b", %2 : !torch.nn.Module<"Counter">
        } : !torch.nn.Module<"M">
        """,
    )


def test_an_object_with_two_paths_is_one(filecheck: Check) -> None:
    filecheck(
        PASS,
        COUNTER
        + """
        // CHECK: torch.initialize.global_slots [
        // CHECK-NEXT: @outer.inner.count
        // CHECK-NEXT: ]
        // CHECK: func.func @forward
        // CHECK-NEXT: func.call @outer.inner.bump
        // CHECK-NEXT: func.call @outer.inner.bump
        // CHECK: func.func private @outer.inner.bump
        // CHECK-NOT: func.func
        func.func private @M.forward(%self: !torch.nn.Module<"M">, %n: !torch.int) -> !torch.int {
          %o = torch.prim.GetAttr %self["outer"] : !torch.nn.Module<"M"> -> !torch.nn.Module<"Outer">
          %i = torch.prim.GetAttr %o["inner"] : !torch.nn.Module<"Outer"> -> !torch.nn.Module<"Counter">
          %s = torch.prim.GetAttr %self["same"] : !torch.nn.Module<"M"> -> !torch.nn.Module<"Counter">
          %0 = torch.prim.CallMethod %s["bump"] (%n) : !torch.nn.Module<"Counter">, (!torch.int) -> !torch.int
          %1 = torch.prim.CallMethod %i["bump"] (%0) : !torch.nn.Module<"Counter">, (!torch.int) -> !torch.int
          func.return %1 : !torch.int
        }
        torch.class_type @Outer { torch.attr "inner" : !torch.nn.Module<"Counter"> }
        torch.class_type @M {
          torch.attr "outer" : !torch.nn.Module<"Outer">
          torch.attr "same" : !torch.nn.Module<"Counter">
          torch.method "forward", @M.forward
        }
        %0 = torch.constant.int 0
        %1 = torch.nn_module { torch.slot "count", %0 : !torch.int } : !torch.nn.Module<"Counter">
        %2 = torch.nn_module { torch.slot "inner", %1 : !torch.nn.Module<"Counter"> } : !torch.nn.Module<"Outer">
        %3 = torch.nn_module {
          torch.slot "outer", %2 : !torch.nn.Module<"Outer">
          torch.slot "same", %1 : !torch.nn.Module<"Counter">
        } : !torch.nn.Module<"M">
        """,
    )


def test_functions_of_several_objects_and_of_none(filecheck: Check) -> None:
    """A free function is copied for each pair of objects; one without objects keeps its name."""
    filecheck(
        PASS,
        COUNTER
        + """
        // CHECK: func.func @forward(%[[N:.*]]: !torch.int)
        // CHECK-NEXT: func.call @swap(%[[N]])
        // CHECK-NEXT: func.call @swap_0(%{{.*}})
        // CHECK-NEXT: func.call @swap(%{{.*}})
        // CHECK-NEXT: func.call @free(%{{.*}})
        // CHECK: func.func private @swap(
        // CHECK-NEXT: torch.global_slot.get @a.count
        // CHECK-NEXT: torch.global_slot.set @b.count
        // CHECK: func.func private @swap_0(
        // CHECK-NEXT: torch.global_slot.get @b.count
        // CHECK-NEXT: torch.global_slot.set @a.count
        // CHECK: func.func private @free(
        func.func private @M.forward(%self: !torch.nn.Module<"M">, %n: !torch.int) -> !torch.int {
          %a = torch.prim.GetAttr %self["a"] : !torch.nn.Module<"M"> -> !torch.nn.Module<"Counter">
          %b = torch.prim.GetAttr %self["b"] : !torch.nn.Module<"M"> -> !torch.nn.Module<"Counter">
          %0 = func.call @swap(%a, %n, %b)
            : (!torch.nn.Module<"Counter">, !torch.int, !torch.nn.Module<"Counter">) -> !torch.int
          %1 = func.call @swap(%b, %0, %a)
            : (!torch.nn.Module<"Counter">, !torch.int, !torch.nn.Module<"Counter">) -> !torch.int
          %2 = func.call @swap(%a, %1, %b)
            : (!torch.nn.Module<"Counter">, !torch.int, !torch.nn.Module<"Counter">) -> !torch.int
          %3 = func.call @free(%2) : (!torch.int) -> !torch.int
          func.return %3 : !torch.int
        }
        func.func private @swap(%a: !torch.nn.Module<"Counter">, %n: !torch.int, %b: !torch.nn.Module<"Counter">)
            -> !torch.int {
          %0 = torch.prim.GetAttr %a["count"] : !torch.nn.Module<"Counter"> -> !torch.int
          torch.prim.SetAttr %b["count"] = %0 : !torch.nn.Module<"Counter">, !torch.int
          func.return %n : !torch.int
        }
        func.func private @free(%n: !torch.int) -> !torch.int { func.return %n : !torch.int }
        torch.class_type @M {
          torch.attr "a" : !torch.nn.Module<"Counter">
          torch.attr "b" : !torch.nn.Module<"Counter">
          torch.method "forward", @M.forward
        }
        %0 = torch.constant.int 0
        %1 = torch.nn_module { torch.slot "count", %0 : !torch.int } : !torch.nn.Module<"Counter">
        %2 = torch.nn_module { torch.slot "count", %0 : !torch.int } : !torch.nn.Module<"Counter">
        %3 = torch.nn_module {
          torch.slot "a", %1 : !torch.nn.Module<"Counter">
          torch.slot "b", %2 : !torch.nn.Module<"Counter">
        } : !torch.nn.Module<"M">
        """,
    )


def test_type_bounds_branches_loops_and_containers(filecheck: Check) -> None:
    """Objects are known inside regions; bounds of the other arguments stay; lists stay ops of the initialiser."""
    filecheck(
        PASS,
        """
        // CHECK: torch.global_slot.module_initializer {
        // CHECK-NEXT: %[[ONE:.*]] = torch.constant.int 1
        // CHECK-NEXT: %[[LIST:.*]] = torch.prim.ListConstruct %[[ONE]], %[[ONE]]
        // CHECK-NEXT: torch.initialize.global_slots [
        // CHECK-NEXT: @sizes(%[[LIST]] : !torch.list<int>)
        // CHECK: func.func @forward(%[[C:.*]]: !torch.bool,
        // CHECK-SAME: %[[X:.*]]: !torch.tensor {torch.type_bound = !torch.vtensor<[?],f32>})
        // CHECK: torch.prim.If %[[C]]
        // CHECK-NEXT: torch.global_slot.get @sizes : !torch.list<int>
        // CHECK: torch.prim.Loop
        // CHECK-NEXT: ^{{.*}}(%{{.*}}: !torch.int):
        // CHECK-NEXT: torch.global_slot.get @sizes : !torch.list<int>
        // CHECK: func.func private @helper(%{{.*}}: !torch.int)
        func.func private @M.forward(%self: !torch.nn.Module<"M">, %c: !torch.bool,
            %x: !torch.tensor {torch.type_bound = !torch.vtensor<[?],f32>}) -> !torch.tensor {
          %true = torch.constant.bool true
          %n = torch.prim.If %c -> (!torch.int) {
            %l = torch.prim.GetAttr %self["sizes"] : !torch.nn.Module<"M"> -> !torch.list<int>
            %0 = torch.aten.len.t %l : !torch.list<int> -> !torch.int
            torch.prim.If.yield %0 : !torch.int
          } else {
            %1 = torch.constant.int 2
            torch.prim.If.yield %1 : !torch.int
          }
          torch.prim.Loop %n, %true, init() {
          ^bb0(%i: !torch.int):
            %l = torch.prim.GetAttr %self["sizes"] : !torch.nn.Module<"M"> -> !torch.list<int>
            %2 = torch.aten.append.t %l, %i : !torch.list<int>, !torch.int -> !torch.list<int>
            %3 = torch.prim.CallMethod %self["helper"] (%i) : !torch.nn.Module<"M">, (!torch.int) -> !torch.int
            torch.prim.Loop.condition %true, iter()
          } : (!torch.int, !torch.bool) -> ()
          func.return %x : !torch.tensor
        }
        func.func private @M.helper(%self: !torch.nn.Module<"M">, %n: !torch.int) -> !torch.int {
          func.return %n : !torch.int
        }
        torch.class_type @M {
          torch.attr "sizes" : !torch.list<int>
          torch.method "forward", @M.forward
          torch.method private "helper", @M.helper
        }
        %0 = torch.constant.int 1
        %1 = torch.prim.ListConstruct %0, %0 : (!torch.int, !torch.int) -> !torch.list<int>
        %2 = torch.nn_module { torch.slot "sizes", %1 : !torch.list<int> } : !torch.nn.Module<"M">
        """,
    )


def test_a_program_without_objects_stays(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: func.func private @f
        // CHECK-NOT: initializer
        func.func private @f() { func.return }
        """,
    )


def test_an_object_without_attributes_has_no_initialiser(filecheck: Check) -> None:
    filecheck(
        PASS,
        """
        // CHECK: builtin.module {
        // CHECK-NEXT: func.func @forward() -> !torch.none
        // CHECK: func.func @again() -> !torch.none
        func.func private @A.forward(%self: !torch.nn.Module<"A">) -> !torch.none {
          %none = torch.constant.none
          func.return %none : !torch.none
        }
        torch.class_type @A { torch.method "forward", @A.forward  torch.method "again", @A.forward }
        %a = torch.nn_module {} : !torch.nn.Module<"A">
        """,
    )


# Errors


FORWARD = """
func.func private @M.forward(%self: !torch.nn.Module<"M">, %c: !torch.bool) -> !torch.int {{
  %a = torch.prim.GetAttr %self["a"] : !torch.nn.Module<"M"> -> !torch.nn.Module<"Counter">
  %b = torch.prim.GetAttr %self["b"] : !torch.nn.Module<"M"> -> !torch.nn.Module<"Counter">
  %n = torch.constant.int 1
  {body}
  func.return %n : !torch.int
}}
torch.class_type @M {{
  torch.attr "a" : !torch.nn.Module<"Counter">
  torch.attr "b" : !torch.nn.Module<"Counter">
  torch.method "forward", @M.forward
}}
%0 = torch.constant.int 0
%1 = torch.nn_module {{ torch.slot "count", %0 : !torch.int }} : !torch.nn.Module<"Counter">
%2 = torch.nn_module {{ torch.slot "count", %0 : !torch.int }} : !torch.nn.Module<"Counter">
%3 = torch.nn_module {{
  torch.slot "a", %1 : !torch.nn.Module<"Counter">
  torch.slot "b", %2 : !torch.nn.Module<"Counter">
}} : !torch.nn.Module<"M">
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (
            """%x = torch.prim.If %c -> (!torch.nn.Module<"Counter">) {
              torch.prim.If.yield %a : !torch.nn.Module<"Counter">
            } else {
              torch.prim.If.yield %b : !torch.nn.Module<"Counter">
            }""",
            r"the object 'b' \(class Counter\) is chosen by an if",
        ),
        (
            """%x = torch.prim.Loop %n, %c, init(%a) {
            ^bb0(%i: !torch.int, %o: !torch.nn.Module<"Counter">):
              torch.prim.Loop.condition %c, iter(%o : !torch.nn.Module<"Counter">)
            } : (!torch.int, !torch.bool, !torch.nn.Module<"Counter">) -> (!torch.nn.Module<"Counter">)""",
            r"the object 'a' \(class Counter\) changes in a loop",
        ),
        (
            'torch.prim.SetAttr %self["a"] = %b : !torch.nn.Module<"M">, !torch.nn.Module<"Counter">',
            r"the attribute 'a' of the root object \(class M\) is an object, and is replaced",
        ),
        (
            """%l = torch.prim.ListConstruct %a, %b
            : (!torch.nn.Module<"Counter">, !torch.nn.Module<"Counter">) -> !torch.list<nn.Module<"Counter">>""",
            r"the object 'a' \(class Counter\) is used as a value",
        ),
        (
            'func.call @give(%a) : (!torch.nn.Module<"Counter">) -> !torch.nn.Module<"Counter">',
            r"the object 'a' \(class Counter\) is returned: which object a call gives must be known",
        ),
    ],
    ids=["if", "loop", "set", "list", "return"],
)
def test_objects_that_are_known_only_at_run_time(body: str, reason: str) -> None:
    if body.startswith("func.call"):
        body = f"%got = {body}"
    give = """
    func.func private @give(%a: !torch.nn.Module<"Counter">) -> !torch.nn.Module<"Counter"> {
      func.return %a : !torch.nn.Module<"Counter">
    }
    """
    with pytest.raises(CompileError, match=reason):
        run_pipeline(parse_module(COUNTER + give + FORWARD.format(body=body)), PASS)


def test_recursive_methods_are_named() -> None:
    text = """
    func.func private @M.forward(%self: !torch.nn.Module<"M">) -> !torch.none {
      %a = torch.prim.GetAttr %self["part"] : !torch.nn.Module<"M"> -> !torch.nn.Module<"P">
      %0 = torch.prim.CallMethod %a["f"] () : !torch.nn.Module<"P">, () -> !torch.none
      func.return %0 : !torch.none
    }
    func.func private @P.f(%self: !torch.nn.Module<"P">) -> !torch.none {
      %0 = torch.prim.CallMethod %self["g"] () : !torch.nn.Module<"P">, () -> !torch.none
      func.return %0 : !torch.none
    }
    func.func private @P.g(%self: !torch.nn.Module<"P">) -> !torch.none {
      %0 = torch.prim.CallMethod %self["f"] () : !torch.nn.Module<"P">, () -> !torch.none
      func.return %0 : !torch.none
    }
    torch.class_type @P { torch.method "f", @P.f  torch.method "g", @P.g }
    torch.class_type @M { torch.attr "part" : !torch.nn.Module<"P">  torch.method "forward", @M.forward }
    %0 = torch.nn_module {} : !torch.nn.Module<"P">
    %1 = torch.nn_module { torch.slot "part", %0 : !torch.nn.Module<"P"> } : !torch.nn.Module<"M">
    """
    with pytest.raises(
        CompileError, match=r"the object 'part' \(class P\) calls itself: @part.f -> @part.g -> @part.f"
    ):
        run_pipeline(parse_module(text), PASS)


A = "torch.class_type @A { torch.attr %s }\n%%i = torch.constant.int 1\n%%n = torch.constant.none\n"
OBJECT = '%%%s = torch.nn_module { torch.slot "x", %%%s : %s } : !torch.nn.Module<"A">\n'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (A % '"x" : !torch.int', "there is no object"),
        (
            A % '"x" : !torch.int' + OBJECT % ("a", "i", "!torch.int") + OBJECT % ("b", "i", "!torch.int"),
            r'there are 2 root objects, .*: nn.Module<"A">, nn.Module<"A">',
        ),
        (
            A % '"x" : !torch.int' + OBJECT % ("a", "n", "!torch.none"),
            r"the attribute 'x' of the root object \(class A\) holds !torch.none, but the class declares !torch.int",
        ),
        (
            A % '"x" : !torch.int' + '%a = torch.nn_module {} : !torch.nn.Module<"A">',
            r"the root object \(class A\) has no value for its attribute 'x'",
        ),
        ('%a = torch.nn_module {} : !torch.nn.Module<"B">', "the root object is of the class .*B.*, which is not"),
        (
            """
            torch.class_type @P {}
            torch.class_type @A { torch.attr "x" : !torch.list<nn.Module<"P">> }
            %p = torch.nn_module {} : !torch.nn.Module<"P">
            %l = torch.prim.ListConstruct %p : (!torch.nn.Module<"P">) -> !torch.list<nn.Module<"P">>
            """
            + OBJECT % ("a", "l", '!torch.list<nn.Module<"P">>'),
            r"the attribute 'x' of the root object \(class A\) is a !torch.list<nn.Module<\"P\">>",
        ),
        (
            """
            torch.class_type @P {}
            torch.class_type @A { torch.attr "x" : !torch.optional<nn.Module<"P">> }
            %p = torch.nn_module {} : !torch.nn.Module<"P">
            """
            + OBJECT % ("a", "p", '!torch.nn.Module<"P">'),
            r"the attribute 'x' .* is a !torch.optional<nn.Module<\"P\">>: an object inside",
        ),
        (
            """
            torch.global_slot @s : !torch.int
            torch.class_type @A {}
            %a = torch.nn_module {} : !torch.nn.Module<"A">
            """,
            "the program has objects, and the global slot @s too",
        ),
    ],
    ids=["none", "two", "type", "missing", "undeclared", "list", "optional", "half"],
)
def test_object_graphs_that_cannot_be_flat(text: str, reason: str) -> None:
    with pytest.raises(CompileError, match=reason):
        run_pipeline(parse_module(text), PASS)


def test_many_objects_give_as_many_slots_and_functions() -> None:
    """A chain of 300 objects: names and calls go as deep as the objects do."""
    count = 300
    text = """
    func.func private @P.f(%self: !torch.nn.Module<"P">) -> !torch.int {
      %0 = torch.prim.GetAttr %self["x"] : !torch.nn.Module<"P"> -> !torch.int
      func.return %0 : !torch.int
    }
    torch.class_type @P { torch.attr "x" : !torch.int  torch.method "f", @P.f }
    %i = torch.constant.int 1
    """
    part = '!torch.nn.Module<"P">'
    attrs = "\n".join(f'torch.attr "p{i}" : {part}' for i in range(count))
    objects = "\n".join(f'%o{i} = torch.nn_module {{ torch.slot "x", %i : !torch.int }} : {part}' for i in range(count))
    slots = "\n".join(f'torch.slot "p{i}", %o{i} : {part}' for i in range(count))
    calls = "\n".join(
        f'%g{i} = torch.prim.GetAttr %self["p{i}"] : !torch.nn.Module<"M"> -> {part}\n'
        f'%c{i} = torch.prim.CallMethod %g{i}["f"] () : {part}, () -> !torch.int'
        for i in range(count)
    )
    text += f"""
    func.func private @M.forward(%self: !torch.nn.Module<"M">) -> !torch.int {{
      {calls}
      func.return %c{count - 1} : !torch.int
    }}
    torch.class_type @M {{ {attrs} torch.method "forward", @M.forward }}
    {objects}
    %m = torch.nn_module {{ {slots} }} : !torch.nn.Module<"M">
    """
    flat = pretty_text(run_pipeline(parse_module(text), PASS))
    assert flat.count("torch.global_slot.get") == flat.count("func.call") == flat.count('"private" @p') == count
    inlined = pretty_text(run_pipeline(parse_module(flat), "inline"))
    assert inlined.count("torch.global_slot.get") == count
    assert inlined.count("func.func") == 1
