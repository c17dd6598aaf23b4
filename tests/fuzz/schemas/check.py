"""One call without an engine: its types against eager's, and its form after all passes on the eager interpreter."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from fuzz.campaign import Outcome
from fuzz.schemas import exclusions
from fuzz.schemas.cases import Case, generate
from xdsl.dialects import func
from xdsl.dialects.builtin import FunctionType, ModuleOp
from xdsl.ir import Block, Region, SSAValue

from flambeau.diagnostics import CompileError, Unsupported
from flambeau.dialects.torch.types import ListType, TensorType, list_of, vtensor
from flambeau.engines.eager.interpreter import Interpreter
from flambeau.engines.errors import EngineError, RunError
from flambeau.infer.builder import TorchBuilder, rules, type_of
from flambeau.infer.rules import InferenceError, Meta
from flambeau.ir import dtypes
from flambeau.passes.decompose import decompositions
from flambeau.passes.pipelines import to_backend_contract
from flambeau.testing.cases import TOLERANCES
from flambeau.testing.suites.ops import eigen_promise, eigenvectors_promise, singular_promise, spectrum_promise

torch.set_num_threads(1)
warnings.simplefilter("ignore")


@dataclass
class Answer:
    """What eager PyTorch makes of a case."""

    results: list[Any]
    """Tensors, lists of tensors, and None."""
    error: str = ""


def ask(case: Case) -> Answer:
    """Call eager PyTorch."""
    return ask_with(case, case.values())


def ask_with(case: Case, values: Sequence[Any]) -> Answer:
    """Call eager PyTorch with other arguments than those of the case."""
    try:
        with torch.no_grad():
            found = case.call(list(values))
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        return Answer([], f"{type(error).__name__}: {error}")
    if len(case.schema.returns) > 1:
        return Answer(list(found))
    return Answer([found])


def build(case: Case, answer: Answer, open_dims: Sequence[frozenset[int]] = ()) -> tuple[ModuleOp, list[torch.Tensor]]:
    """Build a module with one function that calls the op; return it and the tensors to call it with.

    `open_dims` are, for each tensor, the dims whose size is left to the run time.
    """
    block = Block()
    tensors: list[torch.Tensor] = []

    def operand(argument: Any, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            dtype = dtypes.from_torch(value.dtype)
            assert dtype is not None
            hidden = open_dims[len(tensors)] if len(tensors) < len(open_dims) else frozenset()
            tensors.append(value)
            shape = tuple(None if i in hidden else d for i, d in enumerate(value.shape))
            return block.insert_arg(vtensor(shape, dtype.torch_type), len(block.args))
        if isinstance(value, list):
            return [operand(argument, v) for v in value]
        if isinstance(value, torch.dtype):
            return dtypes.from_torch(value)
        if isinstance(value, torch.memory_format):
            return 0
        if argument.type.base == "float" and isinstance(value, int):
            return float(value)
        return value

    bound = [operand(a, v) for a, v in zip(case.schema.arguments, case.values(), strict=True)]
    builder = TorchBuilder(block)
    if case.name in rules():
        found = builder.build(case.schema, bound)
        results = list(found) if isinstance(found, tuple) else [found]
    else:
        operands = [builder.argument(a.type, v) for a, v in zip(case.schema.arguments, bound, strict=True)]
        results = list(builder.op(case.name, operands, [_type(r) for r in answer.results]))
    results = _unpacked(builder, results, answer, bool(open_dims))
    builder.emit(func.ReturnOp, results)
    types = [a.type for a in block.args], [r.type for r in results]
    return ModuleOp([func.FuncOp("main", FunctionType.from_lists(*types), Region(block))]), tensors


def _unpacked(builder: TorchBuilder, results: Sequence[SSAValue], answer: Answer, is_open: bool) -> list[SSAValue]:
    """Unpack lists to their elements, since only tensors leave a function."""
    from flambeau.dialects.torch.ops import ListUnpackOp

    flat: list[SSAValue] = []
    for i, result in enumerate(results):
        if isinstance(result.type, ListType) and i < len(answer.results) and isinstance(answer.results[i], list):
            types = [_type(t, is_open) for t in answer.results[i]]
            flat.extend(builder.emit(ListUnpackOp, (result,), types).results)
        else:
            flat.append(result)
    return flat


def _type(result: Any, is_open: bool = False) -> Any:
    if isinstance(result, (list, tuple)):
        types = {_type(r) for r in result}
        return list_of(types.pop() if len(types) == 1 else vtensor())
    if result is None:
        return vtensor()
    dtype = dtypes.from_torch(result.dtype)
    if dtype is None:
        raise Unsupported(f"dtype {result.dtype}")
    return type_of(Meta((None,) * result.dim() if is_open else tuple(result.shape), dtype))


def flat(results: Sequence[Any]) -> list[Any]:
    return [t for r in results for t in (r if isinstance(r, (list, tuple)) else [r])]


def wrong_types(module: ModuleOp, answer: Answer) -> str:
    """How the types of the results differ from eager's; empty where they do not."""
    function = next(op for op in module.ops if isinstance(op, func.FuncOp))
    want = flat(answer.results)
    types = function.function_type.outputs.data
    if len(types) != len(want):
        return f"{len(types)} results instead of {len(want)}"
    for type_, expected in zip(types, want, strict=True):
        if not isinstance(expected, torch.Tensor) or not isinstance(type_, TensorType):
            continue
        if type_.shape is None or type_.dtype is None:
            continue
        if type_.dtype.torch is not expected.dtype:
            return f"dtype {type_.dtype} instead of {expected.dtype}"
        shape = tuple(expected.shape)
        if len(shape) != len(type_.shape) or any(
            d is not None and d != n for d, n in zip(type_.shape, shape, strict=True)
        ):
            return f"shape {type_.shape} instead of {shape}"
    return ""


def truth(case: Case, values: Sequence[Any]) -> list[Any]:
    """Run eager PyTorch on the same floats in 64 bits; return nothing where it takes none."""

    def widened(value: Any) -> Any:
        if isinstance(value, list):
            return [widened(v) for v in value]
        is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(torch.float64) if is_float else value

    try:
        with torch.no_grad():
            found = case.call([widened(v) for v in values])
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return []
    return flat(list(found) if len(case.schema.returns) > 1 else [found])


PROMISES: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {
    "_linalg_eigh": eigen_promise,
    "_linalg_svd": singular_promise,
    "linalg_eig": eigenvectors_promise,
    "linalg_eigvals": spectrum_promise,
}
"""Ops whose results are defined up to an order, a sign or a rotation, and what of them is compared."""


def difference(got: Sequence[Any], want: Sequence[Any], case: Case, values: Sequence[Any] | None = None) -> str:
    """How results differ from eager's; empty where they do not, or are as near to the truth as eager's own."""
    got, want = flat(got), flat(want)
    if len(got) != len(want):
        return f"{len(got)} results instead of {len(want)}"
    is_promised = case.base in PROMISES and (case.base == "linalg_eigvals" or want[-1].ndim > 1)
    if is_promised and [a.shape for a in got] == [e.shape for e in want]:
        got, want = PROMISES[case.base](*got), PROMISES[case.base](*want)
    for i, (a, e) in enumerate(zip(got, want, strict=True)):
        if e is None:
            continue
        if not isinstance(a, torch.Tensor):
            return f"result {i} is {a!r}"
        if a.dtype is not e.dtype:
            return f"result {i}: dtype {a.dtype} instead of {e.dtype}"
        if a.shape != e.shape:
            return f"result {i}: shape {tuple(a.shape)} instead of {tuple(e.shape)}"
        text = _values(a, e, case.base)
        if text:
            exact = truth(case, case.values() if values is None else values)
            text = _values(a, e, case.base, exact[i] if len(exact) == len(want) else None)
        if text:
            return f"result {i}: {text}"
    return ""


def _values(actual: torch.Tensor, expected: torch.Tensor, op: str, exact: Any = None) -> str:
    """Which elements differ; `exact` is the answer in 64 bits, where there is one."""
    a, e = (t.detach().resolve_conj().resolve_neg() for t in (actual, expected))
    if a.is_floating_point() or a.is_complex():
        name = "float16" if e.dtype is torch.complex32 else str(e.dtype).removeprefix("torch.")
        rtol, atol = TOLERANCES[name]
        wide = torch.complex128 if a.is_complex() else torch.float64
        a, e = a.to(wide), e.to(wide)
        finite = e.abs()[e.isfinite()]
        # A sum is as exact as its terms, which may be larger than itself.
        scale = max(1.0, float(finite.max()) if finite.numel() else 1.0)
        bad = ~torch.isclose(a, e, rtol=rtol, atol=atol * scale, equal_nan=True)
        if exact is not None and exact.dtype is torch.float64 and exact.shape == a.shape:
            bad &= ~((a - exact).abs() <= 2 * (e - exact).abs() + atol * scale)
            bad &= ~torch.isclose(a, exact, rtol=rtol, atol=atol * scale, equal_nan=True)
        if op in exclusions.NOT_FINITE:
            bad &= a.isfinite() | e.isfinite()
        if e.is_complex():
            bad &= ~(e.real.isnan() | e.imag.isnan()) | a.isfinite()
    elif op in exclusions.MISSED_WINDOWS:
        bad = (a != e) & (a >= 0)
    else:
        bad = a != e
    if not bool(bad.any()):
        return ""
    at = tuple(int(n) for n in bad.nonzero()[0])
    return f"{actual[at].item()} instead of {expected[at].item()} at {at}, {int(bad.sum())} of {bad.numel()} differ"


REFUSALS = (CompileError, Unsupported, InferenceError, EngineError)


def check_case(case: Case) -> Outcome:
    """Check a case without an engine; return what became of it."""
    answer = ask(case)
    if answer.error and case.name not in rules() and case.name not in decompositions():
        return Outcome("rejected")
    stage = "infer"
    try:
        if answer.error and case.name not in rules():
            return Outcome("rejected")
        module, tensors = build(case, answer)
        if not answer.error and (wrong := wrong_types(module, answer)):
            return failed("infer", wrong, case)
        if case.name not in decompositions():
            # Any form of the program is the op itself, which eager PyTorch would run: there is nothing to compare.
            return Outcome("rejected" if answer.error else "same")
        stage = "passes"
        module = to_backend_contract(module)
        stage = "run"
        got = Interpreter(module, {}).call("main", tensors)
    except RunError as error:
        return Outcome("rejected") if answer.error else failed("run", f"raises {_first(error)}", case)
    except REFUSALS as error:
        if answer.error:
            return Outcome("rejected")
        return Outcome("refused", stage, f"{type(error).__name__}: {_first(error)}\n{case}")
    except Exception as error:
        if answer.error:
            return Outcome("rejected")
        return failed("exception", f"{type(error).__name__}: {error}", case)
    if answer.error:
        if exclusions.is_gap(answer.error):
            return Outcome("rejected")
        return failed("accepted", f"eager raises {answer.error}", case)
    if wrong := difference(got, answer.results, case):
        return failed("decompose", wrong, case)
    return Outcome("same")


def _first(error: BaseException) -> str:
    return str(error).strip().split("\n\n")[-1].replace("\n", " ")[:300]


def failed(stage: str, reason: str, case: Case) -> Outcome:
    """Make the outcome of a failure; cases of one overload are of one kind."""
    return Outcome("failed", f"{stage} {case.name}", f"{reason}\n{case}")


def check_seed(seed: int) -> Outcome:
    """Check the case of a seed."""
    return check_case(generate(seed))


def describe(seed: int) -> str:
    """Describe the case of a seed as one line of Python."""
    return str(generate(seed))
