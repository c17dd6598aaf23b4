"""Cases all the way: made, run by PyTorch, exported, imported, lowered, compiled together, run, compared."""

from __future__ import annotations

import random
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.utils._pytree import tree_map

from flambeau import api
from flambeau.api import Module
from flambeau.diagnostics import CompileError
from flambeau.engines.errors import EngineError
from flambeau.frontends.fx.compile import export
from flambeau.frontends.fx.pytrees import register_known_containers
from flambeau.testing.backends import Backend, compile_cached, invoke
from flambeau.testing.cases import Call, Case, Sample
from flambeau.testing.comparing import Mismatch, compare, either, is_near
from flambeau.testing.memory import peak_growth
from flambeau.testing.merging import merge
from flambeau.testing.results import BEFORE_US, EXCLUDED, FAIL, PASS, Result
from flambeau.testing.sizes import open_dims, resized

IR_LIMIT = 24_000
"""How much of a text goes into a result."""
Tell = Callable[[Sequence[str], str, str], None]
"""Says which cases are at which target and stage now, in case this process does not live to say more."""


@dataclass
class Failure(Exception):
    """Why a case did not pass."""

    stage: str
    reason: str
    detail: str = ""
    kind: str = "error"
    sample: int | None = None
    mismatch: Mismatch | None = None
    inputs: str = ""
    ir: dict[str, str] = field(default_factory=dict)
    python: str = ""


@dataclass
class Prepared:
    """A sample that PyTorch has run and that is in the torch dialect."""

    index: int
    name: str
    sample: Sample
    torch: Module
    expected: list[Any]

    def inputs(self) -> str:
        return describe(self.sample.calls[0])


Programs: TypeAlias = "dict[str, tuple[Any, Module]]"
"""For each function, the artefact that it is in and the module of that; many functions may share both."""


class Batch:
    """Runs some cases on a backend, in this process."""

    def __init__(self, backend: Backend, tell: Tell = lambda cases, target, stage: None) -> None:
        self.backend = backend
        self.tell = tell

    def run(self, cases: Sequence[Case], targets: Sequence[str]) -> Iterator[Result]:
        """Run all cases on all targets; yield the results in the order in which they become known."""
        ready: dict[str, list[Prepared]] = {}
        timings: dict[str, dict[str, float]] = {}
        known = {case.id: case for case in cases}
        alone = cases[0].heavy and len(cases) == 1
        for position, case in enumerate(cases):
            timings[case.id] = {}
            try:
                with _as_pytorch_would():
                    ready[case.id] = self._prepare(case, position, timings[case.id])
            except Failure as failure:
                for target in targets:
                    yield _result(case, target, failure, timings[case.id])
        for target in targets:
            lowered: dict[str, list[tuple[Prepared, Module]]] = {}
            spent = {case: dict(times) for case, times in timings.items()}
            with peak_growth() as growth:
                for id_, samples in ready.items():
                    self.tell([id_], target, "lower")
                    with _timed(spent[id_], "lower"):
                        try:
                            lowered[id_] = [(p, self._lowered(p, target)) for p in samples]
                        except Failure as failure:
                            yield _result(known[id_], target, failure, spent[id_])
                for group, programs in self._compiled(lowered, target, spent):
                    for id_ in group:
                        outcome: Failure | int = 0
                        if isinstance(programs, Failure):
                            outcome = programs
                        else:
                            self.tell([id_], target, "run")
                            try:
                                outcome = self._run(known[id_], programs, lowered[id_], spent[id_])
                            except Failure as failure:
                                outcome = failure
                        result = _result(known[id_], target, outcome, spent[id_], len(lowered[id_]))
                        if alone:
                            result = replace(result, memory=growth())
                        yield result

    def _prepare(self, case: Case, position: int, timings: dict[str, float]) -> list[Prepared]:
        self.tell([case.id], "", "make")
        with _failing("make", None):
            torch.manual_seed(case.seed)
            random.seed(case.seed)
            samples = list(case.samples())
            if not samples:
                raise ValueError("PyTorch has no samples for it")
            register_known_containers()  # Or a cache is no tree yet, and is passed uncopied to what extends it.
        prepared = []
        for i, sample in enumerate(samples):
            with _failing("eager", i, sample), _timed(timings, "eager"):
                self.tell([case.id], "", "eager")
                expected = [eager_result(sample, call) for call in sample.calls]
            with _failing("export", i, sample), _timed(timings, "export"):
                self.tell([case.id], "", "export")
                first = _copied(sample.calls[0])
                program = export(sample.module, first.args, dict(first.kwargs), sample.dynamic_shapes)
                if sample.other_sizes:
                    if not open_dims(program):
                        continue
                    expected += _at_other_sizes(sample, program)
            with _failing("import", i, sample), _timed(timings, "import"):
                self.tell([case.id], "", "import")
                module = api.compile(program, output_type="torch", function=f"case{position}_{i}")
            prepared.append(Prepared(i, f"case{position}_{i}", sample, module, expected))
        if not prepared:
            raise Failure("export", "PyTorch leaves no dim of it open")
        return prepared

    def _compiled(
        self, lowered: dict[str, list[tuple[Prepared, Module]]], target: str, timings: dict[str, dict[str, float]]
    ) -> Iterator[tuple[list[str], Programs | Failure]]:
        """Compile groups of cases; yield their ids with the programs of their functions, or one id with its failure."""
        if not lowered:
            return
        ids, many = list(lowered), getattr(self.backend, "many", True)
        if len(ids) > 1 and not many:
            for id_ in ids:
                yield from self._compiled({id_: lowered[id_]}, target, timings)
            return
        self.tell(ids, target, "compile")
        start = time.perf_counter()
        try:
            functions = {p.name: m for samples in lowered.values() for p, m in samples}
            programs: Programs = {}
            for group in [functions] if many else [{name: m} for name, m in functions.items()]:
                merged = merge(group)
                programs |= dict.fromkeys(group, (compile_cached(self.backend, merged), merged))
        except Exception as error:
            if len(ids) > 1:
                half = len(ids) // 2
                for part in (ids[:half], ids[half:]):
                    yield from self._compiled({i: lowered[i] for i in part}, target, timings)
            else:
                yield ids, self._compile_failure(lowered[ids[0]], error)
            return
        for id_ in ids:
            timings[id_]["compile"] = (time.perf_counter() - start) / len(ids)
        yield ids, programs

    def _compile_failure(self, samples: list[tuple[Prepared, Module]], error: Exception) -> Failure:
        """Find the sample of a case that the backend cannot compile, by compiling each alone."""
        for prepared, module in samples if len(samples) > 1 else ():
            try:
                self.backend.compile(merge({prepared.name: module}))
            except Exception as alone:
                return _compile_error(prepared, module, alone)
        return _compile_error(*samples[0], error)

    def _run(
        self,
        case: Case,
        programs: Programs,
        samples: list[tuple[Prepared, Module]],
        timings: dict[str, float],
    ) -> int:
        """Run and compare all samples; gives how many calls that were."""
        count = 0
        for prepared, module in samples:
            judged = replace(case, compare="types") if prepared.sample.random else case
            artefact, merged = programs[prepared.name]
            for call, expected in zip(prepared.sample.calls, prepared.expected, strict=True):
                ir = _stages(prepared.torch, module)
                with _failing("run", prepared.index, prepared.sample, ir):
                    passed = _copied(call)
                    start = time.perf_counter()
                    actual = invoke(self.backend, artefact, merged, prepared.name, passed.args, passed.kwargs)
                    timings["run"] = timings.get("run", 0.0) + time.perf_counter() - start
                if case.heavy:
                    timings["run again"] = _fastest(self.backend, artefact, merged, prepared.name, call)
                    timings["eager again"] = _fastest_eager(prepared.sample, call)
                with _failing("compare", prepared.index, prepared.sample, ir):
                    difference = compare(judged, actual, expected)
                    if difference is not None and prepared.sample.pointwise:
                        alone = _one_by_one(prepared.sample.module, call)
                        difference = compare(case, actual, either(case, actual, expected, alone))
                    if difference is not None and prepared.sample.rounding:
                        if is_near(case, actual, expected, _in_float64(prepared.sample.module, call)):
                            difference = None
                if difference is not None:
                    raise Failure(
                        "compare",
                        {"value": "wrong values"}.get(difference.what, f"wrong {difference.what}"),
                        str(difference),
                        "mismatch",
                        prepared.index,
                        difference,
                        describe(call),
                        {k: text() for k, text in ir.items()},
                    )
                count += 1
        return count

    def _lowered(self, prepared: Prepared, target: str) -> Module:
        ir = {"torch": lambda: str(prepared.torch)}
        with _failing("lower", prepared.index, prepared.sample, ir):
            options = getattr(self.backend, "options", {}).get(target)
            return api.compile(prepared.torch, output_type=target, options=options)


def _one_by_one(module: Any, call: Call) -> Any:
    """Run a pointwise module on each element alone and join the results."""
    shape = torch.broadcast_shapes(*(x.shape for x in call.args))
    columns = [x.expand(shape).reshape(-1, 1) for x in call.args]
    results = [module(*row) for row in zip(*columns, strict=True)]
    return tree_map(lambda *elements: torch.cat(elements).reshape(shape), *results)


def _in_float64(module: Any, call: Call) -> Any:
    """Run a copy of a module with f64 in place of all other floats."""

    def widened(x: Any) -> Any:
        return x.detach().double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    args, kwargs = tree_map(widened, (call.args, dict(call.kwargs)))
    with torch.no_grad():
        return deepcopy(module).double()(*args, **kwargs)


def _compile_error(prepared: Prepared, module: Module, error: Exception) -> Failure:
    ir = {k: text() for k, text in _stages(prepared.torch, module).items()}
    return _failure("compile", error, prepared.index, prepared.inputs(), ir)


def _stages(torch_module: Module, module: Module) -> dict[str, Callable[[], str]]:
    """Map the stages of a program to functions that print it there."""
    texts: dict[str, Callable[[], str]] = {"torch": lambda: str(torch_module)}
    if module.output_type != "torch":
        texts[module.output_type] = lambda: str(module)
    return texts


def _at_other_sizes(sample: Sample, program: torch.export.ExportedProgram) -> list[Any]:
    """Add calls at other sizes to a sample; gives what PyTorch answers to them."""
    expected = []
    exported = program.module()
    for by in (1, 3):
        other = resized(program, sample.calls[0], by)
        if other is None or not _is_within_guards(exported, other):
            continue
        try:
            answer = eager_result(sample, other)
        except Exception:  # not every op takes every size: a kernel may become larger than its image
            continue
        sample.calls.append(other)
        expected.append(answer)
    return expected


def _is_within_guards(exported: Any, call: Call) -> bool:
    """Tell whether a call's sizes satisfy the guards that PyTorch exported the program under."""
    passed = _copied(call)
    try:
        exported(*passed.args, **passed.kwargs)
    except (AssertionError, RuntimeError) as error:
        return "Guard failed" not in str(error)
    except Exception:  # not about sizes, and so not for the runner to judge
        return True
    return True


def eager_result(sample: Sample, call: Call) -> Any:
    """Run a call in eager PyTorch on copies of its arguments."""
    passed = _copied(call)
    return sample.module(*passed.args, **passed.kwargs)


def _copied(call: Call) -> Call:
    """Copy a call's tensors and objects, since a program may write to its arguments."""

    def copied(x: Any) -> Any:
        return x.detach().clone() if isinstance(x, torch.Tensor) else deepcopy(x)

    args, kwargs = tree_map(copied, (call.args, dict(call.kwargs)))
    return Call(args, kwargs)


def _fastest(backend: Backend, artefact: Any, merged: Module, name: str, call: Call) -> float:
    passed = _copied(call)
    return _fastest_of(lambda: invoke(backend, artefact, merged, name, passed.args, passed.kwargs))


def _fastest_eager(sample: Sample, call: Call) -> float:
    passed = _copied(call)
    return _fastest_of(lambda: sample.module(*passed.args, **passed.kwargs))


def _fastest_of(action: Callable[[], Any], times: int = 3) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best


def describe(call: Call) -> str:
    """Describe the arguments of a call, in a line each."""

    def one(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            dtype = str(value.dtype).removeprefix("torch.")
            text = f"{dtype}[{', '.join(map(str, value.shape))}]"
            if value.layout is not torch.strided:
                return f"{text} {value.layout}"
            if not value.is_contiguous():
                text += f" strides {tuple(value.stride())}"
            if 0 < value.numel() <= 16:
                text += f" = {value.tolist()}"
            return text
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(one, value))}]"
        return repr(value)

    lines = [one(a) for a in call.args] + [f"{k} = {one(v)}" for k, v in call.kwargs.items()]
    return "\n".join(line[:400] for line in lines)


_timed = partial(api.stage, clock=time.perf_counter)


@contextmanager
def _as_pytorch_would() -> Iterator[None]:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _failing(
    stage: str, index: int | None, sample: Sample | None = None, ir: dict[str, Callable[[], str]] | None = None
) -> Iterator[None]:
    """Turn any exception inside the block into a Failure of this stage."""
    try:
        yield
    except Failure:
        raise
    except Exception as error:
        inputs = "\n".join(filter(None, [sample.label, describe(sample.calls[0])])) if sample else ""
        raise _failure(stage, error, index, inputs, {k: text() for k, text in (ir or {}).items()}) from error


_COMPILE_STAGES = {"export": "export", "import": "import"}
_NOISE = re.compile(r"0x[0-9a-f]+|/\S+/|\bcase\d+_\d+\b")


def _failure(stage: str, error: Exception, index: int | None, inputs: str, ir: dict[str, str]) -> Failure:
    detail, python = str(error) or type(error).__name__, ""
    if isinstance(error, CompileError):
        first = error.diagnostics[0]
        stage = _COMPILE_STAGES.get(first.stage, "passes" if "pass" in first.stage else stage)
        ops = sorted({d.op for d in error.diagnostics if d.reason == first.reason and d.op})
        reason = f"{', '.join(ops)}: {first.reason}" if ops else first.reason
        python = first.place()
    elif isinstance(error, EngineError):
        reason = next((text for severity, text in error.diagnostics if severity == "error"), str(error))
        detail = "\n".join([str(error), *(f"{severity}: {text}" for severity, text in error.diagnostics)])
    else:
        reason = f"{type(error).__name__}: {error}"
    return Failure(stage, one_line(reason), detail[:IR_LIMIT], "error", index, None, inputs, ir, python)


def one_line(text: str) -> str:
    """Return the first line of a message, without what differs from run to run."""
    lines = text.strip().splitlines()
    return _NOISE.sub("…", lines[0] if lines else "").strip()[:200]


def _result(case: Case, target: str, outcome: Failure | int, timings: dict[str, float], samples: int = 0) -> Result:
    about: dict[str, Any] = {
        **case.described(),
        "timings": {k: round(v, 6) for k, v in timings.items()},
        "samples": samples,
    }
    if isinstance(outcome, int):
        return Result(case.id, target, PASS, **about, calls=outcome)
    return Result(
        case.id,
        target,
        EXCLUDED if outcome.stage in BEFORE_US else FAIL,
        **about,
        stage=outcome.stage,
        kind=outcome.kind,
        reason=outcome.reason,
        detail=outcome.detail,
        sample=outcome.sample,
        mismatch=outcome.mismatch.as_json() if outcome.mismatch else None,
        inputs=outcome.inputs,
        ir={stage: _short(text) for stage, text in outcome.ir.items()},
        python=outcome.python,
    )


def _short(text: str) -> str:
    return text if len(text) <= IR_LIMIT else text[:IR_LIMIT] + f"\n... {len(text) - IR_LIMIT} characters more"
