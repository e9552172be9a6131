"""A click group that imports a sub-command only when it is called, so that the command line starts quickly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from roll_core.plugin.component import load_object


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a sub-command lives, and its line in the list of commands (so that `--help` imports nothing)."""

    path: str
    """"module:attr" of a `click.Command`."""
    help: str


class LazyGroup(click.Group):
    """A group whose sub-commands are given as import strings.

    Args:
        lazy: sub-commands by name; ones added with `@group.command` work beside them.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all sub-commands, in the order they were given."""
        return [*self.lazy, *(name for name in self.commands if name not in self.lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a sub-command; None when there is none of that name.

        Raises:
            PluginError: the import string does not lead to a click command.
        """
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        return as_command(load_object(self.lazy[cmd_name].path), cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        rows = [(name, line) for name, line in self.command_lines(ctx) if line is not None]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)

    def command_lines(self, ctx: click.Context) -> list[tuple[str, str | None]]:
        """Each sub-command and its line of help; None hides it."""
        lines: list[tuple[str, str | None]] = []
        for name in self.list_commands(ctx):
            if name in self.lazy:
                lines.append((name, self.lazy[name].help))
            elif (command := self.get_command(ctx, name)) is not None:
                lines.append((name, None if command.hidden else command.get_short_help_str(limit=80)))
        return lines


def as_command(thing: object, name: str) -> click.Command:
    """Check that something is a click command.

    Raises:
        PluginError: it is not.
    """
    from roll_core.errors import PluginError

    if not isinstance(thing, click.Command):
        raise PluginError(f"sub-command '{name}' is not a click command: {thing!r}")
    return thing
