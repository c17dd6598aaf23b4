"""What the `flambeau` command can do, a file each."""

from __future__ import annotations

import click

from flambeau import __version__
from flambeau.commands.compile import compile_command, run_command
from flambeau.commands.cts import cts_command
from flambeau.commands.errors import Group
from flambeau.commands.opt import opt_command
from flambeau.commands.registry import registry_command


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="flambeau")
def flambeau() -> None:
    """Take PyTorch programs to MLIR and run them."""


flambeau.add_command(compile_command)
flambeau.add_command(run_command)
flambeau.add_command(opt_command)
flambeau.add_command(registry_command)
flambeau.add_command(cts_command)
