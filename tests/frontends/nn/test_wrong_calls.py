"""Calls that cannot be: the error names the argument, or explains what a value of a program is (S43, S45)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau import nn, ops

WRONG: list[tuple[str, Callable[[Any], Any], type[Exception], str]] = [
    ("type", lambda x: ops.linear(x, "w"), TypeError, r"linear\(\): argument 'weight' must be Tensor .*, not str"),
    ("second type", lambda x: ops.relu(3), TypeError, r"relu\(\): argument 'self' must be Tensor .*, not int"),
    ("float for int", lambda x: x.softmax(1.5), TypeError, r"'dim' must be int, not float"),
    ("bool for int", lambda x: x.softmax(True), TypeError, r"'dim' must be int, not bool"),
    ("list", lambda x: x.permute("ab"), TypeError, r"'dims' must be list of int, not list of str"),
    ("list of tensors", lambda x: ops.cat(x), TypeError, r"'tensors' must be list of Tensor"),
    ("missing", lambda x: ops.matmul(x), TypeError, r"argument 'other' is missing"),
    ("too many", lambda x: ops.relu(x, 1), TypeError, r"it takes 1 positional argument, got 2"),
    ("twice", lambda x: ops.softmax(x, 1, dim=1), TypeError, r"argument 'dim' is given twice"),
    ("keyword", lambda x: ops.relu(x, dims=1), TypeError, r"it has no argument 'dims'"),
    ("overloads", lambda x: x.max("a"), TypeError, r"no overload takes these arguments\n  max"),
    ("number as tensor", lambda x: ops.matmul(x, 2), TypeError, r"'other' must be Tensor"),
    ("None", lambda x: ops.cat(None), TypeError, r"'tensors' must be list of Tensor.*, not None"),
    ("bool()", lambda x: 1 if x > 0 else 2, TypeError, r"value in a program.*flambeau\.ops\.where"),
    ("and", lambda x: x and x, TypeError, r"no truth value"),
    ("item", lambda x: x.sum().item(), TypeError, r"not known here: it is a value in a program"),
    ("int", lambda x: int(x.sum()), TypeError, r"not a Python number: it is a value in a program"),
    ("float", lambda x: float(x.sum()), TypeError, r"not a Python number"),
    ("range", lambda x: range(x.shape[0]), TypeError, r"Int is not a Python number"),
    ("size in if", lambda x: 1 if x.shape[0] > 2 else 0, TypeError, r"Bool has no truth value"),
    ("tolist", lambda x: x.tolist(), TypeError, r"Return the tensor from the program"),
    ("numpy", lambda x: np.asarray(x), TypeError, r"numbers in a tensor are not known"),
    ("iteration", lambda x: list(x), TypeError, r"iterate over a dimension of unknown size"),
    ("len", lambda x: len(x), TypeError, r"length of this tensor is not known.*x\.shape\[0\]"),
    ("in", lambda x: 3 in x, TypeError, r"what a tensor contains"),
    ("shapes", lambda x: x @ ops.ones(3, 3), ValueError, r"aten\.matmul"),
    ("no such op", lambda x: ops.sofmax(x), AttributeError, r"has no 'sofmax'.*did you mean softmax"),
    ("no such method", lambda x: x.sofmax(), AttributeError, r"PyTorch has no such method"),
    (
        "no rule",
        lambda x: ops.linalg_ldl_factor(x),
        flambeau.CompileError,
        r"aten\.linalg_ldl_factor has no shape and dtype rule",
    ),
    ("write shape", lambda x: x.sum(0).add_(ops.ones(3, 4)), ValueError, r"add_.*has shape \[4\]"),
    ("write dtype", lambda x: (x > 0).add_(1.5), ValueError, r"cannot be written to a bool tensor"),
    ("step", lambda x: x[::-1], ValueError, r"step of a slice must be positive"),
    ("indices", lambda x: x[0, 0, 0], IndexError, r"too many indices"),
    ("index type", lambda x: x["a"], TypeError, r"an index is made of ints"),
    ("object array", lambda x: x + np.array(["a"]), TypeError, r"no counterpart"),
]


@pytest.mark.parametrize(("function", "error", "message"), [w[1:] for w in WRONG], ids=[w[0] for w in WRONG])
def test_wrong(function: Callable[[Any], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"(?s){message}"):
        flambeau.trace(function, nn.TensorSpec([None, 4]))


def test_a_wrong_shape_names_the_op_and_leaves_no_program_behind() -> None:
    with pytest.raises(ValueError, match=r"aten\.linear"):
        flambeau.trace(nn.Linear(3, 4), nn.TensorSpec([2, 5]))
    assert flambeau.trace(nn.Linear(3, 4), nn.TensorSpec([2, 3])).signatures["main"].results[0].shape == (2, 4)


def test_an_op_without_a_rule_has_a_diagnostic_with_the_line() -> None:
    with pytest.raises(flambeau.CompileError) as caught:
        flambeau.trace(lambda x: ops.linalg_ldl_factor(x), nn.TensorSpec([4]))
    (problem,) = caught.value.diagnostics
    assert problem.op == "aten.linalg_ldl_factor"
    assert problem.file == __file__
