"""The registry snapshot, what is derived from it, and that the dialect is complete."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.test_value import create_ssa_value

from flambeau.dialects.torch import registry
from flambeau.dialects.torch.ops import STRUCTURAL, Torch, TorchOp, create_op, op_class
from flambeau.dialects.torch.schema import Schema


def schema(name: str) -> Schema:
    found = registry.schema(name)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def installed() -> dict[str, Any]:
    pytest.importorskip("torch")
    return registry.read_installed()


def test_snapshot_is_that_of_the_installed_torch(installed: dict[str, Any]) -> None:
    """S61: `flambeau registry update` would change nothing."""
    snapshot = registry.snapshot()
    assert snapshot.torch_version == installed["torch"]
    assert snapshot.declarations == installed["ops"]
    assert snapshot.jit_only == set(installed["jit_only"])
    assert snapshot.tags == {tag: set(names) for tag, names in installed["tags"].items()}


@pytest.mark.peer
def test_snapshot_knows_upstreams_ops(installed: dict[str, Any]) -> None:
    """S61: the ops that torch-mlir's dialect defines."""
    pytest.importorskip("torch_mlir")
    assert registry.snapshot().upstream == set(installed["upstream"])


def test_update_reports_what_changed(tmp_path) -> None:
    """S46: S61: a difference is reported, not swallowed."""
    pytest.importorskip("torch")
    path = tmp_path / "registry.json"
    text = registry.SNAPSHOT.read_text()
    text = text.replace('"aten.relu": ', '"aten.no_such_op": ')
    text = text.replace('"aten.tanh": "(Tensor self)', '"aten.tanh": "(Tensor x)')
    path.write_text(text)
    assert registry.write_snapshot(path) == (["aten.relu"], ["aten.no_such_op"], ["aten.tanh"])
    assert path.read_text() == registry.SNAPSHOT.read_text()


RELU_RECORD = """
JitOperator 'aten::relu : (Tensor) -> (Tensor)':
  MLIR op name = torch.aten.relu
  MLIR td def name = Torch_AtenReluOp
  namespace = aten
  unqualified_name = relu
  overload_name =
  is_c10_op = True
  is_vararg = False
  is_varret = False
  is_mutable = False
  arguments:
    arg: {'name': 'self', 'type': 'Tensor', 'pytype': 'Tensor'}
  returns:
    ret: {'name': '', 'type': 'Tensor', 'pytype': 'Tensor'}
"""

RELU_INPLACE_RECORD = """
JitOperator 'aten::relu_ : (Tensor) -> (Tensor)':
  MLIR op name = torch.aten.relu_
  MLIR td def name = Torch_AtenRelu_Op
  namespace = aten
  unqualified_name = relu_
  overload_name =
  is_c10_op = True
  is_vararg = False
  is_varret = False
  is_mutable = True
  arguments:
    arg: {'name': 'self', 'type': 'Tensor', 'pytype': 'Tensor', 'alias_info': {'is_write': True, 'before': ['alias::a'], 'after': ['alias::a']}}
  returns:
    ret: {'name': '', 'type': 'Tensor', 'pytype': 'Tensor', 'alias_info': {'is_write': True, 'before': ['alias::a'], 'after': ['alias::a']}}
"""  # noqa: E501

RELU_ODS = """
def Torch_AtenReluOp : Torch_Op<"aten.relu", [
  AllowsTypeRefinement,
  HasValueSemantics
]> {
  let summary = "Generated op for `aten::relu : (Tensor) -> (Tensor)`";
  let arguments = (ins
    AnyTorchTensorType:$self
  );
  let results = (outs
    AnyTorchTensorType:$result
  );
  let assemblyFormat = "$self attr-dict `:` type($self) `->` type($result)";
}
"""

RELU_INPLACE_ODS = """
def Torch_AtenRelu_Op : Torch_Op<"aten.relu_", [
  IsTrailingUnderscoreInplaceVariant,
  AllowsTypeRefinement
]> {
  let summary = "Generated op for `aten::relu_ : (Tensor) -> (Tensor)`";
  let arguments = (ins
    AnyTorchTensorType:$self
  );
  let results = (outs
    AnyTorchTensorType:$result
  );
  let assemblyFormat = "$self attr-dict `:` type($self) `->` type($result)";
}
"""


@pytest.mark.parametrize("name, text", [("aten.relu", RELU_RECORD), ("aten.relu_", RELU_INPLACE_RECORD)])
def test_record(name: str, text: str) -> None:
    """S62: what the registry says about an op."""
    assert registry.record_text(schema(name)) == text.strip()


@pytest.mark.parametrize("name, text", [("aten.relu", RELU_ODS), ("aten.relu_", RELU_INPLACE_ODS)])
def test_ods(name: str, text: str) -> None:
    """S63, S64, S65: the op's definition."""
    assert registry.ods_text(schema(name)) == text.strip()


INPLACE, REFINES = "IsTrailingUnderscoreInplaceVariant", "AllowsTypeRefinement"
VALUE, READ_ONLY = "HasValueSemantics", "ReadOnly"


@pytest.mark.parametrize(
    "name, traits",
    [
        ("aten.relu", {REFINES, VALUE}),
        ("aten.add.Tensor", {REFINES, VALUE}),
        ("aten.topk", {REFINES, VALUE}),
        ("aten.arange", {REFINES, VALUE}),
        ("aten.__and__.Tensor", {REFINES, VALUE}),
        ("aten.relu_", {REFINES, INPLACE}),
        ("aten.copy_", {REFINES, INPLACE}),
        ("aten.index_put_", {REFINES, INPLACE}),
        ("aten.t_", {REFINES, INPLACE}),
        ("aten.__iand__.Tensor", {REFINES}),
        ("aten.add.out", {REFINES}),
        ("aten.append.t", {REFINES}),
        ("aten.view", {REFINES}),
        ("aten.split.Tensor", {REFINES}),
        ("aten.size", {REFINES, READ_ONLY}),
        ("aten.dim", {REFINES, READ_ONLY}),
        ("aten.item", {REFINES, READ_ONLY}),
        ("aten.Int.Tensor", {REFINES, READ_ONLY}),
    ],
)
def test_traits(name: str, traits: set[str]) -> None:
    """S63, S64: traits follow from alias annotations."""
    assert set(registry.traits(schema(name))) == traits


@pytest.mark.parametrize(
    "name, view",
    [("aten.view", True), ("aten.split.Tensor", True), ("aten.detach", True), ("aten.relu", False), ("aten.t_", False)],
)
def test_views(name: str, view: bool) -> None:
    assert schema(name).is_view == view


def test_overloads_of_an_operator() -> None:
    assert {"aten.add.Tensor", "aten.add.Scalar", "aten.add.out"} <= {s.name for s in registry.overloads("aten.add")}


@pytest.fixture(scope="module")
def upstream_classes() -> dict[str, str]:
    """Upstream's op names and the names of their classes."""
    generated = pytest.importorskip("torch_mlir.dialects._torch_ops_gen")
    views = [v for k, v in vars(generated).items() if k.endswith("Op") and hasattr(v, "OPERATION_NAME")]
    return {v.OPERATION_NAME: v.__name__ for v in views}


@pytest.mark.peer
def test_every_op_of_upstreams_dialect_is_known(upstream_classes: dict[str, str]) -> None:
    """S66: as an op of the registry, or as one written by hand."""
    ours = {op.name for op in Torch.operations}
    assert len(upstream_classes) == 846
    assert sorted(upstream_classes.keys() - ours) == []
    assert sorted(ours - upstream_classes.keys()) == ["torch.override.tensor", "torch.overwrite.tensor"]


@pytest.mark.peer
def test_class_names_are_upstreams(upstream_classes: dict[str, str]) -> None:
    """S63: `Torch_AtenReluOp` and its 775 fellows."""
    named_by_hand = {op.name for op in STRUCTURAL}
    for name in registry.snapshot().upstream:
        if f"torch.{name}" not in named_by_hand:
            assert registry.class_name(name) == upstream_classes[f"torch.{name}"]


def registry_ops() -> list[type[TorchOp]]:
    by_hand = {op.name for op in STRUCTURAL}
    return [op_class(n) for n in sorted(registry.upstream_names()) if f"torch.{n}" not in by_hand]


_TYPE = {
    "Tensor": "vtensor", "int": "int", "float": "float", "bool": "bool", "str": "str", "Scalar": "int",
    "Device": "Device", "Generator": "Generator", "ScalarType": "int", "Layout": "int", "MemoryFormat": "int",
}  # fmt: skip


def argument_type(argument, op_schema: Schema) -> str:
    """Return a type that fits an argument."""
    t = argument.type
    base = _TYPE.get(t.base, "any")
    if t.is_tensor and (op_schema.is_inplace_variant or (argument.alias is not None and argument.alias.is_write)):
        base = "tensor"
    if t.base.startswith("Dict("):
        base = "dict<str, int>"
    if t.base.endswith("LinearPackedParamsBase"):
        base = "LinearParams"
    if t.elements_optional:
        base = f"optional<{base}>"
    return f"!torch.list<{base}>" if t.is_list else f"!torch.{base}"


def generic_line(op_schema: Schema, operands: list[str], results: list[str]) -> str:
    values = ", ".join(f"%a{i}" for i in range(len(operands)))
    bound = f"%r:{len(results)} = " if results else ""
    return f'{bound}"torch.{op_schema.name}"({values}) : ({", ".join(operands)}) -> ({", ".join(results)})'


def program(op_schema: Schema, operands: list[str], results: list[str]) -> str:
    arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(operands))
    return f"func.func @f({arguments}) {{\n  {generic_line(op_schema, operands, results)}\n  return\n}}"


@pytest.mark.peer
def test_every_registry_op_prints_as_upstream_prints_it(ours, upstream) -> None:
    """S65: the assembly of all ops that come out of the registry, in one module of one function each."""
    functions = []
    for cls in registry_ops():
        s = cls.schema
        assert s is not None
        types = [argument_type(a, s) for a in s.arguments] or ["!torch.int"] * s.is_vararg
        results = [argument_type(r, s) for r in s.returns] or ["!torch.any"] * s.is_varret
        text = program(s, types, results)
        if s.name == "hop_flex_attention":
            text = text.replace("vtensor", "vtensor<[1,2,3,4],f32>")
        functions.append(re.sub("@f", f"@f{len(functions)}", text, count=1))
    text = "\n".join(functions)
    theirs = upstream.text(text)
    assert upstream.text(ours.text(theirs)) == theirs
    for generic in (False, True):
        assert upstream.text(ours.text(text, generic)) == theirs
    aten = [line.split(" = ")[-1].strip() for line in theirs.splitlines() if "torch.aten." in line]
    mine = [line.split(" = ")[-1].strip() for line in ours.text(theirs).splitlines() if "torch.aten." in line]
    assert mine == aten
    assert len(aten) > 700


CANDIDATES = ["vtensor", "tensor", "int", "number", "none", "list<float>", "list<optional<vtensor>>", "optional<int>"]


@pytest.mark.peer
def test_the_verifier_takes_what_upstreams_takes(ours, upstream) -> None:
    """Each argument of every seventh op, with types that fit and types that do not."""

    @cache
    def parse(spelling: str) -> Attribute:
        function = ours.parse(f"func.func private @f({spelling})").body.block.first_op
        assert isinstance(function, FuncOp)
        return function.function_type.inputs.data[0]

    def accepts(cls: type[Operation], operands: list[str], results: list[str]) -> bool:
        values = [create_ssa_value(parse(t)) for t in operands]
        try:
            cls.create(operands=values, result_types=[parse(t) for t in results]).verify()
        except VerifyException:
            return False
        return True

    for cls in registry_ops()[::7]:
        s = cls.schema
        if s.is_vararg or s.name in ("prim.unchecked_cast", "hop_flex_attention"):
            continue
        fitting = [argument_type(a, s) for a in s.arguments]
        results = [argument_type(r, s) for r in s.returns]
        for i, argument in enumerate(s.arguments):
            if argument.alias is not None and argument.alias.is_write and not s.is_inplace_variant:
                continue  # Upstream lets an out= argument be a value, which nobody can write.
            for candidate in CANDIDATES:
                operands = [*fitting[:i], f"!torch.{candidate}", *fitting[i + 1 :]]
                refused = upstream.error(program(s, operands, results))
                assert accepts(cls, operands, results) == (not refused), (s.name, argument.name, candidate, refused)


def test_an_op_that_upstream_lacks_becomes_an_operator() -> None:
    assert not registry.is_upstream("aten.linalg_svd")
    op = create_op("aten.linalg_svd", [], [])
    assert op.name == "torch.operator"
    assert op.overload == "aten.linalg_svd"
    assert op.schema is registry.schema("aten.linalg_svd")
    assert create_op("aten.relu", [], []).name == "torch.aten.relu"


def test_unknown_ops_have_no_class() -> None:
    with pytest.raises(KeyError):
        op_class("aten.no_such_op")


@pytest.mark.parametrize(
    "name, form",
    [
        ("aten.add_.Tensor", "aten.add.Tensor"),
        ("aten.zero_", "aten.zeros_like"),
        ("aten.transpose_", "aten.transpose.int"),
        ("aten.normal_", "aten.normal_functional"),
        ("aten.fill_diagonal_", None),
        ("aten.set_.source_Tensor_storage_offset", None),
    ],
)
def test_the_value_form_of_an_op_in_place(name: str, form: str | None) -> None:
    """By its name, or else by an overload with the same parameters."""
    assert registry.value_form(name) == form


def test_ops_that_change_how_a_tensor_looks_at_its_storage() -> None:
    """PyTorch's tag, and what gives the same as another tensor; `set_` gives another storage."""
    found = registry.inplace_views()
    assert found["aten.squeeze_.dim"] == "aten.squeeze.dim"
    assert found["aten.transpose_"] == "aten.transpose.int"
    assert "aten.relu_" not in found
    assert not any(name.startswith("aten.set_") for name in found)
