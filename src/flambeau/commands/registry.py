"""`flambeau registry`: what PyTorch says about its ops."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from flambeau.commands.errors import usage_error


@click.group("registry")
def registry_command() -> None:
    """Look into the snapshot of PyTorch's op registry, or make it anew."""


@registry_command.command("show")
@click.argument("name")
@click.option("--ods/--no-ods", default=True, help="Print the ODS definition too.")
def show(name: str, ods: bool) -> None:
    """Print the record and the ODS text of an op, e.g. aten.relu or aten.add.Tensor."""
    from flambeau.dialects.torch import registry

    name = name.replace("::", ".").removeprefix("torch.").removesuffix(".default")
    schema = registry.schema(name)
    schemas = [schema] if schema is not None else list(registry.overloads(name))
    if not schemas:
        close = difflib.get_close_matches(name, registry.snapshot().declarations, 3)
        hint = f"; did you mean {', '.join(close)}?" if close else ""
        raise usage_error(f"PyTorch {registry.snapshot().torch_version} has no op {name!r}{hint}")
    for i, found in enumerate(schemas):
        if i:
            click.echo()
        click.echo(registry.record_text(found))
        if ods:
            click.echo()
            click.echo(registry.ods_text(found))


@registry_command.command("list")
@click.argument("prefix", default="")
def list_(prefix: str) -> None:
    """List op names that start with PREFIX."""
    from flambeau.dialects.torch import registry

    names = [n for n in registry.snapshot().declarations if n.startswith(prefix)]
    if not names:
        raise usage_error(f"no op starts with {prefix!r}")
    for name in names:
        click.echo(name)


@registry_command.command("update")
@click.option("--check", is_flag=True, help="Only say whether the snapshot differs; exit status 1 if it does.")
def update(check: bool) -> None:
    """Write the snapshot, and the type stub of flambeau.ops, anew from the installed torch, and say what changed."""
    from flambeau.dialects.torch import registry

    if check:
        new, old = registry.read_installed()["ops"], registry.snapshot().declarations
        different = sorted(k for k in new.keys() | old.keys() if new.get(k) != old.get(k))
        click.echo(f"{len(different)} ops differ" + ("" if not different else f": {', '.join(different[:20])}"))
        if different:
            raise SystemExit(1)
        return
    added, removed, changed = registry.write_snapshot()
    _write_stub()
    click.echo(f"{len(added)} ops added, {len(removed)} removed, {len(changed)} changed")
    for mark, names in (("+", added), ("-", removed), ("~", changed)):
        for name in names[:50]:
            click.echo(f"  {mark} {name}")


@registry_command.command("stub")
@click.option("--check", is_flag=True, help="Only say whether the stub is current; exit status 1 if it is not.")
def stub(check: bool) -> None:
    """Write the type stub of flambeau.ops anew from the snapshot."""
    is_current = _write_stub(check)
    click.echo("the stub is current" if is_current else "the stub differs" if check else "the stub is written anew")
    if check and not is_current:
        raise SystemExit(1)


def _write_stub(check: bool = False) -> bool:
    """Write the stub if it is not current; gives whether it was."""
    import flambeau.ops
    from flambeau.frontends.nn.core.stub import stub_text

    path, text = Path(flambeau.ops.__file__).with_suffix(".pyi"), stub_text()
    is_current = path.exists() and path.read_text() == text
    if not check and not is_current:
        path.write_text(text)
    return is_current
