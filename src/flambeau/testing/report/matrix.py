"""The coverage matrix: a page of the documentation, op by target by dtype, made from results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from flambeau.testing.results import EXCLUDED, PASS, XPASS, Result, Run, share
from flambeau.testing.selection import DTYPES

_SHORT = {long: short for short, long in DTYPES.items()}
_SUITE_TITLES = {"ops": "Ops", "dynamic": "Ops with every dim dynamic", "edge": "Edge values", "models": "Models"}


def write_matrix(run: Run, path: Path) -> None:
    """Write the page in Markdown."""
    from flambeau.engines.cache import write_atomically

    write_atomically(path, "\n".join(_page(run)).encode())


def _page(run: Run) -> Iterable[str]:
    about = run.about
    targets: list[str] = about["targets"]
    yield "# Coverage"
    yield ""
    yield (
        f"What passes the [compatibility test suite](cts.md) on `{about['backend']}`: PyTorch {about['torch']}, "
        f"{about['date']}. This page is generated: `flambeau cts --from report.json --matrix coverage.md`."
    )
    yield ""
    yield (
        "A case counts if PyTorch itself can run and export it, and passes if all its samples are lowered, compiled, "
        "run and found equal to eager PyTorch."
    )
    yield ""
    yield from _summary(run, targets)
    for suite in ("ops", "dynamic", "edge"):
        results = [r for r in run.results if r.suite == suite]
        if results:
            yield from _op_table(_SUITE_TITLES[suite], results, targets)
    models = [r for r in run.results if r.suite == "models"]
    if models:
        yield from _model_table(models, targets)
    yield from _reasons(run.results, targets)


def _summary(run: Run, targets: list[str]) -> Iterable[str]:
    yield "| suite | dtype | " + " | ".join(targets) + " |"
    yield "|-|-|" + "-|" * len(targets)
    for suite in dict.fromkeys(r.suite for r in run.results):
        for dtype in dict.fromkeys(r.dtype for r in run.results if r.suite == suite):
            cells = []
            for target in targets:
                counts = run.counts(suite=suite, dtype=dtype, target=target)
                counted = sum(counts.values()) - counts[EXCLUDED]
                cells.append(f"{counts[PASS] + counts[XPASS]} of {counted}, {share(counts):.1%}")
            yield f"| {suite} | {_SHORT.get(dtype, dtype)} | " + " | ".join(cells) + " |"
    yield ""


def _op_table(title: str, results: list[Result], targets: list[str]) -> Iterable[str]:
    dtypes = list(dict.fromkeys(r.dtype for r in results))
    letters = {t: t[0].upper() for t in targets}
    legend = ", ".join(f"{letters[t]} for {t}" for t in targets)
    yield f"## {title}"
    yield ""
    yield f"The targets that pass: {legend}. A dot is a target that does not; an empty cell is no case."
    yield ""
    yield "| op | family | " + " | ".join(_SHORT.get(d, d) for d in dtypes) + " |"
    yield "|-|-|" + "-|" * len(dtypes)
    by_name: dict[str, dict[tuple[str, str], Result]] = {}
    families: dict[str, str] = {}
    for r in results:
        by_name.setdefault(r.name, {})[r.dtype, r.target] = r
        families[r.name] = r.family
    for name in sorted(by_name):
        cells = [_cell([by_name[name].get((d, t)) for t in targets], letters, targets) for d in dtypes]
        if any(cells):
            yield f"| `{name}` | {families[name]} | " + " | ".join(cells) + " |"
    yield ""


def _cell(results: list[Result | None], letters: dict[str, str], targets: list[str]) -> str:
    counted = [(t, r) for t, r in zip(targets, results, strict=True) if r is not None and r.status != EXCLUDED]
    return "".join(letters[t] if r.status in (PASS, XPASS) else "·" for t, r in counted)


def _model_table(models: list[Result], targets: list[str]) -> Iterable[str]:
    from flambeau.testing.report.comparison import relative_time

    yield "## Models"
    yield ""
    yield "What became of each, and in brackets the run time as a multiple of eager PyTorch's, on one thread."
    yield ""
    yield "| model | family | " + " | ".join(targets) + " |"
    yield "|-|-|" + "-|" * len(targets)
    found = {(r.name, r.target): r for r in models}
    for name, family in sorted({(r.name, r.family) for r in models}, key=lambda m: (m[1], m[0])):
        cells = []
        for target in targets:
            result = found.get((name, target))
            if result is None:
                cells.append("")
            elif result.status in (PASS, XPASS):
                ratio = relative_time(result)
                cells.append("passes" + (f" ({ratio:.1f})" if ratio else ""))
            else:
                cells.append(f"{result.stage}: {result.kind}" if result.status != EXCLUDED else "not exportable")
        yield f"| `{name}` | {family} | " + " | ".join(cells) + " |"
    yield ""


def _reasons(results: list[Result], targets: list[str]) -> Iterable[str]:
    """List what is missing, grouped by reason, the commonest first."""
    yield "## What is missing"
    yield ""
    for target in targets:
        groups: dict[str, list[Result]] = {}
        for r in results:
            if r.target == target and r.status not in (PASS, XPASS, EXCLUDED):
                groups.setdefault(f"{r.stage}: {r.reason}", []).append(r)
        yield f"### {target}"
        yield ""
        for reason, members in sorted(groups.items(), key=lambda g: (-len(g[1]), g[0])):
            names = list(dict.fromkeys(r.name for r in members))
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            shown = ", ".join(f"`{n}`" for n in names[:8])
            yield f"- {_escaped(reason)} ({len(members)}): {shown}{more}"
        yield ""


def _escaped(text: str) -> str:
    """Quote text so that Markdown prints it literally."""
    return f"`{text.replace('`', chr(39)).replace('|', '/')}`"
