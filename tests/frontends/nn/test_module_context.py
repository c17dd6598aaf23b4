"""Building IR op by op, as PI's document shows it (S37 to S43)."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import flambeau
from flambeau import nn, ops
from flambeau.opt import run_pipeline


def example() -> flambeau.Module:
    with flambeau.module_context() as module:
        x = ops.ones(10)
        lin = nn.Linear(10, 10)
        lin(x)
    return module


EXPECTED = """\
builtin.module {
  %0 = torch.tensor.literal(dense<1.000000e+00> : tensor<10xf64>) : !torch.tensor<[10],f64>
  %1 = torch.tensor.literal(dense<[...]> : tensor<10xf64>) : !torch.tensor<[10],f64>
  %2 = torch.tensor.literal(dense<[...]> : tensor<10x10xf64>) : !torch.tensor<[10,10],f64>
  %3 = torch.aten.linear %0, %2, %1 : !torch.tensor<[10],f64>, !torch.tensor<[10,10],f64>, !torch.tensor<[10],f64> -> !torch.tensor
}
"""  # noqa: E501


def test_the_example_of_the_document_prints_its_ir() -> None:
    """S38, S39, S40, S41: x, bias, weight as literals of f64, in this order; the result has no type yet."""
    assert re.sub(r"dense<\[.*\]>", "dense<[...]>", str(example())).rstrip() == EXPECTED.rstrip()
    example().verify()


def test_refine_types_finds_the_type_of_the_result() -> None:
    """S40: the result is refined by RefineTypes."""
    module = example()
    run_pipeline(module.op, "torch-refine-types")
    assert str(module).count("torch.aten.linear") == 1
    assert "!torch.tensor<[10],f64> -> !torch.tensor<[10],f64>" in str(module)


def test_contexts_do_not_nest() -> None:
    """S37."""
    with flambeau.module_context():
        with pytest.raises(RuntimeError, match="cannot be nested"), flambeau.module_context():
            pass
        with pytest.raises(RuntimeError, match="cannot be nested"):
            flambeau.trace(lambda x: x, nn.TensorSpec([1]))
    with flambeau.module_context() as module:  # the failure has left nothing behind
        ops.zeros(2)
    assert "tensor<2xf64>" in str(module)


def test_an_op_outside_a_context_says_so() -> None:
    with pytest.raises(RuntimeError, match="no program to add this op to"):
        ops.ones(2)
    with flambeau.module_context():
        x = ops.ones(2)
    with pytest.raises(RuntimeError, match="no program"):
        x + 1
    with flambeau.module_context(), pytest.raises(RuntimeError, match="belongs to another program"):
        x + ops.ones(2)


def test_the_default_dtype_is_switchable() -> None:
    """S41."""
    with flambeau.module_context(dtype="f32") as module:
        ops.ones(2)
    assert "tensor<2xf32>" in str(module)
    assert nn.Linear(2, 2).weight.data.dtype == np.float32
    flambeau.set_default_dtype("f64")
    try:
        assert nn.Linear(2, 2).weight.data.dtype == np.float64
        traced = flambeau.trace(lambda x: x + ops.ones(2), nn.TensorSpec([2], "f64"))
        assert "!torch.vtensor<[2],f64>, !torch.vtensor<[2],f64>" in str(traced)
    finally:
        flambeau.set_default_dtype("f32")
    with pytest.raises(TypeError, match="float dtype"):
        flambeau.set_default_dtype("int32")


def test_shapes_are_known_though_the_ir_does_not_say() -> None:
    with flambeau.module_context():
        x = ops.ones(3, 4)
        y = ops.softmax(x @ x.T, -1)
        assert y.shape == (3, 3)
        assert y.dtype.name == "float64"
        assert [part.shape for part in ops.split(x, 2)] == [(2, 4), (1, 4)]


def test_large_weights_are_not_text() -> None:
    with flambeau.module_context() as module:
        nn.Linear(200, 200)(ops.zeros(200))
    assert "dense_resource<weight>" in str(module)
    assert module.weights["weight"].shape == (200, 200)


# --- Typed values ---


def test_a_class_for_every_type_of_the_schemas() -> None:
    """S42: generated from the registry; isinstance, and casts from lists, numbers and None."""
    from flambeau.frontends.nn.core.typed import value_classes

    assert len(value_classes()) > 20
    with flambeau.module_context() as module:
        x = ops.ones(2)
        assert isinstance(x, ops.AnyTorchTensorValue)
        assert isinstance(x, ops.AnyTorchOptionalTensorValue)
        assert not isinstance(x, ops.Torch_IntValue)
        n = ops.Torch_IntValue(3)
        assert isinstance(n, ops.Torch_IntValue)
        assert str(n.ssa.type) == "!torch.int"
        sizes = ops.AnyTorchListOfTorchIntValue([1, 2])
        assert isinstance(sizes, ops.AnyTorchListOfTorchIntValue)
        assert str(sizes.ssa.type) == "!torch.list<int>"
        assert str(ops.AnyTorchOptionalTensorValue(None).ssa.type) == "!torch.none"
        assert ops.AnyTorchTensorValue([[1.0, 2.0]]).shape == (1, 2)
        assert ops.reshape(x, sizes).shape == (1, 2)
        with pytest.raises(TypeError, match="AnyTorchListOfTorchIntValue is made from list of int, not str"):
            ops.AnyTorchListOfTorchIntValue("two")
    assert "torch.prim.ListConstruct" in str(module)


def test_signatures_can_be_inspected() -> None:
    """S43."""
    linear = inspect.signature(ops.linear)
    assert list(linear.parameters) == ["input", "weight", "bias"]
    assert linear.parameters["bias"].default is None
    assert linear.parameters["bias"].annotation == "Tensor | None"
    assert (
        str(inspect.signature(ops.softmax))
        == "(input: 'Tensor', dim: 'int', dtype: 'DTypeLike | None' = None) -> 'Tensor'"
    )
    assert "aten.softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor" in ops.softmax.__doc__
    assert list(inspect.signature(ops.add.Scalar).parameters) == ["input", "other", "alpha"]
    with flambeau.module_context():
        assert list(inspect.signature(ops.ones(2).softmax).parameters) == ["dim", "dtype"]


def test_every_operator_has_a_signature_and_a_text() -> None:
    names = dir(ops)
    assert len(names) > 1000
    for name in names:
        found = getattr(ops, name)
        if type(found).__name__ == "Operator":
            assert inspect.signature(found).parameters is not None
            assert found.__doc__
