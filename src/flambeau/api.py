"""compile(), load(), Module: what most users need."""

from __future__ import annotations

import enum
import gc
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from flambeau.diagnostics import CompileError, Diagnostic, reporting
from flambeau.ir.module import Signature, Weights
from flambeau.ir.printing import generic_text, pretty_text
from flambeau.lowering.targets import get_target, names

if TYPE_CHECKING:
    from flambeau.engines import Executable


class OutputType(enum.StrEnum):
    """How far a program is lowered."""

    RAW = "raw"
    """The torch dialect as imported."""
    TORCH = "torch"
    """The torch dialect under the backend contract: values only, in-place ops gone, decompositions applied."""
    LINALG_ON_TENSORS = "linalg-on-tensors"
    STABLEHLO = "stablehlo"
    TOSA = "tosa"

    @staticmethod
    def get(spec: str) -> str:
        """The output type by its name, or by torch-mlir's spelling of it (`LINALG_ON_TENSORS`).

        Gives a member of this class, or the name of a target that somebody else added.
        """
        if isinstance(spec, OutputType):
            return spec
        normal = str(spec).lower().replace("_", "-")
        for output in OutputType:
            if normal == output.value:
                return output
        if spec in names():
            return spec
        known = ", ".join(dict.fromkeys([*(o.value for o in OutputType), *names()]))
        raise ValueError(f"unknown output type {spec!r}; it is one of {known}")


@dataclass
class Module:
    """A program in MLIR with its weights."""

    op: ModuleOp
    weights: Weights
    signatures: dict[str, Signature]
    output_type: str
    """An `OutputType`, or the name of another target."""
    timings: dict[str, float] = field(default_factory=dict)
    """CPU seconds of each stage."""
    origin: Module | None = None
    """The program in the torch dialect that this was lowered from; None if that is not known."""

    def __str__(self) -> str:
        return pretty_text(self.op)

    def text(self, *, weights: str = "elided", generic: bool = False, locations: bool = False) -> str:
        """The MLIR text. `weights="inline"` writes their contents into it, for one self-contained file.

        `weights="literal"` writes each where it is used, for compilers that do not take resources.
        """
        if weights not in ("elided", "inline", "literal"):
            raise ValueError(f"weights is 'elided', 'inline' or 'literal', not {weights!r}")
        op = self.op
        if weights == "literal" and self.weights:
            from flambeau.files import with_literals

            op = with_literals(op, self.weights)
        body = generic_text(op) if generic else pretty_text(op, locations)
        if weights != "inline" or not self.weights:
            return body
        from flambeau.files import resources_text

        return body + resources_text(self.weights)

    def save(self, path: str | Path) -> None:
        """Write `model.mlir`, and `model.safetensors` with the weights beside it."""
        from flambeau.files import save_module

        save_module(self, Path(path))

    def verify(self) -> None:
        """Check the IR with xDSL's verifier."""
        self.op.verify()


@contextmanager
def stage(timings: dict[str, float], name: str, clock: Callable[[], float] = time.process_time) -> Iterator[None]:
    """Add the time that is spent inside to `timings[name]`."""
    start = clock()
    try:
        yield
    finally:
        timings[name] = timings.get(name, 0.0) + clock() - start


@contextmanager
def paused_gc() -> Iterator[None]:
    # IR is a web of references that lives until the end; collecting it midway doubles the time.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def compile(
    model: Any,
    args: tuple[Any, ...] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    output_type: str = OutputType.LINALG_ON_TENSORS,
    dynamic_shapes: Any = None,
    frontend: str | None = None,
    keep: Collection[str] = (),
    function: str = "main",
    options: Mapping[str, Any] | None = None,
    verify: bool = False,
) -> Module:
    """Take a PyTorch program to MLIR.

    `model` is an `nn.Module`, an `ExportedProgram`, an `fx.GraphModule`, a `ScriptModule`, the path of a TorchScript
    archive, or a `Module` to lower further. `args` and `kwargs` are example inputs for an `nn.Module`; `dynamic_shapes`
    is `torch.export`'s. `frontend` is `"fx"` (through `torch.export`), `"script"` or `"trace"` (through TorchScript);
    by default TorchScript programs take the second and all others the first. Ops named in `keep` (`aten.gelu`, or with
    an overload) are not decomposed in the torch dialect, and are composites in StableHLO.
    `options` are the target's: `{"int64": "keep"}` leaves 64-bit integers in TOSA, which has 32 bits. Raises
    `CompileError` with every op that is not supported.
    """
    output = OutputType.get(output_type)
    check_names(keep)
    options = dict(options or {})
    if output in _ORDER and options:
        raise ValueError(f"{output} has no option {next(iter(options))!r}: options are a target's")
    if options:
        get_target(output).check(options)
    if isinstance(model, (str, Path)):
        model = _program_of(Path(model))
    if isinstance(model, Module):
        return lower(model, output, options, keep)
    if frontend not in (None, "fx", "script", "trace"):
        raise ValueError(f"frontend is 'fx', 'script' or 'trace', not {frontend!r}")
    if frontend in ("script", "trace") or (frontend is None and _is_torchscript(model)):
        from flambeau import torchscript

        if kwargs:
            raise TypeError("TorchScript programs take positional arguments: leave kwargs out")
        examples = torchscript.examples(args, dynamic_shapes)
        tracing = frontend == "trace"
        upto = output if isinstance(output, OutputType) and not options else OutputType.TORCH
        module = torchscript.compile(model, examples, upto, tracing, function=function, keep=keep, verify=verify)
        return module if module.output_type == output else lower(module, output, options, keep)
    from flambeau.frontends.fx.compile import import_model

    timings: dict[str, float] = {}
    program = import_model(model, args, kwargs, dynamic_shapes, timings)
    with paused_gc():
        with stage(timings, "import"):
            op, weights, signature = program(kept_ops(keep), function)
        raw = Module(op, weights, {function: signature}, OutputType.RAW, timings)
        module = lower(raw, output, options, keep)
    if verify:
        module.verify()
    return module


ARCHIVES = (".pt", ".pth", ".ts")
"""What files with TorchScript programs are called."""


NO_PROGRAMS = {
    ".onnx": "Flambeau does not read ONNX: compile the PyTorch model that it came from.",
    ".pt2": "Read it with torch.export.load(path), and compile what that gives.",
    ".safetensors": "It holds weights, not a program.",
    ".vmfb": "It is compiled already: flambeau.load(path) runs it.",
    ".py": "Import the model and pass it, or write FILE.py:FACTORY on the command line.",
}
"""What files are called that are not read as programs, and what to do with them."""


def _program_of(path: Path) -> Any:
    """The program in a file: a module for MLIR text; the path itself for an archive, which TorchScript reads."""
    if path.suffix == ".mlir":
        from flambeau.files import read_module

        return read_module(path)
    if path.suffix not in ARCHIVES:
        raise no_program(path, "compile", f"MLIR (.mlir) and TorchScript ({', '.join(ARCHIVES)})")
    return path


def no_program(path: Path, command: str, known: str) -> CompileError:
    """The error for a file that a command does not take."""
    hint = NO_PROGRAMS.get(path.suffix, "")
    what = "a folder" if path.is_dir() else "no such file" if not path.exists() else "none of these"
    reason = f"{command} reads files of {known}, and {path} is {what}"
    return CompileError([Diagnostic(command, reason, hint=hint)], summary=f"cannot {command} {path}")


def _is_torchscript(model: Any) -> bool:
    """Whether a program is TorchScript; only where torch is imported can there be one, but for an archive."""
    if isinstance(model, (str, Path)):
        return Path(model).suffix in ARCHIVES
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction))


def kept_ops(keep: Collection[str]) -> Callable[[str], bool]:
    """Tell which ops a frontend leaves whole: those that are named, that we decompose ourselves, or that are simple."""
    from flambeau.dialects.torch.schema import selects
    from flambeau.frontends.expanded import is_whole
    from flambeau.passes.pipelines import decomposed_ops

    table, is_named = decomposed_ops(), selects(keep)
    return lambda name: is_named(name) or name in table or is_whole(name)


def check_names(keep: Collection[str]) -> None:
    """Raise ValueError if `keep` names an op that there is not."""
    if isinstance(keep, str):
        raise TypeError(f"keep is a collection of names: keep=[{keep!r}]")
    if not keep:
        return
    import difflib

    from flambeau.dialects.torch import registry

    known = {*registry.snapshot().declarations, *registry.EXTENSIONS}
    known |= {".".join(name.split(".", 2)[:2]) for name in known}
    for name in keep:
        if name.removesuffix(".default") in known or _is_op_of_torch(name):
            continue
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else "names are like 'aten.gelu', or 'aten.add.Tensor'"
        raise ValueError(f"keep: there is no op {name!r}; {hint}")


def _is_op_of_torch(name: str) -> bool:
    """Whether PyTorch has an op that the snapshot lacks: a custom op, or one of another version."""
    torch = sys.modules.get("torch")
    namespace, _, rest = name.partition(".")
    base, _, overload = rest.partition(".")
    if torch is None or not base:
        return False
    try:
        packet = getattr(getattr(torch.ops, namespace), base)
    except AttributeError:
        return False
    return not overload or overload in packet.overloads()


_ORDER: dict[str, int] = {OutputType.RAW: 0, OutputType.TORCH: 1}


def lower(module: Module, output: str, options: Mapping[str, Any] | None = None, keep: Collection[str] = ()) -> Module:
    """Take a module further, to an output type or another target; `options` are the target's."""
    have, want = _ORDER.get(module.output_type, 2), _ORDER.get(output, 2)
    if module.output_type == output:
        return module
    if have >= want:
        raise CompileError(
            [Diagnostic("lower", f"a {module.output_type} module cannot be taken to {output}: it is lowered already")]
        )
    op, timings, origin, signatures = module.op, dict(module.timings), module.origin or module, module.signatures
    if module.output_type is OutputType.RAW and not module.signatures:
        from flambeau.torchscript import lower_objects

        flat = lower_objects(module, keep=keep)
        if not flat.signatures:
            raise CompileError([Diagnostic("lower", "the program has no function to compile", location=op.location)])
        return lower(flat, output, options, keep)
    if module.output_type is OutputType.RAW:
        from flambeau.passes.pipelines import has_mutable_tensors, to_backend_contract

        with stage(timings, "passes"):
            # Rewriting writes as values may stop half-way; what goes into a repro is the program before that.
            before = op.clone() if has_mutable_tensors(op) else op
            origin = replace(module, op=before)
            with _reproducible(before, "torch-function-to-torch-backend-pipeline"):
                op = to_backend_contract(op, keep if _says_whole(output) else ())
            signatures = _with_results(signatures, op)
    if output != OutputType.TORCH:
        with stage(timings, "lowering"), _reproducible(op, f"torch-backend-to-{output}-backend-pipeline"):
            op = get_target(output).lower(op, options or {}, keep)
    return Module(op, module.weights, signatures, output, timings, origin)


def _with_results(signatures: Mapping[str, Signature], op: ModuleOp) -> dict[str, Signature]:
    """Signatures with the types that the passes have found for the results of functions."""
    from flambeau.dialects.specs import spec_of

    types = {f.sym_name.data: f.function_type.outputs.data for f in op.ops if isinstance(f, func.FuncOp)}
    return {
        name: replace(signature, results=tuple(map(spec_of, types[name]))) if name in types else signature
        for name, signature in signatures.items()
    }


@contextmanager
def _reproducible(op: ModuleOp, pipeline: str) -> Iterator[None]:
    """Give a CompileError the program and the pipeline that it came from; an internal error becomes one."""
    try:
        with reporting(f"run {pipeline}"):
            yield
    except CompileError as e:
        e.context.update(module=op, pipeline=pipeline)
        raise


def _says_whole(output: str) -> bool:
    """Whether an output type can say an op that is kept."""
    return output == OutputType.TORCH or "keep" in get_target(output).options()


def load(
    module: Module | str | Path, *, engine: Any = "iree", check: str | int | None = None, **options: Any
) -> Executable:
    """A callable that runs the program, on torch tensors or numpy arrays. Takes a `Module` or a saved artefact.

    `check="first"` compares the first call of each function with eager PyTorch, a number n each n-th, and a difference
    raises `WrongResult`; without PyTorch it is compared with the plainest code that the engine has. The environment
    variable `FLAMBEAU_CHECK` says so for all programs that are not told. The other options are the engine's.
    """
    if isinstance(module, (str, Path)):
        path = Path(module)
        if path.suffix in NO_PROGRAMS.keys() - {".vmfb"} or path.suffix in ARCHIVES or path.is_dir():
            raise no_program(path, "load", "compiled programs (.vmfb) and MLIR (.mlir)")
        if Path(module).suffix == ".mlir":
            from flambeau.files import read_module, require_weights

            read = read_module(Path(module))
            require_weights(read, Path(module))
            return load(compile(read), engine=engine, check=check, **options)
        from flambeau.engines.iree.executable import load_executable

        if check is not None:
            raise ValueError("a compiled artefact cannot be checked: load the module that it was made of")
        return load_executable(Path(module), **options)
    from flambeau.checking import checked, interval
    from flambeau.engines import get_engine

    if not isinstance(module, Module):
        raise TypeError(
            f"load() takes a compiled Module, or the path of a saved one, not {type(module).__name__}: "
            "compile it first, as in load(flambeau.compile(model, (x,)))"
        )
    found, every = get_engine(engine), interval(check)
    executable = found.compile(module, **options)
    if every is None:
        return executable
    plainly = getattr(found, "compile_plainly", None)
    return checked(executable, module, every, lambda m: found.compile(m, **options), plainly)
