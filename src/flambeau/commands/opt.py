"""`flambeau opt`: passes on MLIR text."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from flambeau.commands.errors import usage_error
from flambeau.commands.plugins import plugin_option
from flambeau.diagnostics import CompileError


class _AsMlirOpt(click.Command):
    """Takes long options with one dash, and passes as options of their names: `-convert-torch-to-linalg`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from flambeau.opt import NOTHING, PASSES

        known = {name for p in self.params for name in p.opts if name.startswith("--")} | {"--help"}
        passed: list[str] = []
        rest: list[str] = []
        for arg in args:
            name, _, options = arg.lstrip("-").partition("=")
            if arg.startswith("-") and (name in PASSES or name in NOTHING):
                passed.append(name + ("{" + options.strip("\"'{}") + "}" if options else ""))
            else:
                single = arg.startswith("-") and not arg.startswith("--") and f"--{name}" in known
                rest.append(f"-{arg}" if single else arg)
        if passed:
            rest += ["--pass-pipeline", ",".join(passed)]
        return super().parse_args(ctx, rest)


@click.command("opt", cls=_AsMlirOpt)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("-p", "--pass-pipeline", "--passes", "pipeline", default="", help="Names, or MLIR's nested syntax.")
@plugin_option()
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--generic", is_flag=True, help="Print in generic form.")
@click.option("--locations", "--mlir-print-debuginfo", is_flag=True, help="Print the location of each op.")
@click.option("--verify-each", is_flag=True, help="Verify behind each pass.")
@click.option("--print-ir-after-all", is_flag=True, help="Print the module behind each pass to the standard error.")
@click.option("--list", "list_passes", is_flag=True, help="List the passes.")
def opt_command(
    file: Path | None,
    pipeline: str,
    output: Path | None,
    generic: bool,
    locations: bool,
    verify_each: bool,
    print_ir_after_all: bool,
    list_passes: bool,
) -> None:
    """Run passes on a .mlir file (or the standard input)."""
    from xdsl.dialects.builtin import ModuleOp

    from flambeau.files import parse_text, read_text
    from flambeau.ir.printing import generic_text, pretty_text
    from flambeau.ir.verifying import verify
    from flambeau.opt import NOTHING, UnknownPass, parse_pipeline, run_pipeline

    if list_passes:
        _list_passes()
        return
    try:
        for spec in parse_pipeline(pipeline):
            if spec.name in NOTHING:
                click.echo(f"{spec.name} changes nothing here: {NOTHING[spec.name]}", err=True)
    except UnknownPass as e:
        raise usage_error(str(e)) from None
    try:
        text = read_text(file) if file is not None and str(file) != "-" else sys.stdin.read()
        module = parse_text(text, str(file or "<stdin>"))
    except UnicodeDecodeError as e:
        raise usage_error(f"the standard input is not text: byte {e.start} is not UTF-8") from None
    except CompileError as e:
        (problem,) = e.diagnostics
        place = problem.place()
        raise usage_error(problem.reason + (f"\n{place}" if place else "")) from None

    def after(name: str, current: ModuleOp) -> None:
        if print_ir_after_all:
            click.echo(f"// ----- after {name}\n{pretty_text(current)}", err=True)
        if verify_each:
            try:
                verify(current)
            except CompileError as e:
                raise click.ClickException(f"the module is invalid after {name}: {e}") from None

    try:
        module = run_pipeline(module, pipeline, after)
    except UnknownPass as e:
        raise usage_error(str(e)) from None
    result = generic_text(module) if generic else pretty_text(module, locations)
    if output is None:
        click.echo(result, nl=False)
    else:
        try:
            output.write_text(result)
        except OSError as e:
            raise usage_error(f"cannot write {output}: {e}") from None


def _list_passes() -> None:
    from flambeau.opt import NOTHING, PASSES, get_pass

    for name in PASSES:
        click.echo(f"{name:55} {(get_pass(name).__doc__ or '').partition(chr(10))[0]}")
    for name, reason in NOTHING.items():
        click.echo(f"{name:55} Change nothing: {reason}")
