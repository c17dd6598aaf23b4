"""The files around the code agree with it: the workflow, the templates, the hooks, the Makefile."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML comes with mkdocs")

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted(p for p in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if p.stem != "config")
HOOKS = ROOT / ".pre-commit-config.yaml"


def read(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict), path
    return found


def jobs() -> dict[str, dict[str, Any]]:
    return {name: job for path in WORKFLOWS for name, job in read(path)["jobs"].items()}


def commands(job: dict[str, Any]) -> list[list[str]]:
    return [shlex.split(line) for step in job["steps"] for line in step.get("run", "").splitlines()]


def make_targets() -> set[str]:
    """Find the targets of the Makefile that have a name in `make help`."""
    return set(re.findall(r"^([a-z]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


def minor_versions(specifier: str) -> list[str]:
    """List the Python versions of a specifier such as `>=3.11,<3.14`."""
    found = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", specifier)
    assert found, specifier
    return [f"3.{minor}" for minor in range(int(found[1]), int(found[2]))]


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_workflow_runs_every_tier() -> None:
    assert jobs().keys() == {"lint", "unit", "test", "docs"}
    for name, job in jobs().items():
        assert ["make", name] in [words[:2] for words in commands(job)]


def test_the_workflow_names_targets_that_the_makefile_has() -> None:
    named = [word for job in jobs().values() for words in commands(job) if words[0] == "make" for word in words[1:]]
    assert {word for word in named if "=" not in word} <= make_targets()


def test_the_workflow_may_only_read() -> None:
    for path in WORKFLOWS:
        workflow = read(path)
        assert workflow["permissions"] == {"contents": "read"}
        assert "cancel-in-progress" in workflow["concurrency"]
        assert not [name for name, job in workflow["jobs"].items() if "permissions" in job]


def test_the_unit_tests_run_on_every_python_that_we_support() -> None:
    specifier = project()["project"]["requires-python"]
    assert jobs()["unit"]["strategy"]["matrix"]["python-version"] == minor_versions(specifier)
    lowest = minor_versions(specifier)[0]
    assert project()["tool"]["mypy"]["python_version"] == lowest
    assert project()["tool"]["ruff"]["target-version"] == "py" + lowest.replace(".", "")


def test_every_job_finds_what_pip_has_cached() -> None:
    for name, job in jobs().items():
        python = [step["with"] for step in job["steps"] if step.get("uses", "").startswith("actions/setup-python@")]
        assert len(python) == 1, name
        assert python[0]["cache"] == "pip"
        assert all((ROOT / path).is_file() for path in python[0]["cache-dependency-path"].split())


@pytest.mark.parametrize("form", FORMS, ids=lambda p: p.stem)
def test_the_fields_of_an_issue_form_have_names(form: Path) -> None:
    content = read(form)
    assert content["name"]
    assert content["description"]
    fields = [field for field in content["body"] if field["type"] != "markdown"]
    assert all(field["attributes"]["label"] for field in fields)
    assert len({field["id"] for field in fields}) == len(fields)


def test_a_bug_report_asks_for_the_error_and_a_repro_file() -> None:
    fields = {field["id"]: field for field in read(ROOT / ".github" / "ISSUE_TEMPLATE" / "bug.yml")["body"]}
    assert fields["output"]["validations"]["required"]
    assert "save_repro" in fields["repro"]["attributes"]["description"]
    types = (ROOT / "src" / "flambeau" / "api.py").read_text()
    assert all(
        f'"{option}"' in types for option in fields["target"]["attributes"]["options"] if option != "another target"
    )


def test_the_hooks_are_what_lint_runs() -> None:
    local = {hook["id"]: hook for repo in read(HOOKS)["repos"] if repo["repo"] == "local" for hook in repo["hooks"]}
    assert local.keys() == {"ruff-format", "ruff-check", "mypy"}
    for hook in local.values():
        assert hook["entry"].startswith(".venv/bin/")
        assert re.compile(hook.get("files", ""))
    remote = {hook["id"] for repo in read(HOOKS)["repos"] if repo["repo"] != "local" for hook in repo["hooks"]}
    assert "end-of-file-fixer" in remote


def test_the_makefile_describes_its_targets() -> None:
    text = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert phony
    assert make_targets() <= set(phony[1].split())
    documented = set(re.findall(r"\bmake ([a-z]+)\b", (ROOT / "README.md").read_text()))
    documented |= set(re.findall(r"`make ([a-z]+)[ `]", (ROOT / "CONTRIBUTING.md").read_text()))
    assert documented <= make_targets()


def test_the_licence_lets_code_move_upstream() -> None:
    """S49: Apache-2.0 with LLVM's exceptions, or BSD-3-Clause, at the option of who takes it."""
    text = (ROOT / "LICENSE").read_text()
    assert "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception OR BSD-3-Clause" in text
    for path in (ROOT / "LICENSES").iterdir():
        assert path.name in text


def test_every_row_of_the_checklist_is_named_by_a_test() -> None:
    """`pytest -k S86` runs what proves row S86 of docs/checklist.md, and it is never nothing."""
    rows = re.findall(r"^\| S(\d+) \|", (ROOT / "docs" / "checklist.md").read_text(), re.MULTILINE)
    assert rows == [str(n) for n in range(1, 123)]
    tests = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = {int(n) for n in re.findall(r"\bS(\d{1,3})\b", tests)}
    named |= {
        int(n) for name in re.findall(r"^def (test_\w+)", tests, re.MULTILINE) for n in re.findall(r"_s(\d+)", name)
    }
    assert sorted(set(range(1, 123)) - named) == []
