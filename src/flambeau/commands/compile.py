"""`flambeau compile` and `flambeau run`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from flambeau.commands.errors import usage_error
from flambeau.commands.inputs import InputSpec, load_factory, parse_input
from flambeau.commands.plugins import plugin_option
from flambeau.diagnostics import CompileError

if TYPE_CHECKING:
    from flambeau.api import Module

STATES = ("functional", "globals", "frozen")
"""Those of `flambeau.compile`, which is not imported before it is needed."""
FRONTENDS = ("fx", "script", "trace")
OUTPUTS = ("raw", "torch", "linalg-on-tensors", "stablehlo", "tosa")
_messages = Console(stderr=True)


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show a spinner on a terminal; nothing in a log."""
    if not _messages.is_terminal:
        yield
        return
    with _messages.status(what):
        yield


def show_timings(timings: dict[str, float]) -> None:
    """Print the table of `--timing`."""
    table = Table("stage", "seconds", title="CPU time")
    for stage, seconds in timings.items():
        table.add_row(stage, f"{seconds:.3f}")
    table.add_row("total", f"{sum(timings.values()):.3f}")
    _messages.print(table)


def _inputs(texts: Sequence[str]) -> list[InputSpec]:
    return [parse_input(t) for t in texts]


def _compile(
    target: str,
    inputs: list[InputSpec],
    output_type: str,
    timings: dict[str, float],
    frontend: str | None = None,
    options: Mapping[str, str | bool] | None = None,
    external: Sequence[str] = (),
    state: str = "functional",
) -> tuple[Module, Callable[..., Any] | None]:
    """Compile the target; return the module and the model that it was made from (None for a .mlir file)."""
    import flambeau

    left = {name: symbol or name.replace("::", ".") for name, _, symbol in (e.partition("=") for e in external)}
    if target.endswith(".mlir"):
        from flambeau.files import read_module

        path = Path(target)
        if not path.is_file():
            raise usage_error(f"{path} is a folder" if path.is_dir() else f"there is no file {path}")
        module = read_module(path)
        return flambeau.compile(module, output_type=output_type, options=options, external=left, state=state), None
    start = time.process_time()
    with progress(f"loading {target}"):
        import torch

        model = _load(target)
        if isinstance(model, torch.nn.Module):
            model = model.eval()
    timings["load model"] = time.process_time() - start
    if not inputs:
        raise usage_error("give an --input for each argument of the model, such as --input 1x3x224x224xf32")
    dynamic = tuple(spec.dynamic_dims() for spec in inputs)
    with progress(f"compiling {target}"):
        module = flambeau.compile(
            model,
            tuple(spec.tensor() for spec in inputs),
            output_type=output_type,
            dynamic_shapes=dynamic if any(dynamic) else None,
            frontend=frontend,
            options=options,
            external=left,
            state=state,
        )
    return module, model


def _options(texts: Sequence[str]) -> dict[str, str | bool]:
    """Parse the target's options from `NAME=VALUE`; `true` and `false` become bools."""
    for text in texts:
        if "=" not in text:
            raise usage_error(f"an option is NAME=VALUE, such as int64=keep, not {text!r}")
    pairs = (text.split("=", 1) for text in texts)
    return {name: {"true": True, "false": False}.get(value, value) for name, value in pairs}


def _load(target: str) -> Any:
    """Load a model from Python, or the program of a TorchScript archive."""
    from flambeau.files import ARCHIVES, NO_PROGRAMS

    if hint := NO_PROGRAMS.get(Path(target).suffix):
        kinds = f"FILE.py:FACTORY, FILE.mlir and TorchScript archives ({', '.join(ARCHIVES)})"
        raise usage_error(f"cannot compile {target}: known are {kinds}. {hint}")
    if target.endswith(ARCHIVES):
        from flambeau.torchscript import load_archive

        return load_archive(target)
    return load_factory(target)


@click.command("compile")
@click.argument("target", metavar="FILE.py:FACTORY | FILE.pt | FILE.mlir")
@click.option("--input", "inputs", multiple=True, metavar="SHAPExDTYPE", help="An argument, e.g. 1x3x224x224xf32.")
@click.option(
    "--frontend", type=click.Choice(FRONTENDS), help="How the model is captured; fx unless it is TorchScript."
)
@click.option("--emit", type=click.Choice(OUTPUTS), default="linalg-on-tensors", show_default=True)
@plugin_option()
@click.option(
    "--external", multiple=True, metavar="OP[=NAME]", help="An op that is left to the engine: mylib::gate=gate."
)
@click.option(
    "--state", type=click.Choice(STATES), default=STATES[0], show_default=True, help="What becomes of what it writes."
)
@click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the target: int64=keep.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write here, not to the terminal."
)
@click.option("--inline-weights", is_flag=True, help="Write the weights into the text: one self-contained file.")
@click.option("--locations", is_flag=True, help="Print the source location of each op.")
@click.option("--timing", is_flag=True, help="Show how long each stage took.")
@click.option("--repro", type=click.Path(dir_okay=False, path_type=Path), help="On failure, write the program here.")
def compile_command(
    target: str,
    inputs: tuple[str, ...],
    frontend: str | None,
    emit: str,
    external: tuple[str, ...],
    state: str,
    options: tuple[str, ...],
    output: Path | None,
    inline_weights: bool,
    locations: bool,
    timing: bool,
    repro: Path | None,
) -> None:
    """Compile a model to MLIR.

    FACTORY is an nn.Module in FILE.py, or a function that makes one. FILE.pt is an archive that torch.jit.save wrote. A
    saved .mlir file works too.
    """
    timings: dict[str, float] = {}
    try:
        module, _ = _compile(target, _inputs(inputs), emit, timings, frontend, _options(options), external, state)
    except ValueError as e:  # a choice that does not go with another
        raise usage_error(str(e)) from None
    except CompileError as e:
        if repro is not None and "module" in e.context:
            e.save_repro(repro)
            report = repro.with_suffix(".md")
            report.write_text(e.report(repro), encoding="utf-8")
            click.echo(f"the program that failed is in {repro}, and {report} is a report to fill in", err=True)
        raise
    timings.update(module.timings)
    text = module.text(weights="inline" if inline_weights else "elided", locations=locations)
    if output is None:
        click.echo(text, nl=False)
    elif inline_weights:
        _write(output, text)
    else:
        try:
            module.save(output)
        except OSError as e:
            raise usage_error(f"cannot write {output}: {e}") from None
    if timing:
        show_timings(timings)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as e:
        raise usage_error(f"cannot write {path}: {e}") from None


@click.command("run")
@click.argument("target", metavar="FILE.py:FACTORY | FILE.pt | FILE.mlir | FILE.vmfb | FILE.xla")
@click.option(
    "--frontend", type=click.Choice(FRONTENDS), help="How the model is captured; fx unless it is TorchScript."
)
@click.option("--input", "inputs", multiple=True, metavar="SHAPExDTYPE[=VALUE]")
@plugin_option()
@click.option("--engine", default="iree", show_default=True)
@click.option(
    "--save", type=click.Path(dir_okay=False, path_type=Path), help="Keep the compiled artefact (.vmfb, .xla)."
)
@click.option(
    "--check", is_flag=True, help="Compare with eager PyTorch, or with the plainest code; exit status 1 if they differ."
)
@click.option("--timing", is_flag=True, help="Show how long each stage took.")
def run_command(
    target: str,
    frontend: str | None,
    inputs: tuple[str, ...],
    engine: str,
    save: Path | None,
    check: bool,
    timing: bool,
) -> None:
    """Compile a model, run it once, and print its results.

    VALUE is a number, ones, zeros, arange or @file.npy; without it floats are random and integers are ones.
    """
    import torch

    import flambeau
    from flambeau.engines import WrongResult, output_type_of

    specs = _inputs(inputs)
    timings: dict[str, float] = {}
    if target.endswith((".vmfb", ".xla")):
        if not Path(target).is_file():
            raise usage_error(f"there is no file {target}")
        if check:
            raise usage_error("--check needs the program: give FILE.py:FACTORY, FILE.pt or FILE.mlir")
        executable, model = flambeau.load(target), None
    else:
        try:
            output = output_type_of(engine)
        except ValueError as e:
            raise usage_error(str(e)) from None
        module, model = _compile(target, specs, output, timings, frontend)
        timings.update(module.timings)
        with progress(f"compiling with {engine}"):
            try:
                # A model is compared as a whole, below; a program without one compares its call itself.
                executable = flambeau.load(module, engine=engine, check="first" if check and model is None else None)
            except ValueError as e:
                raise usage_error(str(e)) from None
        timings.update(getattr(executable, "timings", {}))
    if save is not None:
        executable.save(save)  # type: ignore[attr-defined]
    arguments = [spec.tensor() for spec in specs]
    start = time.perf_counter()
    try:
        results = executable(*arguments)
    except (TypeError, ValueError) as e:
        raise usage_error(str(e)) from None
    except WrongResult as e:
        click.echo(str(e), err=True)
        sys.exit(1)
    timings["run"] = time.perf_counter() - start
    _print_results(results)
    if check and model is not None:
        with torch.no_grad():
            expected = model(*arguments)
        _compare(results, expected)
    if timing:
        show_timings(timings)


def _print_results(results: Any) -> None:
    import torch
    from torch.utils import _pytree

    for i, leaf in enumerate(_pytree.tree_leaves(results)):
        if isinstance(leaf, torch.Tensor):
            click.echo(f"result {i}: {tuple(leaf.shape)} {str(leaf.dtype).removeprefix('torch.')}")
            click.echo(str(leaf))
        else:
            click.echo(f"result {i}: {leaf}")


def _compare(results: Any, expected: Any) -> None:
    import torch
    from torch.utils import _pytree

    pairs = zip(_pytree.tree_leaves(results), _pytree.tree_leaves(expected), strict=True)
    for i, (ours, eager) in enumerate(pairs):
        if isinstance(eager, torch.Tensor):
            try:
                torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5, equal_nan=True)
            except AssertionError as e:
                raise click.ClickException(f"result {i} differs from eager PyTorch: {e}") from None
    click.echo("equal to eager PyTorch")
