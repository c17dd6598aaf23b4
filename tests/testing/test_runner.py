"""A run: results of all kinds, workers that die, what is on disk when it is stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flambeau.testing import runner
from flambeau.testing.results import Result, ResultFile, Run
from flambeau.testing.runner import Plan, execute
from flambeau.testing.workers import Limits, WorkerError
from flambeau.testing.xfail import XfailSet

pytestmark = pytest.mark.engine

HERE = Path(__file__).parent
CASES = HERE / "cases_of_all_kinds.py"
BAD = HERE / "bad_backend.py"
LIMITS = Limits(seconds=12, memory=2 << 30)


def plan(tmp_path: Path, **options: Any) -> Plan:
    settings: dict[str, Any] = {"suites": (), "files": (CASES,), "folder": tmp_path, "jobs": 1, "limits": LIMITS}
    return Plan(**(settings | options))


@pytest.fixture(scope="module")
def bad_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return execute(plan(tmp_path_factory.mktemp("bad"), backend=str(BAD), jobs=2))


def outcome(run: Run, name: str) -> Result:
    (found,) = [r for r in run.results if r.name == name]
    return found


@pytest.mark.parametrize(
    "name, status, stage, kind, reason",
    [
        ("passes", "pass", "", "", ""),
        ("passes_too", "pass", "", "", ""),
        ("has_no_rule", "fail", "lower", "error", "aten.poisson: no lowering rule"),
        ("cannot_be_exported", "excluded", "export", "error", "GuardOnDataDependentSymNode"),
        ("crashes", "fail", "compile", "crash", "the process died of SIGSEGV in compile"),
        ("hangs", "fail", "compile", "timeout", "no end after 12 s of compile"),
        ("eats_memory", "fail", "compile", "memory", "more than 2048 MiB of memory in compile"),
        ("is_refused", "fail", "compile", "error", "no hyperbolic functions on this chip"),
        ("is_wrong", "fail", "compare", "mismatch", "wrong values"),
    ],
)
def test_every_case_has_its_own_fate(bad_run: Run, name: str, status: str, stage: str, kind: str, reason: str) -> None:
    result = outcome(bad_run, name)
    assert (result.status, result.stage, result.kind) == (status, stage, kind), result
    assert reason in result.reason


def test_a_failure_says_all_there_is_to_say(bad_run: Run) -> None:
    wrong = outcome(bad_run, "is_wrong")
    assert wrong.mismatch is not None
    assert wrong.mismatch["index"] == [3] or wrong.mismatch["index"] == (3,)
    assert (wrong.mismatch["expected"], wrong.mismatch["got"]) == ("9.0", "9.5")
    assert wrong.inputs == "float32[5] = [0.0, 1.0, 2.0, 3.0, 4.0]"
    assert "torch.aten.mul" in wrong.ir["torch"]
    assert "linalg.generic" in wrong.ir["linalg-on-tensors"]
    again = bad_run.reproducer(wrong)
    assert f"--cases {CASES} --case user/is_wrong/float32 --target linalg-on-tensors" in again
    assert f"flambeau cts --backend {bad_run.about['backend_spec']} " in again
    compile(again.partition("\n\n")[2], "reproducer", "exec")
    assert str(CASES) in outcome(bad_run, "has_no_rule").python


def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = plan(tmp_path, patterns=("passes", "has_no_rule"))
    seen: list[str] = []

    def stop(done: int, total: int, result: Result | None) -> None:
        if result is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(some, stop)
    file = ResultFile(tmp_path / "iree.jsonl")
    assert len(list(file)) == 1
    with file.path.open("a") as f:
        f.write('{"case": "half a li')  # what a killed process leaves
    run = execute(some, lambda done, total, result: seen.append(result.case) if result else None)
    assert len(run.results) == 9
    assert len(seen) == 8
    assert not file.path.exists()
    assert len(Run.load(tmp_path / "iree.json").results) == 9


def test_another_run_does_not_overwrite_a_stopped_one(tmp_path: Path) -> None:
    one = plan(tmp_path, patterns=("passes",), targets=("tosa",))
    ResultFile(tmp_path / "iree.jsonl").begin({"backend": "iree", "suites": ["ops"]})
    with pytest.raises(ValueError, match="has a run that was stopped and is not this one"):
        execute(one)
    one.restart = True
    assert len(execute(one).results) == 2


def test_seeds_make_runs_equal(tmp_path: Path) -> None:
    case = tmp_path / "random_case.py"
    case.write_text(
        "import torch\nfrom flambeau.testing import case\n\n"
        "@case(lambda: torch.randn(3))\ndef random(x):\n    return torch.poisson(x.abs())\n"
    )
    runs = [
        execute(plan(tmp_path / str(i), files=(case,), targets=("linalg-on-tensors",), restart=True)) for i in range(2)
    ]
    assert runs[0].results[0].inputs
    assert runs[0].results[0].inputs == runs[1].results[0].inputs


@pytest.mark.parametrize(
    "options, message",
    [
        ({"patterns": ("nothing at all",)}, "no case is selected"),
        ({"ids": ("user/nix/float32",)}, "there is no case 'user/nix/float32'"),
        ({"targets": ("torch",)}, "the backend 'iree' does not compile torch; it compiles linalg-on-tensors"),
        ({"suites": ("nix",)}, "there is no suite 'nix'"),
        ({"files": (Path("nix.py"),)}, "there is no file nix.py"),
    ],
)
def test_mistakes_are_told(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        execute(plan(tmp_path, **options))


def test_workers_that_cannot_begin_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = tmp_path / "dies.py"
    backend.write_text(
        "import multiprocessing, os\n"
        "if multiprocessing.parent_process(): os.write(2, b'no licence for this compiler\\n'); os._exit(3)\n"
        "class Backend:\n    def compile(self, m): ...\n    def run(self, a, f, i): ...\n"
    )
    with pytest.raises(WorkerError, match="workers die before they begin: no licence for this compiler"):
        execute(plan(tmp_path, backend=str(backend)))


def test_the_same_case_can_be_run_alone(capsys: pytest.CaptureFixture[str]) -> None:
    result = runner.reproduce("ops/complex/float32", target="tosa", sample=1)
    assert result.status in ("fail", "xfail")
    shown = capsys.readouterr().out
    reason = "lower: aten.complex: TOSA has no complex numbers"
    assert shown.startswith(f"ops/complex/float32 on tosa: fail\n{reason}")
    assert "torch.aten.complex" in shown


def test_xfail_sets_are_data(tmp_path: Path) -> None:
    path = tmp_path / "mine.xfail.json"
    xfail = XfailSet(path)
    bad = Result("ops/a/float32", "tosa", "fail", stage="lower", reason="no rule")
    good = Result("ops/b/float32", "tosa", "pass")
    xfail.update([bad, good])
    xfail.save()
    assert json.loads(path.read_text()) == {"tosa": {"ops": {"lower: no rule": ["a/float32"]}}}
    again = XfailSet(path)
    assert again.apply(bad).status == "xfail"
    assert again.apply(good).status == "pass"
    assert again.apply(Result("ops/a/float32", "tosa", "pass")).status == "xpass"
    assert again.apply(Result("ops/a/float32", "stablehlo", "fail")).status == "fail"
    assert again.apply(Result("ops/a/float32", "tosa", "excluded")).status == "excluded"
    again.update([Result("ops/a/float32", "tosa", "pass")])
    again.save()
    assert json.loads(path.read_text()) == {}


def test_a_damaged_xfail_set_is_told(tmp_path: Path) -> None:
    path = tmp_path / "mine.xfail.json"
    path.write_text("[1]")
    with pytest.raises(ValueError, match="is not an XFAIL set"):
        XfailSet(path)


def test_a_damaged_report_is_told(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text('{"run": 3}')
    with pytest.raises(ValueError, match="is not a report of a run"):
        Run.load(path)
