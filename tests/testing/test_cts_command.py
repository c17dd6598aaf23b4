"""`flambeau cts` from the command line: exit statuses, files, levels, expected failures, a sample of the suites."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from flambeau.commands import flambeau

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
CASES = str(HERE / "cases_of_all_kinds.py")


def cts(*args: Any) -> Result:
    return CliRunner().invoke(flambeau, ["cts", "-j", "1", *map(str, args)])


def test_what_passes_exits_with_0_and_writes_what_is_asked_for(tmp_path: Path) -> None:
    """S56: one command, and reports for people and machines."""
    html, junit, data = tmp_path / "r.html", tmp_path / "r.xml", tmp_path / "r.json"
    done = cts("--cases", CASES, "-k", "passes", "--html", html, "--junit", junit, "--json", data)
    assert done.exit_code == 0, done.output
    assert "2/2 100.0%" in done.output
    assert html.read_text().startswith("<!doctype html>")
    suites = ElementTree.parse(junit).getroot()
    assert [(s.get("name"), s.get("tests"), s.get("failures")) for s in suites] == [
        ("linalg-on-tensors", "2", "0"),
        ("stablehlo", "2", "0"),
        ("tosa", "2", "0"),
    ]
    report = json.loads(data.read_text())
    assert {r["status"] for r in report["results"]} == {"pass"}
    assert len(report["run"]["digest"]) == 64


def test_a_failure_exits_with_1_until_it_is_expected_and_a_pass_then_does(tmp_path: Path) -> None:
    """S104: the set of expected failures is made from a run, and shrinks."""
    backend = tmp_path / "mine.py"
    shutil.copy(HERE / "bad_backend.py", backend)
    options = ("--backend", backend, "--cases", CASES, "-k", "is_refused", "-k", "is_wrong", "-k", "passes_too")
    first = cts(*options, "--json", tmp_path / "first.json")
    assert first.exit_code == 1
    assert "fail user/is_wrong/float32 on linalg-on-tensors" in first.output
    assert "result 0[3]: 9.5, expected 9.0" in first.output
    known = cts(*options, "--update-xfail")
    assert known.exit_code == 0, known.output
    assert json.loads((tmp_path / "mine.xfail.json").read_text()) == {
        "linalg-on-tensors": {
            "user": {
                "compare: wrong values": ["is_wrong/float32"],
                "compile: RuntimeError: no hyperbolic functions on this chip": ["is_refused/float32"],
            }
        }
    }
    assert cts(*options).exit_code == 0
    backend.write_text(backend.read_text().replace("math.tanh", "math.nothing"))  # the next release of the compiler
    mended = cts(*options, "--compare", tmp_path / "first.json")
    assert mended.exit_code == 1
    assert "xpass user/is_refused/float32" in mended.output
    assert "better user/is_refused/float32 on linalg-on-tensors (was compile: RuntimeError" in mended.output


def test_a_page_shows_what_passes_by_op_target_and_dtype(tmp_path: Path) -> None:
    """S50: the matrix of ops, that coverage.md is."""
    page = tmp_path / "coverage.md"
    cases = (
        "--case",
        "ops/tanh/float32",
        "--case",
        "ops/logical_not/bool",
        "--target",
        "stablehlo",
        "--target",
        "tosa",
    )
    assert cts(*cases, "--matrix", page).exit_code == 0
    text = page.read_text()
    assert "| ops | f32 | 1 of 1, 100.0% | 1 of 1, 100.0% |" in text
    assert "| `tanh` | unary | ST |" in text
    assert "| op | family | f32 | bool |" in text


def test_a_report_says_its_levels_and_is_believed_only_as_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S57: the level that is reached, a digest and a signature, both checked by whoever reads the report."""
    path = tmp_path / "r.json"
    monkeypatch.setenv("FLAMBEAU_CTS_KEY", "secret")
    assert cts("--case", "ops/tanh/float32", "--target", "stablehlo", "--json", path).exit_code == 0
    report = json.loads(path.read_text())
    full = {"level": "full", "target": "stablehlo", "reached": True, "share": 1.0, "cases": 1}
    assert full in report["run"]["levels"]
    assert len(report["run"]["signature"]) == 64
    assert cts("--from", path).exit_code == 0
    monkeypatch.setenv("FLAMBEAU_CTS_KEY", "another")
    refused = cts("--from", path)
    assert refused.exit_code == 2
    assert "it was not signed with the key of FLAMBEAU_CTS_KEY" in refused.output
    monkeypatch.delenv("FLAMBEAU_CTS_KEY")
    report["run"]["levels"][0]["reached"] = not report["run"]["levels"][0]["reached"]
    path.write_text(json.dumps(report))
    changed = cts("--from", path)
    assert changed.exit_code == 2
    assert "it was changed since it was written" in changed.output


def test_getting_worse_exits_with_1(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", HERE / "bad_backend.py"
    options = ("--cases", CASES, "-k", "is_wrong", "--target", "linalg-on-tensors")
    assert cts(*options, "--json", good).exit_code == 0
    worse = cts(*options, "--backend", bad, "--compare", good, "--out", tmp_path / "other")
    assert worse.exit_code == 1
    assert "worse user/is_wrong/float32 on linalg-on-tensors (compare: wrong values)" in worse.output


@pytest.mark.parametrize("example", ["backend.py", "remote_backend.py"])
def test_the_examples_reach_a_level(example: str, tmp_path: Path) -> None:
    """S97: the example backends reach a level."""
    options = ("--backend", EXAMPLES / example, "--suite", "ops", "--level", "core", "--every", "30")
    done = cts(*options, "--dtype", "f32,bool")
    assert done.exit_code == 0, done.output
    assert "level core on linalg-on-tensors: reached" in done.output


def test_below_a_level_exits_with_1(tmp_path: Path) -> None:
    done = cts("--backend", HERE / "bad_backend.py", "--case", "ops/tanh/float32", "--level", "full")
    assert done.exit_code == 1
    assert "level full on linalg-on-tensors: not reached, 0.0% of 1 lowered cases pass and" in done.output


@pytest.mark.parametrize(
    "options, message",
    [
        (("--suite", "nix"), "there is no suite 'nix'; there are ops, edge, dynamic, gradients, shapes, models"),
        (("--dtype", "f31"), "there is no dtype 'f31'; there are f64, f32"),
        (("--backend", "nix"), "there is no backend 'nix'"),
        (("--target", "nix"), "unknown output type 'nix'"),
        (("--case", "add"), "'add' is not the id of a case"),
        (("--case", "ops/nix/float32"), "there is no case 'ops/nix/float32'"),
        (("-k", "nothing of that name"), "no case is selected"),
    ],
)
def test_mistakes_exit_with_2(options: tuple[str, ...], message: str) -> None:
    done = cts(*options)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output


def test_cases_can_be_listed() -> None:
    done = cts("--suite", "edge", "--dtype", "f16,i64", "--list", "-k", "nan_clamp")
    assert done.output.split() == [
        f"edge/{n}/{d}" for n in ("nan_clamp", "nan_clamp_tensor") for d in ("float16", "int64")
    ]


UPSTREAM = """
import torch
from torch_mlir_e2e_test.framework import TestUtils
from torch_mlir_e2e_test.registry import register_test_case
from torch_mlir_e2e_test.annotations import annotate_args, export


class AddModule(torch.nn.Module):
    @export
    @annotate_args([None, ([-1], torch.float32, True), ([-1], torch.int64, True)])
    def forward(self, a, b):
        return a + b

    @export
    def twice(self, a):
        return a * 2


@register_test_case(module_factory=lambda: AddModule())
def AddModule_basic(module, tu: TestUtils):
    module.forward(tu.rand(4, low=-1.0), tu.randint(4, high=5))
    module.twice(tu.nans(2, 2))


# ==============================================================================


@register_test_case(module_factory=lambda: AddModule())
def AddModule_wrong(module, tu: TestUtils):
    module.forward(tu.rand(4), tu.randint(4))
"""


def test_a_suite_of_torch_mlir_runs_as_it_is(tmp_path: Path) -> None:
    """S99: files of upstream's end-to-end framework are suites."""
    path = tmp_path / "upstream_suite.py"
    path.write_text(UPSTREAM)
    done = cts("--cases", path, "--json", tmp_path / "r.json", "--target", "stablehlo")
    assert done.exit_code == 0, done.output
    results = json.loads((tmp_path / "r.json").read_text())["results"]
    assert [(r["name"], r["status"], r["calls"]) for r in results] == [
        ("AddModule_basic", "pass", 2),
        ("AddModule_wrong", "pass", 1),
    ]


ONE_BY_ONE = """
from flambeau.engines.eager import EagerEngine

class Backend:
    name = "one-by-one"
    targets = ("torch",)
    many = False

    def compile(self, module):
        assert len(module.signatures) == 1, "one function at a time"
        return EagerEngine().compile(module)

    def run(self, artefact, function, inputs):
        return artefact.call_flat(function, inputs)
"""


def test_a_backend_may_ask_for_one_function_at_a_time(tmp_path: Path) -> None:
    """The samples of a case are programs of their own then."""
    path = tmp_path / "one_by_one.py"
    path.write_text(ONE_BY_ONE)
    done = cts("--backend", path, "--case", "ops/add/float32", "--case", "ops/sum/float32", "--out", tmp_path / "o")
    assert done.exit_code == 0, done.output
    assert "2/2 100.0%" in done.output


def test_a_case_of_a_file_by_its_id(tmp_path: Path) -> None:
    path = tmp_path / "upstream_suite.py"
    path.write_text(UPSTREAM)
    case = ("--case", "user/AddModule_basic/float32", "--target", "tosa")
    done = cts("--cases", path, *case, "--out", tmp_path / "o")
    assert done.exit_code == 0, done.output
    assert "1/1 100.0%" in done.output
    done = cts(*case, "--out", tmp_path / "o")
    assert done.exit_code == 2
    assert "name its file with --cases" in done.output


def test_a_file_may_name_dtypes_that_cannot_be_compiled(tmp_path: Path) -> None:
    """S99: what is said about arguments is looked at when a program is scripted, and not when its file is loaded."""
    path = tmp_path / "upstream_suite.py"
    odd = UPSTREAM.replace("AddModule", "OddModule").replace("torch.float32, True", "torch.float8_e8m0fnu, True", 1)
    path.write_text(UPSTREAM + odd.replace("lambda: OddModule()", "lambda: OddModule(), timeout_seconds=5"))
    done = cts("--cases", path, "--target", "tosa", "-k", "_basic", "--out", tmp_path / "o")
    assert done.exit_code == 0, done.output
    assert "2/2 100.0%" in done.output


SAMPLES = [
    ("ops", "f32,i64,bool,bf16,f16,c64", 330),
    ("edge", "f32,i32,f16", 240),
    ("dynamic", "f32", 280),
    ("models", "f32", 170),
]
"""Suites, dtypes, and of how many cases one is run; `make cts` runs them all."""


@pytest.mark.parametrize("suite, dtypes, every", SAMPLES)
def test_a_sample_of_the_suite_is_as_expected(suite: str, dtypes: str, every: int) -> None:
    """S89, S92, S93: The cases that the XFAIL set names fail, and all others pass, on all three targets."""
    done = cts("--suite", suite, "--dtype", dtypes, "--every", every)
    assert done.exit_code == 0, done.output


def test_edge_values_of_64_bits_on_tosa() -> None:
    """What does not fit 32 bits is right where 64-bit integers are kept."""
    names = ("sum/int32", "masked.sum/int32", "nan_cumsum/int32", "long/float32", "index_gather/int64", "abs/int64")
    cases = [part for name in names for part in ("--case", f"edge/{name}")]
    done = cts("--backend", "iree-int64", *cases)
    assert done.exit_code == 0, done.output
    assert done.output.count("100.0%") == 3, done.output
