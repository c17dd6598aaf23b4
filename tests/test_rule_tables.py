"""The rule tables against PyTorch's registry."""

from __future__ import annotations

import inspect

import pytest

from flambeau.dialects.torch import registry
from flambeau.frontends.expanded import EXPANDED, is_whole
from flambeau.infer.builder import rules as infer_rules
from flambeau.ir.conversion import RuleTable
from flambeau.lowering.linalg.lower import loop_rules
from flambeau.lowering.linalg.lower import rules as linalg_rules
from flambeau.lowering.linalg.rules import LINALG_RULES, LOOP_RULES
from flambeau.lowering.scalars import SCALAR_RULES
from flambeau.passes.decompose import decompositions
from flambeau.passes.random_state import random_ops

TABLES = {t.name: t for t in (infer_rules(), linalg_rules(), SCALAR_RULES, decompositions())}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_rule_is_for_an_op_that_exists(table: RuleTable) -> None:
    # Rules for other namespaces are for custom ops, which somebody else declares.
    ours = [name for name in table if name.split(".")[0] in registry.NAMESPACES and name != "prim.ListUnpack"]
    assert [name for name in ours if registry.schema(name) is None] == []


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_rule_takes_the_arguments_of_its_schema(table: RuleTable) -> None:
    """A rule is called with all arguments of the schema, in order."""
    wrong = []
    for name, rule in table.rules.items():
        schema = registry.schema(name)
        if schema is None:
            continue
        builder = [] if table.name == "infer" else [None]
        try:
            inspect.signature(rule, follow_wrapped=False).bind(*builder, *([None] * len(schema.arguments)))
        except TypeError as e:
            wrong.append(f"{name}: {e}")
    assert wrong == []


def test_no_op_has_a_decomposition_and_a_lowering() -> None:
    """One that lowers directly needs no decomposition: whichever came first would hide the other.

    But for `as_strided`: its decomposition finds the tensor whose memory it reads, and leaves what reads that one.
    """
    assert [name for name in decompositions() if name in linalg_rules()] == ["aten.as_strided"]


def test_an_op_is_of_the_same_family_in_every_folder() -> None:
    """Who finds an op in `lowering/linalg/reduce.py` finds it in `infer/reduce.py` and `passes/decompose/reduce.py`."""
    loop_rules()
    families: dict[str, set[str]] = {}
    for table in (LINALG_RULES, LOOP_RULES, infer_rules(), decompositions()):
        for name, family in table.families.items():
            families.setdefault(name, set()).add(family)
    assert {name: found for name, found in families.items() if len(found) > 1} == {}


def test_a_rule_is_of_the_family_of_the_module_that_adds_it() -> None:
    """Even where the rule itself is one that several families share, and for aliases, which no module names."""
    families = infer_rules().families
    assert families["aten.relu"] == "activation"
    assert families["aten.clone"] == "view"
    assert families["aten.greater.Tensor"] == decompositions().families["aten.greater.Tensor"] == "compare"


def test_a_second_rule_for_an_op_is_refused() -> None:
    table = RuleTable("test")
    table("aten.relu")(lambda b, x: x)
    with pytest.raises(ValueError, match=r"two rules for aten\.relu"):
        table("aten.relu")(lambda b, x: x)


def test_what_pytorch_takes_apart_at_import_is_what_we_have_nothing_for() -> None:
    """`raw` does not depend on the rules of linalg: what is expanded is a list, and this holds both together."""
    ours = {*linalg_rules(), *decompositions(), *SCALAR_RULES, *random_ops()}
    assert sorted(EXPANDED & ours) == []
    of_tensors = [n for n in infer_rules() if (s := registry.schema(n)) and any(a.type.is_tensor for a in s.arguments)]
    assert [name for name in of_tensors if is_whole(name) and name not in ours] == []
