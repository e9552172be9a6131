"""Checks of sub-commands of `roll`."""

from __future__ import annotations

import click
from click.testing import CliRunner

from roll_core.testing.kit import CheckFailed, Subject, check


@check("commands")
def shows_its_help(subject: Subject) -> None:
    """The factory returns a click command whose --help works and says something."""
    command = subject.build()
    if not isinstance(command, click.Command):
        raise CheckFailed(f"the factory returned a {type(command).__name__}: return a click.Command")
    result = CliRunner().invoke(command, ["--help"])
    if result.exit_code != 0:
        raise CheckFailed(f"--help ended with exit code {result.exit_code}: {result.output.strip()[-200:]}")
    if not (command.help or command.short_help):
        raise CheckFailed("the command has no help text: give its function a docstring")
