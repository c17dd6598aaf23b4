"""XFAIL sets: what is known to fail, by backend, target and suite, with the stage and the reason, as data."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from flambeau.testing.results import EXCLUDED, FAIL, PASS, XFAIL, XPASS, Result

OURS = Path(__file__).parent / "data"


class XfailSet:
    """The expected failures of one backend. The file groups cases by what they fail of."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._reasons: dict[tuple[str, str], str] = {}
        if path.is_file():
            self._read()

    def _read(self) -> None:
        try:
            data = json.loads(self.path.read_text())
            for target, suites in data.items():
                for suite, reasons in suites.items():
                    for reason, names in reasons.items():
                        for name in names:
                            self._reasons[f"{suite}/{name}", target] = reason
        except (OSError, ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{self.path} is not an XFAIL set: {error}") from error

    def __len__(self) -> int:
        return len(self._reasons)

    def reason(self, case: str, target: str) -> str | None:
        """Return why a case is expected to fail; None if it is expected to pass."""
        return self._reasons.get((case, target))

    def apply(self, result: Result) -> Result:
        """Set a result's status by what was expected: a failure becomes XFAIL, a pass XPASS."""
        reason = self.reason(result.case, result.target)
        plain = {XPASS: PASS, XFAIL: FAIL}.get(result.status, result.status)
        if reason is None:
            return replace(result, status=plain, expected="")
        return replace(result, status={PASS: XPASS, FAIL: XFAIL}.get(plain, plain), expected=reason)

    def update(self, results: Iterable[Result]) -> None:
        """Set what these results say; what they say nothing about stays."""
        for result in results:
            self._reasons.pop(result.key, None)
            if result.status in (FAIL, XFAIL):
                self._reasons[result.key] = f"{result.stage}: {result.reason}"

    def save(self) -> None:
        """Write the file, sorted, so that a change of it reads well."""
        from flambeau.engines.cache import write_atomically

        data: dict[str, dict[str, dict[str, list[str]]]] = {}
        for (case, target), reason in sorted(self._reasons.items()):
            suite, _, name = case.partition("/")
            data.setdefault(target, {}).setdefault(suite, {}).setdefault(reason, []).append(name)
        write_atomically(self.path, (json.dumps(_sorted(data), indent=1, ensure_ascii=False) + "\n").encode())


def _sorted(data: Any) -> Any:
    return {k: _sorted(data[k]) for k in sorted(data)} if isinstance(data, dict) else data


def xfail_path(backend: str, spec: str) -> Path:
    """Return the path of a backend's XFAIL set: ours is in the package, a vendor's beside the backend's file."""
    path = Path(spec)
    return path.with_suffix(".xfail.json") if path.suffix == ".py" else OURS / f"{backend}.xfail.json"


def failed(results: Iterable[Result]) -> list[Result]:
    """Select the results that make a run fail: failures that nobody expected, and expected ones that did not come."""
    return [r for r in results if r.status in (FAIL, XPASS)]


def counted(results: Iterable[Result]) -> list[Result]:
    """Select the results of cases that PyTorch itself can run and export."""
    return [r for r in results if r.status != EXCLUDED]
