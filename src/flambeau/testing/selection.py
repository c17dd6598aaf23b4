"""Which cases a run is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from flambeau.python_files import import_file
from flambeau.testing.cases import REGISTERED, Case
from flambeau.testing.suites import SUITES, load_suite

DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "bool": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
"""Short names of dtypes."""


def dtype_named(name: str) -> str:
    """Return PyTorch's name of a dtype, from that or from the short one."""
    found = DTYPES.get(name, name)
    if found not in DTYPES.values():
        raise ValueError(f"there is no dtype {name!r}; there are {', '.join(DTYPES)}")
    return found


def find_cases(suites: Iterable[str], dtypes: Iterable[str], files: Iterable[Path] = ()) -> dict[str, Case]:
    """Load the cases of these suites and of the user's files, by id."""
    cases: dict[str, Case] = {}
    for name in suites:
        cases |= load_suite(name, dtypes).cases
    for path in files:
        cases |= load_file(path)
    return cases


_LOADED: dict[Path, dict[str, Case]] = {}


def load_file(path: Path) -> dict[str, Case]:
    """Load the cases that a file registers, in our way or in that of torch-mlir's end-to-end suite."""
    from flambeau.testing.upstream import importable_as_upstream

    path = path.resolve() if path.exists() else path
    if path in _LOADED:
        return _LOADED[path]
    before = dict(REGISTERED.cases)
    REGISTERED.cases.clear()  # two files may have cases of one name
    try:
        with importable_as_upstream():
            import_file(path, f"flambeau_cases_{path.stem}")
        _LOADED[path] = dict(REGISTERED.cases)
    finally:
        REGISTERED.cases.clear()
        REGISTERED.cases.update(before)
    return _LOADED[path]


def select(
    cases: dict[str, Case], patterns: Sequence[str] = (), ids: Sequence[str] = (), tags: Iterable[str] = ()
) -> list[Case]:
    """Select the cases with one of these ids that match one of the patterns and have all the tags."""
    wanted = set(tags)
    missing = [i for i in ids if i not in cases]
    if missing:
        of_files = f"{REGISTERED.name}/"
        hint = "name its file with --cases" if missing[0].startswith(of_files) and not cases else "ids look like "
        hint += "" if hint.startswith("name") else repr(next(iter(cases), "ops/add/float32"))
        raise ValueError(f"there is no case {missing[0]!r}; {hint}")
    found = [cases[i] for i in ids] if ids else list(cases.values())
    return [c for c in found if wanted <= c.tags and (not patterns or any(_matches(c.id, p) for p in patterns))]


def _matches(id_: str, pattern: str) -> bool:
    return fnmatchcase(id_, pattern) if any(c in pattern for c in "*?[") else pattern in id_


def suite_and_dtype(id_: str) -> tuple[str, str]:
    """Split the id of a case into suite and dtype."""
    suite, _, rest = id_.partition("/")
    dtype = rest.rpartition("/")[2]
    if suite not in SUITES and suite != REGISTERED.name:
        raise ValueError(f"{id_!r} is not the id of a case: it begins with the suite, one of {', '.join(SUITES)}")
    return suite, dtype
