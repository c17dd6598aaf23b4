"""What the verifier refuses, and how it says so."""

from __future__ import annotations

import pytest
from xdsl.utils.exceptions import VerifyException

from flambeau.dialects.context import parse_module

CLASS_C = 'torch.class_type @C {\n  torch.attr "n" : !torch.int\n  torch.attr "t" : !torch.tensor\n}\n'
SELF = '!torch.nn.Module<"C">'
INT_SLOT = "torch.global_slot @n : !torch.int\n"


def function(body: str, arguments: str = "") -> str:
    return f"func.func @f({arguments}) {{\n  {body}\n  return\n}}\n"


def nn_module(*slots: str, type_: str = SELF) -> str:
    values = "%i = torch.constant.int 1\n%f = torch.constant.float 1.0\n%t = torch.prim.Uninitialized : !torch.tensor\n"
    lines = "\n".join(f"  torch.slot {slot}" for slot in slots)
    return f"{values}%m = torch.nn_module {{\n{lines}\n}} : {type_}\n"


N, T = '"n", %i : !torch.int', '"t", %t : !torch.tensor'


def initializer(*slots: str) -> str:
    values = "  %i = torch.constant.int 1\n  %f = torch.constant.float 1.0\n"
    return f"torch.global_slot.module_initializer {{\n{values}  torch.initialize.global_slots [{' '.join(slots)}]\n}}\n"


SHARED = [
    # Class types
    (
        'torch.class_type @C {\n  torch.attr "n" : !torch.int\n  torch.attr "n" : !torch.int\n}',
        "class type @C has two members 'n'",
    ),
    ("torch.class_type @C {\n  %0 = torch.constant.int 1\n}", "torch.constant.int cannot stand in the class type @C"),
    ('torch.class_type @C {\n  torch.method "m", @m\n}', "method 'm' of @C: there is no function @m"),
    (
        f'func.func private @m({SELF})\ntorch.class_type @C {{\n  torch.method "m", @m\n}}',
        "method 'm' of @C: the function @m has no body",
    ),
    (
        f'func.func @m(%s: {SELF}) {{\n  return\n}}\ntorch.class_type @C {{\n  torch.method "m", @m\n}}',
        "method 'm' of @C: the function @m must be private",
    ),
    (
        'func.func private @m(%s: !torch.int) {\n  return\n}\ntorch.class_type @C {\n  torch.method "m", @m\n}',
        'the first argument of @m must be !torch.nn.Module<"C">',
    ),
    ('torch.attr "n" : !torch.int', "torch.attr stands inside a torch.class_type"),
    # Objects
    (nn_module(), "there is no torch.class_type @C"),
    (CLASS_C + nn_module(N, T, '"x", %i : !torch.int'), "class type @C has no attribute 'x'"),
    (CLASS_C + nn_module(N), "attribute 't' of class type @C has no slot"),
    (CLASS_C + nn_module(N, N, T), "slot 'n' is given twice"),
    (CLASS_C + nn_module(T, N), "are not in the order of class type @C"),
    (CLASS_C + nn_module('"n", %f : !torch.float', T), "slot 'n' holds !torch.float, but @C declares !torch.int"),
    (CLASS_C + nn_module(N, T, type_="!torch.int"), "torch.nn_module gives an !torch.nn.Module, not !torch.int"),
    (
        CLASS_C + f"%m = torch.nn_module {{\n  %0 = torch.constant.int 1\n}} : {SELF}",
        "torch.constant.int cannot stand in a torch.nn_module",
    ),
    ('%i = torch.constant.int 1\ntorch.slot "n", %i : !torch.int', "torch.slot stands inside a torch.nn_module"),
    (
        function('%0 = torch.prim.GetAttr %i["n"] : !torch.int -> !torch.int', "%i: !torch.int"),
        "torch.prim.GetAttr takes an !torch.nn.Module, got !torch.int",
    ),
    (
        function('torch.prim.SetAttr %i["n"] = %i : !torch.int, !torch.int', "%i: !torch.int"),
        "torch.prim.SetAttr takes an !torch.nn.Module, got !torch.int",
    ),
    (
        function('%0 = torch.prim.CallMethod %i["n"] () : !torch.int, () -> !torch.int', "%i: !torch.int"),
        "torch.prim.CallMethod takes an !torch.nn.Module, got !torch.int",
    ),
    (function("%0 = torch.prim.CreateObject !torch.int"), "torch.prim.CreateObject gives an !torch.nn.Module"),
    # Global slots
    (INT_SLOT + initializer("@n(%f : !torch.float)"), "slot @n is a !torch.int and cannot hold !torch.float"),
    (INT_SLOT + initializer("@n(%i : !torch.int)", "@n(%i : !torch.int)"), "slot @n is initialised twice"),
    (INT_SLOT + initializer(), "slot @n has no initial value"),
    (initializer("@x(%i : !torch.int)"), "there is no torch.global_slot @x"),
    (initializer() * 2, "a module has one torch.global_slot.module_initializer"),
    # Branches and loops
    (
        function(
            '%0 = "torch.prim.If"(%i) ({\n  torch.prim.If.yield %i : !torch.int\n}, {\n  '
            "torch.prim.If.yield %i : !torch.int\n}) : (!torch.int) -> !torch.int",
            "%i: !torch.int",
        ),
        "the condition of torch.prim.If is a !torch.bool, got !torch.int",
    ),
    (
        function(
            "%0 = torch.prim.If %b -> (!torch.int) {\n  torch.prim.If.yield %b : !torch.bool\n} else {\n  "
            "torch.prim.If.yield %i : !torch.int\n}",
            "%b: !torch.bool, %i: !torch.int",
        ),
        "torch.prim.If, results of the first branch: got (!torch.bool), expected (!torch.int)",
    ),
    (
        function(
            "%0 = torch.prim.If %b -> (!torch.int) {\n  torch.prim.If.yield %i : !torch.int\n} else {\n  "
            "torch.prim.If.yield\n}",
            "%b: !torch.bool, %i: !torch.int",
        ),
        "torch.prim.If, results of the second branch: got (), expected (!torch.int)",
    ),
    (
        function(
            "torch.prim.Loop %i, %b, init() {\n^bb0:\n  torch.prim.Loop.condition %b, iter()\n} "
            ": (!torch.int, !torch.bool) -> ()",
            "%b: !torch.bool, %i: !torch.int",
        ),
        "torch.prim.Loop, arguments of the region: got (), expected (!torch.int)",
    ),
    (
        function(
            "%0 = torch.prim.Loop %i, %b, init(%i) {\n^bb0(%n: !torch.int, %x: !torch.int):\n  "
            "torch.prim.Loop.condition %b, iter(%b : !torch.bool)\n} "
            ": (!torch.int, !torch.bool, !torch.int) -> !torch.int",
            "%b: !torch.bool, %i: !torch.int",
        ),
        "torch.prim.Loop, next values: got (!torch.bool), expected (!torch.int)",
    ),
    (
        function(
            "%0 = torch.prim.Loop %i, %b, init(%b) {\n^bb0(%n: !torch.int, %x: !torch.int):\n  "
            "torch.prim.Loop.condition %b, iter(%x : !torch.int)\n} "
            ": (!torch.int, !torch.bool, !torch.bool) -> !torch.int",
            "%b: !torch.bool, %i: !torch.int",
        ),
        "torch.prim.Loop, initial values: got (!torch.bool), expected (!torch.int)",
    ),
    (function("torch.prim.If.yield"), "torch.prim.If.yield stands inside a torch.prim.If"),
    # Values
    (
        function("%0 = torch.prim.ListConstruct %i : (!torch.int) -> !torch.list<float>", "%i: !torch.int"),
        "torch.prim.ListConstruct: an element of !torch.list<float> cannot be !torch.int",
    ),
    (
        function("%0 = torch.prim.ListConstruct %i : (!torch.int) -> !torch.int", "%i: !torch.int"),
        "torch.prim.ListConstruct must give a list, not !torch.int",
    ),
    (
        function("%0 = torch.prim.TupleConstruct %i : !torch.int -> !torch.tuple<int, int>", "%i: !torch.int"),
        "torch.prim.TupleConstruct: 1 elements do not make a !torch.tuple<int, int>",
    ),
    (
        function("%0 = torch.prim.TupleConstruct %i : !torch.int -> !torch.tuple<float>", "%i: !torch.int"),
        "torch.prim.TupleConstruct: !torch.int is not a !torch.float of !torch.tuple<float>",
    ),
    (
        function(
            "%0 = torch.prim.DictConstruct keys(%i : !torch.int) values(%i : !torch.int) -> !torch.dict<int, str>",
            "%i: !torch.int",
        ),
        "torch.prim.DictConstruct: a value of !torch.dict<int, str> cannot be !torch.int",
    ),
    (
        function("%0 = torch.derefine %i : !torch.int to !torch.str", "%i: !torch.int"),
        "torch.derefine: !torch.int is not a subtype of !torch.str",
    ),
    (
        function("%0 = torch.derefine %t : !torch.tensor to !torch.vtensor", "%t: !torch.tensor"),
        "torch.derefine: !torch.tensor is not a subtype of !torch.vtensor",
    ),
    (
        function(
            "%0 = torch.tensor_static_info_cast %v : !torch.vtensor<[2],f32> to !torch.vtensor<[3],f32>",
            "%v: !torch.vtensor<[2],f32>",
        ),
        "no tensor is both a !torch.vtensor<[2],f32> and a !torch.vtensor<[3],f32>",
    ),
    (
        function('%0 = "torch.copy.to_vtensor"(%v) : (!torch.vtensor) -> !torch.vtensor', "%v: !torch.vtensor"),
        "torch.copy.to_vtensor takes a !torch.tensor, got !torch.vtensor",
    ),
    (
        function('%0 = "torch.copy.to_tensor"(%v) : (!torch.vtensor) -> !torch.vtensor', "%v: !torch.vtensor"),
        "torch.copy.to_tensor gives a !torch.tensor, not !torch.vtensor",
    ),
    (
        function('%0 = "torch.copy.to_tensor"(%v) : (!torch.vtensor) -> !torch.tensor<[2],f32>', "%v: !torch.vtensor"),
        "torch.copy.to_tensor keeps shape and dtype",
    ),
    (
        function(
            "torch.overwrite.tensor.contents %v overwrites %v : !torch.vtensor, !torch.vtensor", "%v: !torch.vtensor"
        ),
        "writes a !torch.vtensor over a !torch.tensor",
    ),
    (
        function(
            "torch.overwrite.tensor.contents %v overwrites %t : !torch.vtensor, !torch.tensor<[2],f32>",
            "%v: !torch.vtensor, %t: !torch.tensor<[2],f32>",
        ),
        "!torch.vtensor does not fit over !torch.tensor<[2],f32>",
    ),
    # Constants
    (
        function("%0 = torch.vtensor.literal(dense<1.0> : tensor<2xf32>) : !torch.vtensor<[3],f32>"),
        "tensor<2xf32> does not make a !torch.vtensor<[3],f32>",
    ),
    (
        function("%0 = torch.vtensor.literal(dense<1> : tensor<2xsi64>) : !torch.vtensor<[2],si32>"),
        "tensor<2xsi64> does not make a !torch.vtensor<[2],si32>",
    ),
    (
        function("%0 = torch.tensor.literal(dense<1> : tensor<2xsi64>) : !torch.tensor<[3],unk>"),
        "tensor<2xsi64> does not make a !torch.tensor<[3],unk>",
    ),
    (
        function("%0 = torch.vtensor.literal(dense<1> : tensor<2xsi64>) : !torch.tensor<[2],si64>"),
        "torch.vtensor.literal gives a !torch.vtensor, not !torch.tensor<[2],si64>",
    ),
    (function('%0 = "torch.constant.int"() : () -> !torch.int'), "torch.constant.int cannot hold None"),
    (
        function('%0 = "torch.constant.int"() <{value = 1 : i64}> : () -> !torch.float'),
        "torch.constant.int gives !torch.int, not !torch.float",
    ),
    # Registry ops
    (
        function(
            '%0 = "torch.aten.relu"(%v, %v) : (!torch.vtensor, !torch.vtensor) -> !torch.vtensor', "%v: !torch.vtensor"
        ),
        "torch.aten.relu takes 1 operands, got 2",
    ),
    (function('"torch.aten.relu"(%v) : (!torch.vtensor) -> ()', "%v: !torch.vtensor"), "has 1 results, got 0"),
    (
        function("%0 = torch.aten.relu %i : !torch.int -> !torch.vtensor", "%i: !torch.int"),
        "torch.aten.relu: argument 'self' is Tensor, got !torch.int",
    ),
    (
        function("%0 = torch.aten.relu %v : !torch.vtensor -> !torch.int", "%v: !torch.vtensor"),
        "torch.aten.relu: the result is Tensor, got !torch.int",
    ),
    (
        function("%0 = torch.aten.relu_ %v : !torch.vtensor -> !torch.tensor", "%v: !torch.vtensor"),
        "torch.aten.relu_: argument 'self' is Tensor and must be mutable, got !torch.vtensor",
    ),
    (
        function(
            "%0 = torch.aten.add_.Tensor %t, %v, %i : !torch.tensor, !torch.vtensor, !torch.int -> !torch.tensor",
            "%t: !torch.tensor, %v: !torch.vtensor, %i: !torch.int",
        ),
        "torch.aten.add_.Tensor: argument 'other' is Tensor and must be mutable, got !torch.vtensor",
    ),
    (
        function(
            "%0 = torch.aten.view %v, %l : !torch.vtensor, !torch.list<float> -> !torch.vtensor",
            "%v: !torch.vtensor, %l: !torch.list<float>",
        ),
        "torch.aten.view: argument 'size' is int[], got !torch.list<float>",
    ),
]
"""Programs that torch-mlir refuses too."""

STRICTER = [
    (
        function("%0 = torch.tensor_static_info_cast %t : !torch.tensor to !torch.vtensor", "%t: !torch.tensor"),
        "takes a tensor to one of its own kind",
    ),
    (
        CLASS_C + function(f'%0 = torch.prim.GetAttr %s["x"] : {SELF} -> !torch.int', f"%s: {SELF}"),
        "class type @C has no attribute 'x'",
    ),
    (
        CLASS_C + function(f'%0 = torch.prim.GetAttr %s["n"] : {SELF} -> !torch.float', f"%s: {SELF}"),
        "attribute 'n' is a !torch.int, not a !torch.float",
    ),
    (
        CLASS_C + function(f'torch.prim.SetAttr %s["n"] = %s : {SELF}, {SELF}', f"%s: {SELF}"),
        f"attribute 'n' is a !torch.int and cannot hold {SELF}",
    ),
    (
        CLASS_C + function(f'%0 = torch.prim.CallMethod %s["go"] () : {SELF}, () -> !torch.int', f"%s: {SELF}"),
        "class type @C has no method 'go'",
    ),
    (
        f"func.func private @m(%s: {SELF}) -> !torch.none {{\n  %0 = torch.constant.none\n  return %0 : !torch.none\n}}"
        '\ntorch.class_type @C {\n  torch.method "m", @m\n}\n'
        + function(f'%0 = torch.prim.CallMethod %s["m"] (%s) : {SELF}, ({SELF}) -> !torch.none', f"%s: {SELF}"),
        "method 'm' takes 0 arguments, got 1",
    ),
    (function("%0 = torch.global_slot.get @n : !torch.int"), "there is no torch.global_slot @n"),
    (INT_SLOT + function("%0 = torch.global_slot.get @n : !torch.str"), "slot @n is a !torch.int, not a !torch.str"),
    (
        INT_SLOT + function("torch.global_slot.set @n = %s : !torch.str", "%s: !torch.str"),
        "slot @n is a !torch.int and cannot hold !torch.str",
    ),
    (
        function("%0 = torch.prim.TupleUnpack %t : !torch.tuple<int, int> -> !torch.int", "%t: !torch.tuple<int, int>"),
        "torch.prim.TupleUnpack: !torch.tuple<int, int> does not have 1 elements",
    ),
    (
        'torch.global_slot @n : !torch.int {\n  %0 = torch.constant.str "a"\n'
        "  torch.global_slot.init %0 : !torch.str\n}",
        "slot @n is a !torch.int and cannot hold !torch.str",
    ),
    (
        "torch.global_slot.module_initializer {\n  %0 = torch.constant.int 1\n}",
        "torch.constant.int terminates block in single-block region but is not a terminator",
    ),
    (
        function(
            "torch.bind_symbolic_shape %v, [%i], affine_map<()[s0] -> (s0)> : !torch.vtensor<[?],f32>",
            "%v: !torch.vtensor<[?],f32>, %i: !torch.int",
        ),
        "a symbol must come from torch.symbolic_int",
    ),
    (
        function(
            '%i = torch.symbolic_int "s0" {min_val = 0, max_val = 1} : !torch.int\n'
            "  torch.bind_symbolic_shape %v, [%i], affine_map<()[s0] -> (s0, s0)> : !torch.vtensor<[?],f32>",
            "%v: !torch.vtensor<[?],f32>",
        ),
        "does not give the 1 dimensions of !torch.vtensor<[?],f32>",
    ),
    (
        function('%i = torch.symbolic_int "s0" {min_val = 3, max_val = 1} : !torch.int'),
        "no s0 lies between 3 and 1",
    ),
]
"""Programs that torch-mlir accepts, or on which it crashes."""


@pytest.mark.parametrize("text, message", [*SHARED, *STRICTER], ids=lambda value: value[:60].splitlines()[0])
def test_invalid_program_is_refused(text: str, message: str) -> None:
    """S66, S67, S76."""
    with pytest.raises(VerifyException) as caught:
        parse_module(text).verify()
    assert message in str(caught.value)


@pytest.mark.peer
def test_upstream_refuses_them_too(upstream) -> None:
    accepted = [text for text, _ in SHARED if not upstream.error(text)]
    assert accepted == []
