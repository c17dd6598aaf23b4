"""Results as JUnit's XML, which every CI reads."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from flambeau.testing.results import EXCLUDED, FAIL, XFAIL, XPASS, Run

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f]")


def write_junit(run: Run, path: Path) -> None:
    """Write a test suite for each target; XFAILs and excluded cases are skipped, an unexpected pass is a failure."""
    from flambeau.engines.cache import write_atomically

    root = ElementTree.Element("testsuites", name=f"flambeau cts on {run.about['backend']}")
    for target in run.about["targets"]:
        results = [r for r in run.results if r.target == target]
        bad = sum(r.status in (FAIL, XPASS) for r in results)
        skipped = sum(r.status in (XFAIL, EXCLUDED) for r in results)
        suite = ElementTree.SubElement(
            root, "testsuite", name=target, tests=str(len(results)), failures=str(bad), skipped=str(skipped), errors="0"
        )
        for result in results:
            seconds = sum(result.timings.values())
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"{target}.{result.suite}", name=result.case, time=f"{seconds:.3f}"
            )
            text = _text(f"{result.stage}: {result.reason}")
            if result.status == FAIL:
                failure = ElementTree.SubElement(case, "failure", message=text, type=result.kind)
                failure.text = _text("\n\n".join(filter(None, [result.detail, result.inputs, run.reproducer(result)])))
            elif result.status == XPASS:
                message = _text(f"passes, and was expected to fail: {result.expected}")
                ElementTree.SubElement(case, "failure", message=message, type="xpass")
            elif result.status in (XFAIL, EXCLUDED):
                ElementTree.SubElement(case, "skipped", message=text)
    write_atomically(path, ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _text(text: str) -> str:
    return _CONTROL.sub("�", text)
