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

from xdsl.dialects.builtin import ModuleOp

from flambeau.diagnostics import CompileError, Diagnostic, reporting
from flambeau.distributed.placing import before_mesh, parallelized_model, placed
from flambeau.ir.module import Signature, Weights
from flambeau.ir.printing import generic_text, pretty_text
from flambeau.keeping import check_names, checked_options, kept_ops, left_to_engine
from flambeau.lowering.targets import get_target, names
from flambeau.signatures import with_random_state, with_results

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
        """Return the output type by its name, or by torch-mlir's spelling of it (`LINALG_ON_TENSORS`).

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
    options: Mapping[str, Any] = field(default_factory=dict)
    """The target's options that it was lowered with."""
    functional: Module | None = None
    """The same program with its state as arguments and results, where that is in global variables here."""

    def __str__(self) -> str:
        return pretty_text(self.op)

    @property
    def signature(self) -> Signature:
        """Return how the program's function is called: what it takes and gives, what it writes, what sizes may be.

        ValueError for a program of several functions, which has `signatures`.
        """
        if len(self.signatures) == 1:
            return next(iter(self.signatures.values()))
        if "main" in self.signatures:
            return self.signatures["main"]
        names = ", ".join(self.signatures) or "none"
        raise ValueError(f"the module has no function 'main'; its functions are: {names}. Ask for signatures[name]")

    def text(self, *, weights: str = "elided", generic: bool = False, locations: bool = False) -> str:
        """Print the MLIR text. `weights="inline"` writes their contents into it, for one self-contained file.

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
    external: Collection[str] | Mapping[str, str] = (),
    function: str = "main",
    options: Mapping[str, Any] | None = None,
    verify: bool = False,
    mesh: Any = None,
    plan: Any = None,
    state: str = "functional",
) -> Module:
    """Take a PyTorch program to MLIR.

    `model` is an `nn.Module`, an `ExportedProgram`, an `fx.GraphModule`, a `ScriptModule`, the path of a TorchScript
    archive or a file of MLIR, MLIR text, a `Module` to lower further, or several programs as functions of one module
    that share weights and state: `{"prefill": (model, args), "decode": (model, args, kwargs)}`. `args` and `kwargs` are
    example inputs for an `nn.Module`; `dynamic_shapes` is `torch.export`'s, by function if there are several.
    `frontend` is `"fx"` (through `torch.export`), `"script"` or `"trace"` (through TorchScript); by default TorchScript
    programs take the second and all others the first. Ops named in `keep` (`aten.gelu`, or with an overload) are not
    decomposed in the torch dialect, and are composites in StableHLO. Those in `external` are left to the engine, under
    their own name or another. `options` are the target's: `{"int64": "keep"}` leaves 64-bit integers in TOSA, which has
    32 bits. `mesh` (a mapping from axes to sizes, or a `DeviceMesh`) and `plan` (that of `parallelize_module`, or a
    `flambeau.distributed.Plan`) lay a program in StableHLO out over many devices; `DTensor`s say it themselves.

    `state` says what becomes of tensors that the program writes, and of the state of random numbers: `"functional"`
    makes them named arguments and results, which a loaded program writes back in place; `"globals"` keeps them in
    variables of the module, each loaded program its own; `"frozen"` refuses programs that have any. Raises
    `CompileError` with every op that is not supported.
    """
    from flambeau.files import program_of

    output = wanted = OutputType.get(output_type)
    _check_choices(keep, frontend, state)
    if (split := parallelized_model(model, mesh, plan)) is not None:
        others = {"frontend": frontend, "keep": keep, "function": function, "options": options, "verify": verify}
        return _compile_split(split, args, kwargs, output, dynamic_shapes, external=external, state=state, **others)
    options, keep = checked_options(output, options or {}, keep, external)
    if mesh is not None or plan is not None:
        output = before_mesh(model, output, dynamic_shapes, mesh)
    model = program_of(model)
    if isinstance(model, Module):
        module = _lower_copy(model, output, options, keep)
    elif frontend in ("script", "trace") or (frontend is None and _is_torchscript(model)):
        module = _compile_scripted(model, args, kwargs, dynamic_shapes, keep, function, output, options, frontend)
    elif isinstance(model, Mapping):
        module = _compile_entries(model, args, kwargs, dynamic_shapes, keep, output, options)
    else:
        module = _compile_exported(model, args, kwargs, dynamic_shapes, keep, function, output, options)
    module = _under_policy(module, state, mesh)
    if mesh is not None:
        module = placed(model, mesh, plan, function, module, lambda m, o: lower(m, wanted, {**options, **o}, keep))
    if verify:
        module.verify()
    return module


def _lower_copy(model: Module, output: str, options: Mapping[str, Any], keep: Collection[str]) -> Module:
    """Lower a module; what the passes rewrite is a copy, and the caller's stays as it is."""
    is_rewritten = model.output_type == OutputType.RAW != output
    return lower(replace(model, op=model.op.clone()) if is_rewritten else model, output, options, keep)


def _compile_split(split: Any, args: Any, kwargs: Any, output: str, dynamic_shapes: Any, **others: Any) -> Module:
    """Compile a model that PyTorch has split, over whole tensors, with the weights that it is split into."""
    placing = {"mesh": split.mesh, "plan": split.plan, "output_type": output, "dynamic_shapes": dynamic_shapes}
    module = compile(split.model, args, kwargs, **placing, **others)
    return replace(module, weights=split.weights(module.weights))


def _check_choices(keep: Collection[str], frontend: str | None, state: str) -> None:
    """Raise ValueError for what `compile` does not have."""
    check_names(keep)
    if state not in STATES:
        raise ValueError(f"state is {', '.join(map(repr, STATES[:-1]))} or {STATES[-1]!r}, not {state!r}")
    if frontend not in (None, "fx", "script", "trace"):
        raise ValueError(f"frontend is 'fx', 'script' or 'trace', not {frontend!r}")


def _compile_scripted(
    model: Any,
    args: tuple[Any, ...] | None,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    keep: Collection[str],
    function: str,
    output: str,
    options: Mapping[str, Any],
    frontend: str | None,
) -> Module:
    """Compile TorchScript, or what TorchScript scripts or traces."""
    from flambeau import torchscript

    if kwargs:
        raise TypeError("TorchScript programs take positional arguments: leave kwargs out")
    examples = torchscript.examples(args, dynamic_shapes)
    upto = output if isinstance(output, OutputType) and not options else OutputType.TORCH
    whole = (*keep, *left_to_engine(options))
    module = torchscript.compile(model, examples, upto, frontend == "trace", function=function, keep=whole)
    return module if module.output_type == output else lower(module, output, options, keep)


STATES = ("functional", "globals", "frozen")
"""What becomes of state that a program writes."""


def _refuse_writes(module: Module) -> None:
    """Raise CompileError for a module that writes anything that a caller could see."""
    problems = []
    for name, signature in module.signatures.items():
        written = [signature.arguments[m.argument] for m in signature.mutations]
        for argument in written:
            what = "state" if argument.state is not None else "its argument"
            reason = f"the function {name!r} writes {what} {argument.name!r}, and state is 'frozen'"
            hint = "Call model.eval(), or compile with state='functional', which gives the new value as a result."
            problems.append(Diagnostic("compile", reason, hint=hint))
    if problems:
        raise CompileError(problems, summary="the program writes state that is frozen")


def _under_policy(module: Module, state: str, mesh: Any) -> Module:
    """Let what a program writes be what the policy says."""
    if state == "frozen":
        _refuse_writes(module)
    return globalized(module, mesh) if state == "globals" else module


def globalized(module: Module, mesh: Any = None) -> Module:
    """Keep the state of a lowered module in global variables; a module without state is returned as it is."""
    from flambeau.lowering.globals import with_globals

    if mesh is not None:
        raise ValueError("state='globals' is for one device: with a mesh, state is arguments and results")
    if module.output_type in (OutputType.RAW, OutputType.TORCH):
        raise ValueError(
            f"state='globals' is for targets, and the output type is {module.output_type}, in which state is arguments"
        )
    with _reproducible(module.op, "state-to-globals"):
        op, signatures = with_globals(module.op, module.signatures)
    return module if op is module.op else replace(module, op=op, signatures=signatures, functional=module)


def _compile_exported(
    model: Any,
    args: tuple[Any, ...] | None,
    kwargs: Mapping[str, Any] | None,
    dynamic_shapes: Any,
    keep: Collection[str],
    function: str,
    output: str,
    options: Mapping[str, Any],
) -> Module:
    """Compile what `torch.export` takes, or has made."""
    from flambeau.frontends.fx.compile import import_model

    timings: dict[str, float] = {}
    program = import_model(model, args, kwargs, dynamic_shapes, timings)
    with paused_gc():
        with stage(timings, "import"):
            op, weights, signature = program(kept_ops((*keep, *left_to_engine(options))), function, ())
        raw = Module(op, weights, {function: signature}, OutputType.RAW, timings)
        return lower(raw, output, options, keep)


def _compile_entries(
    entries: Mapping[str, Any],
    args: Any,
    kwargs: Any,
    dynamic_shapes: Any,
    keep: Collection[str],
    output: str,
    options: Mapping[str, Any],
) -> Module:
    """Compile several programs as functions of one module."""
    from flambeau.frontends.fx.compile import import_model
    from flambeau.frontends.fx.entries import import_entries

    if args is not None or kwargs is not None:
        raise TypeError("several functions have example inputs of their own: {'decode': (model, args, kwargs)}")
    if not entries or not all(isinstance(name, str) and name.isidentifier() for name in entries):
        raise ValueError(f"the functions of a module have names: {{'decode': (model, args)}}, not {list(entries)}")
    shapes = dict(dynamic_shapes or {})
    if unknown := [name for name in shapes if name not in entries]:
        raise ValueError(f"dynamic_shapes are by function, and there is no function {unknown[0]!r}")
    timings: dict[str, float] = {}
    programs = {}
    for name, entry in entries.items():
        model, *examples = entry if isinstance(entry, tuple) else (entry,)
        arguments, keywords = (*examples, None, None)[:2]
        exported: dict[str, float] = {}
        programs[name] = import_model(model, arguments, keywords, shapes.get(name), exported)
        timings["export"] = timings.get("export", 0.0) + exported.get("export", 0.0)
    with paused_gc():
        with stage(timings, "import"):
            op, weights, signatures = import_entries(programs, kept_ops((*keep, *left_to_engine(options))))
        return lower(Module(op, weights, signatures, OutputType.RAW, timings), output, options, keep)


def _is_torchscript(model: Any) -> bool:
    """Tell whether a program is TorchScript: an archive, or an object, which only exists where torch is imported."""
    if isinstance(model, Path):  # Others have been read.
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, (torch.jit.ScriptModule, torch.jit.ScriptFunction))


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
    weights = module.weights
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
                op = to_backend_contract(op, (*(keep if _says_whole(output) else ()), *left_to_engine(options)))
            signatures = with_results(signatures, op)
            signatures, weights = with_random_state(signatures, weights, op)
            if weights is not module.weights:  # Before, PyTorch's own generator would draw.
                origin = Module(op, weights, signatures, OutputType.TORCH)
    if output != OutputType.TORCH:
        with stage(timings, "lowering"), _reproducible(op, f"torch-backend-to-{output}-backend-pipeline"):
            op = get_target(output).lower(op, options or {}, keep)
    return Module(op, weights, signatures, output, timings, origin, options or {})


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
    """Tell whether an output type can express an op that is kept whole."""
    return output == OutputType.TORCH or "keep" in get_target(output).options()


def load(
    module: Module | str | Path, *, engine: Any = "iree", check: str | int | None = None, **options: Any
) -> Executable:
    """Load a program as a callable on torch tensors or numpy arrays. Takes a `Module` or a saved artefact.

    `check="first"` compares the first call of each function with eager PyTorch, a number n each n-th, and a difference
    raises `WrongResult`; without PyTorch it is compared with the plainest code that the engine has. The environment
    variable `FLAMBEAU_CHECK` says so for all programs that are not told. The other options are the engine's.
    """
    if isinstance(module, (str, Path)):
        from flambeau.files import ARCHIVES, NO_PROGRAMS, no_program

        path = Path(module)
        if path.suffix in NO_PROGRAMS.keys() - {".vmfb", ".xla"} or path.suffix in ARCHIVES or path.is_dir():
            raise no_program(path, "load", "compiled programs (.vmfb, .xla) and MLIR (.mlir)")
        if Path(module).suffix == ".mlir":
            from flambeau.files import read_module, require_weights

            read = read_module(Path(module))
            require_weights(read, Path(module))
            from flambeau.engines import output_type_of

            if read.output_type in _ORDER:
                read = compile(read, output_type=output_type_of(engine))
            return load(read, engine=engine, check=check, **options)
        if check is not None:
            raise ValueError("a compiled artefact cannot be checked: load the module that it was made of")
        return _load_artefact(path, engine, options)
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


def _load_artefact(path: Path, engine: Any, options: Mapping[str, Any]) -> Executable:
    """Load what an executable saved; its suffix says which engine it is for."""
    if path.suffix == ".xla":
        if not isinstance(engine, str) or engine not in ("iree", "xla"):  # "iree" is what nobody said
            raise ValueError(f"{path} was compiled for the engine 'xla'")
        try:
            from flambeau.engines.xla.saving import load_executable as load_xla
        except ImportError as error:
            from flambeau.engines import EngineError

            raise EngineError(f"{path} needs `pip install jax`: {error}") from error
        return load_xla(path, **options)
    from flambeau.engines.iree.executable import load_executable

    if engine == "xla":
        raise ValueError(f"{path} was compiled for the engine 'iree'")
    return load_executable(path, **options)
