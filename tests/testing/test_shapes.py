"""The suite of blocks at all small sizes: what is in it, and a sample of it under the profile that users have."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from flambeau.testing.backends import load_backend
from flambeau.testing.batch import Batch
from flambeau.testing.cases import Call, Case, Sample
from flambeau.testing.comparing import compare, is_near
from flambeau.testing.results import PASS
from flambeau.testing.suites import load_suite

CASES = load_suite("shapes", ["float32", "float16", "int64"]).cases
HARD = (
    "attention-eager-2x7-4x32", "attention-sdpa-3x13-3x8", "attention-sdpa-2x15-3x8", "attention-dynamic-eager-2x16",
    "rows-softmax-17", "conv-strided-7", "chain-0003", "chain-0008", "product-0001", "product-0030",
)  # fmt: skip


def test_what_is_in_the_suite():
    found = [name.split("/")[1] for name in CASES if name.endswith("float32")]
    eager = [n for n in found if re.fullmatch(r"attention-eager-[123]x\d+-\dx\d+", n)]
    assert len(eager) == 3 * 17 * 4
    assert sum(re.fullmatch(r"chain-\d+", n) is not None for n in found) == 2000
    assert not any(name.endswith("int64") for name in CASES)


@pytest.mark.engine
@pytest.mark.parametrize(
    "backend, dtype, names",
    [("iree", "float32", HARD), ("iree", "float16", HARD[:3]), ("iree-quick", "float32", HARD[:3])],
)
def test_blocks_are_right(backend: str, dtype: str, names: tuple[str, ...]):
    cases = [CASES[f"shapes/{name}/{dtype}"] for name in names]
    results = list(Batch(load_backend(backend)).run(cases, ["linalg-on-tensors"]))
    assert {r.case: r.detail for r in results if r.status != PASS} == {}
    assert len(results) == len(names)


@pytest.mark.engine
def test_a_batch_of_small_products_on_stablehlo_and_tosa():
    cases = [CASES["shapes/attention-eager-2x7-4x32/float32"], CASES["shapes/attention-sdpa-2x15-3x8/float32"]]
    results = list(Batch(load_backend("iree")).run(cases, ["stablehlo", "tosa"]))
    assert [r.status for r in results] == [PASS] * 4


def test_rounding_is_judged_by_the_truth():
    case = Case("shapes", "x", lambda: [], "float16", tolerance=(1e-3, 0.0), compare="norm")
    truth, eager = torch.tensor([1.0, 0.5], dtype=torch.float64), torch.tensor([1.0, 0.51], dtype=torch.float16)
    other, wrong = torch.tensor([1.0, 0.49], dtype=torch.float16), torch.tensor([0.5, 1.0], dtype=torch.float16)
    assert compare(case, other, eager) is not None
    assert is_near(case, other, eager, truth)
    assert not is_near(case, wrong, eager, truth)
    assert not is_near(case, torch.tensor([1.0, float("nan")], dtype=torch.float16), eager, truth)
    assert not is_near(case, other.float(), eager, truth)


def test_a_wrong_program_is_found():
    class Wrong:
        name = "wrong"
        targets = ("linalg-on-tensors",)

        def compile(self, module):
            return module

        def run(self, artefact, function, inputs):
            return [torch.zeros(2, 3).numpy()]

    sample = Sample(torch.nn.Softmax(-1), [Call((torch.randn(2, 3),))], rounding=True)
    case = replace(CASES["shapes/rows-softmax-3/float32"], samples=lambda: [sample])
    (result,) = Batch(Wrong()).run([case], ["linalg-on-tensors"])
    assert (result.stage, result.reason) == ("compare", "wrong values")
