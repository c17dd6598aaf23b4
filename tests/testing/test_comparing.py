"""What a comparison says: the first element that differs, where, by how many ulps."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from flambeau.testing.cases import Case
from flambeau.testing.comparing import compare, either


def a_case(**options: Any) -> Case:
    return Case("user", "x", list, **options)


def test_equal_results_have_no_difference() -> None:
    x = torch.tensor([1.0, math.nan, math.inf])
    assert compare(a_case(), (x, [1, True]), (x.clone(), [1, True])) is None


def test_the_first_difference_is_told_in_ulps() -> None:
    """S105: where results differ first, by how many units in the last place."""
    expected = torch.tensor([[1.0, 2.0], [4.0, 8.0]])
    actual = expected.clone()
    actual[1, 0] = 4.5
    found = compare(a_case(), actual, expected)
    assert found is not None
    assert (found.index, found.expected, found.got) == ((1, 0), "4.0", "4.5")
    assert found.ulps == 1 << 20  # an eighth of what lies between two powers of two
    assert (found.differing, found.elements) == (1, 4)
    assert found.worst == 0.125
    assert str(found) == (
        "result 0[1, 0]: 4.5, expected 4.0, 1048576 ulps apart; 1 of 4 elements differ, at worst by 0.125 relative"
    )


def test_ulps_count_across_zero() -> None:
    tiny = torch.tensor([2.0**-149])
    found = compare(a_case(tolerance=(0.0, 0.0)), -tiny, tiny)
    assert found is not None
    assert found.ulps == 2


@pytest.mark.parametrize(
    "actual, expected, what",
    [
        (torch.zeros(2), torch.zeros(3), "shape"),
        (torch.zeros(2, dtype=torch.int32), torch.zeros(2), "dtype"),
        ([torch.zeros(2)], [torch.zeros(2), torch.zeros(2)], "structure"),
        (torch.zeros(2), 1, "structure"),
        (1, True, "structure"),
    ],
)
def test_types_must_be_equal(actual: Any, expected: Any, what: str) -> None:
    found = compare(a_case(), actual, expected)
    assert found is not None
    assert found.what == what


def test_tolerance_is_that_of_the_dtype_of_the_result() -> None:
    one = torch.ones(1)
    assert compare(a_case(), one + 5e-5, one) is None
    assert compare(a_case(), one + 5e-4, one) is not None
    assert compare(a_case(), (one * 1.002).half(), one.half()) is None
    assert compare(a_case(), torch.tensor([3]), torch.tensor([2])) is not None


def test_nan_is_equal_to_nan_only() -> None:
    nan, one = torch.tensor([math.nan]), torch.ones(1)
    assert compare(a_case(), nan, nan) is None
    assert compare(a_case(), one, nan) is not None
    found = compare(a_case(), nan, one)
    assert found is not None
    assert found.ulps is None


def test_signs_of_zeros_count_if_asked_for() -> None:
    zero = torch.zeros(1)
    assert compare(a_case(), -zero, zero) is None
    assert compare(a_case(compare="signs"), -zero, zero) is not None


def test_either_of_two_answers_will_do() -> None:
    """PyTorch's vector code and its code for single numbers differ; what is neither of the two is wrong."""
    case = a_case(compare="signs")
    vector, alone = torch.tensor([math.nan, 0.0, 2.0]), torch.tensor([0.5, -0.0, 2.0])
    got = torch.tensor([0.5, -0.0, 2.0])
    assert compare(case, got, vector) is not None
    assert compare(case, got, either(case, got, vector, alone)) is None
    assert compare(case, vector, either(case, vector, vector, alone)) is None
    wrong = torch.tensor([0.5, -0.0, 3.0])
    found = compare(case, wrong, either(case, wrong, vector, alone))
    assert found is not None
    assert (found.index, found.expected, found.got) == ((2,), "2.0", "3.0")
    assert compare(case, got[:2], either(case, got[:2], vector, alone)) is not None  # another shape


def test_types_only_ignores_contents() -> None:
    assert compare(a_case(compare="types"), torch.rand(3), torch.rand(3)) is None
    assert compare(a_case(compare="types"), torch.rand(3), torch.rand(4)) is not None


def test_models_are_compared_by_the_largest_value() -> None:
    expected = torch.tensor([100.0, 0.001])
    near = a_case(compare="norm", tolerance=(1e-4, 0.0))
    assert compare(near, expected + 0.005, expected) is None
    found = compare(near, expected + torch.tensor([0.0, 0.5]), expected)
    assert found is not None
    assert found.index == (1,)
    assert found.worst == pytest.approx(0.005)
    assert compare(near, torch.tensor([math.nan, 0.001]), expected) is not None
