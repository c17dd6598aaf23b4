"""The report as one page that needs nothing but a browser."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

from flambeau.testing.report.comparison import Comparison
from flambeau.testing.report.levels import LEVELS, standings
from flambeau.testing.results import Run

TEMPLATE = Path(__file__).with_name("page.html")
_MARK = "@DATA@"


def write_html(run: Run, path: Path, comparison: Comparison | None = None) -> None:
    """Write the page. Results are packed into it, so it works from a disk, offline."""
    from flambeau.engines.cache import write_atomically

    data = {
        "run": run.about,
        "levels": _levels(run),
        "results": [r.as_json() | ({"reproducer": run.reproducer(r)} if r.stage else {}) for r in run.results],
        "changes": _changes(comparison) if comparison else [],
    }
    packed = base64.b64encode(gzip.compress(json.dumps(_finite(data)).encode(), mtime=0)).decode()
    write_atomically(path, TEMPLATE.read_text().replace(_MARK, packed).encode())


def _levels(run: Run) -> list[dict[str, Any]]:
    """List for each level that the run has cases of the share that passes and whether that reaches it."""
    return [
        {
            "name": level.name,
            "target": s.target,
            "share": s.share,
            "cases": s.cases,
            "needs": level.share,
            "reached": s.reached,
        }
        for level in LEVELS.values()
        for s in standings(run, level)
        if s.cases
    ]


def _changes(comparison: Comparison) -> list[dict[str, str]]:
    found = []
    for change, pairs in (("worse", comparison.worse), ("better", comparison.better), ("other", comparison.other)):
        for was, now in pairs:
            why = f"was {was.stage}: {was.reason}" if change == "better" else f"{now.stage}: {now.reason}"
            found.append({"change": change, "case": now.case, "target": now.target, "why": why})
    for _, now, ratio in comparison.slower:
        why = f"{ratio:.1f} times slower, relative to eager"
        found.append({"change": "slower", "case": now.case, "target": now.target, "why": why})
    return found


def _finite(value: Any) -> Any:
    """Replace infinities and NaN by text: JSON has no words for them."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return value
