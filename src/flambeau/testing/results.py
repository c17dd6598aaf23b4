"""Results of cases, as data that goes to disk line by line."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

PASS, FAIL, EXCLUDED, XFAIL, XPASS = "pass", "fail", "excluded", "xfail", "xpass"
STATUSES = (PASS, FAIL, XFAIL, XPASS, EXCLUDED)
STAGES = ("make", "eager", "export", "import", "passes", "lower", "compile", "run", "compare")
"""The way of a case."""
SIGNING_KEY = "FLAMBEAU_CTS_KEY"
"""The environment variable with the key that reports are signed with, and must be when they are read."""
BEFORE_US = STAGES[:3]
"""What fails here is PyTorch's own affair: such a case is excluded, with the reason."""


@dataclass
class Result:
    """What became of one case on one target."""

    case: str
    target: str
    status: str
    name: str = ""
    suite: str = ""
    dtype: str = ""
    family: str = ""
    tags: list[str] = field(default_factory=list)
    stage: str = ""
    """Where it failed."""
    kind: str = ""
    """How: `error`, `mismatch`, `crash`, `timeout` or `memory`."""
    reason: str = ""
    """In one line, the same for all that fail alike."""
    detail: str = ""
    sample: int | None = None
    """Which of the samples failed first."""
    samples: int = 0
    calls: int = 0
    """How many calls were compared."""
    mismatch: dict[str, Any] | None = None
    inputs: str = ""
    ir: dict[str, str] = field(default_factory=dict)
    """The text of the failing sample at each stage that it reached."""
    python: str = ""
    """Where the op that failed stands in Python."""
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds: `export`, `lower`, `compile`, `run`, `eager`."""
    memory: int | None = None
    """How many bytes the process grew by at its peak, for cases that ran alone."""
    expected: str = ""
    """The reason that the XFAIL set has for it."""

    @property
    def key(self) -> tuple[str, str]:
        return self.case, self.target

    def as_json(self) -> dict[str, Any]:
        """Convert to a dictionary without fields that are empty."""
        return {k: v for k, v in asdict(self).items() if v not in ("", None, [], {})}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Result:
        known = {f.name for f in fields(Result)}
        return Result(**{k: v for k, v in data.items() if k in known})


class ResultFile:
    """Results that are on disk as soon as they are known: a JSON object a line, the first one about the run."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def begin(self, about: dict[str, Any]) -> None:
        """Start the file of a run anew, with its first line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({"run": about}) + "\n")

    def about(self) -> dict[str, Any] | None:
        """Read what the run on disk is; None if there is none."""
        try:
            with self.path.open() as file:
                found: dict[str, Any] = json.loads(file.readline())["run"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found

    def append(self, results: Iterable[Result]) -> None:
        text = "".join(json.dumps(r.as_json()) + "\n" for r in results)
        with self.path.open("a") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def __iter__(self) -> Iterator[Result]:
        with self.path.open() as file:
            for i, line in enumerate(file):
                if i == 0:
                    continue
                try:
                    yield Result.from_json(json.loads(line))
                except ValueError:  # the last line of a run that was stopped while it wrote
                    continue


@dataclass
class Run:
    """All results of a run, and what it was a run of."""

    about: dict[str, Any]
    results: list[Result]

    def reproducer(self, result: Result) -> str:
        """Write commands and code that show a result again, on the same backend."""
        backend, files = self.about.get("backend_spec", "iree"), self.about.get("files", [])
        case, target = result.case, result.target
        command = ["flambeau", "cts", "--backend", backend, *(part for f in files for part in ("--cases", f))]
        command += [part for f in self.about.get("plugins", ()) for part in ("--plugin", f)]
        command += ["--case", case, "--target", target, "--jobs", "1"]
        paths = f", files=[{', '.join(f'Path({f!r})' for f in files)}]" if files else ""
        return (
            f"{shlex.join(command)}\n\n"
            "# or, in Python:\n"
            + ("from pathlib import Path\n\n" if files else "")
            + "from flambeau.testing import reproduce\n\n"
            f"reproduce({case!r}, target={target!r}, sample={result.sample or 0}, backend={backend!r}{paths})\n"
        )

    def save(self, path: Path) -> None:
        """Write the report in JSON."""
        from flambeau.engines.cache import write_atomically
        from flambeau.testing.report.levels import LEVELS, standings

        results = [r.as_json() for r in self.results]
        self.about["levels"] = [
            {
                "level": level.name,
                "target": s.target,
                "reached": s.reached,
                "share": round(s.share, 4),
                "cases": s.cases,
            }
            for level in LEVELS.values()
            for s in standings(self, level)
        ]
        self.about["digest"] = _digest(self.about, results)
        if key := os.environ.get(SIGNING_KEY):
            self.about["signature"] = _signature(key, self.about["digest"])
        data = {"run": self.about, "results": results}
        write_atomically(path, json.dumps(data, indent=1).encode())

    @staticmethod
    def load(path: Path) -> Run:
        """Read what `save` wrote, or the results of a run that is not over."""
        try:
            text = path.read_text()
            if path.suffix == ".jsonl":
                file = ResultFile(path)
                return Run(file.about() or {}, list(file))
            data = json.loads(text)
            _check_digest(data)
            return Run(data["run"], [Result.from_json(r) for r in data["results"]])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a report of a run: {error}") from error

    @staticmethod
    def merge(runs: Sequence[Run]) -> Run:
        """Merge runs on one backend; of two results of a case on a target, the later run's counts."""
        backends = {r.about.get("backend") for r in runs}
        if len(backends) > 1:
            raise ValueError(f"these are runs on different backends: {', '.join(sorted(map(str, backends)))}")
        results = {result.key: result for run in runs for result in run.results}
        about = dict(runs[-1].about)
        for name in ("suites", "dtypes", "targets"):
            about[name] = list(dict.fromkeys(value for run in runs for value in run.about[name]))
        about["seconds"] = round(sum(run.about.get("seconds", 0) for run in runs), 1)
        return Run(about, list(results.values()))

    def counts(self, **where: str) -> dict[str, int]:
        """Count the results of each status among those with the given fields."""
        found = dict.fromkeys(STATUSES, 0)
        for result in self.results:
            if all(getattr(result, k) == v for k, v in where.items()):
                found[result.status] += 1
        return found


def _digest(about: dict[str, Any], results: Sequence[dict[str, Any]]) -> str:
    """Hash what a report says of a run and its results, in an order of its own: whoever changes one changes this."""
    told = {name: value for name, value in about.items() if name not in ("digest", "signature")}
    return hashlib.sha256(json.dumps([told, results], sort_keys=True).encode()).hexdigest()


def _signature(key: str, digest: str) -> str:
    return hmac.new(key.encode(), digest.encode(), hashlib.sha256).hexdigest()


def _check_digest(data: dict[str, Any]) -> None:
    """Raise ValueError for a report that was changed since it was written, or was signed with another key than ours."""
    about = data["run"]
    if "levels" not in about:
        return  # of before there were digests of everything
    if _digest(about, data["results"]) != about["digest"]:
        raise ValueError("it was changed since it was written: its digest is another's")
    key = os.environ.get(SIGNING_KEY)
    if key and not hmac.compare_digest(_signature(key, about["digest"]), about.get("signature", "")):
        raise ValueError(f"it was not signed with the key of {SIGNING_KEY}")


def share(counts: dict[str, int]) -> float:
    """Return the share of cases that pass, of those that count; 0 if none does."""
    counted = sum(counts[s] for s in STATUSES if s != EXCLUDED)
    return (counts[PASS] + counts[XPASS]) / counted if counted else 0.0
