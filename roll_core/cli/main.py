"""`roll`: the command line. Sub-commands are imported when they are called.

Exit codes: 0 success, 1 an error (one clear message on stderr; `--debug` adds the traceback), 2 wrong usage, 130
interrupted.
"""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from roll_core.cli.context import GlobalOptions
from roll_core.cli.lazy import LazyCommand, LazyGroup, as_command
from roll_core.errors import RollError

if TYPE_CHECKING:
    from roll_core.plugin.component import Component
    from roll_core.plugin.host import Host

INTERRUPTED = 130
_EXTRAS = {
    **dict.fromkeys(("datasets", "matplotlib", "peft", "pyarrow", "safetensors", "torch", "transformers"), "train"),
    "ray": "ray",
}
"""Extra of roll-core that brings a library."""

_COMMANDS = {
    "train": LazyCommand("roll_core.cli.train:train", "Train a model as a config says."),
    "resume": LazyCommand("roll_core.cli.train:resume", "Go on with an interrupted run."),
    "eval": LazyCommand("roll_core.cli.evaluate:evaluate", "Measure held-out accuracy of a config or a run."),
    "verify": LazyCommand("roll_core.cli.verify:verify", "Judge answers from a file, without a run."),
    "rollouts": LazyCommand("roll_core.cli.rollouts:rollouts", "Browse the rollouts of a run."),
    "export": LazyCommand("roll_core.cli.export:export", "Write a run's policy as a Hugging Face folder."),
    "status": LazyCommand("roll_core.cli.status:status", "Show what a run is at, and whether it lives."),
    "scale": LazyCommand("roll_core.cli.scale:scale", "Change the rollout replicas of a running run."),
    "plan": LazyCommand("roll_core.cli.plan:plan_command", "Plan devices, memory and batch sizes."),
    "config": LazyCommand("roll_core.cli.config:config_group", "Explain and check configurations."),
    "plugins": LazyCommand("roll_core.cli.plugins:plugins", "List, show, check and create plugins."),
    "models": LazyCommand("roll_core.cli.models:models_group", "List and prepare models."),
    "doctor": LazyCommand("roll_core.cli.doctor:doctor", "Check this machine and installation."),
}


class _EchoHandler(logging.Handler):
    """Writes log records to whatever stderr is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        click.echo(f"{record.levelname.lower()}: {self.format(record)}", err=True)


class RollGroup(LazyGroup):
    """The main group: core commands, then those of plugins; errors become one message and an exit code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Core commands, then plugins'."""
        return [*super().list_commands(ctx), *_plugin_commands(ctx, self.lazy)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A core command, or one of a plugin (which is asked only when no core command has the name)."""
        found = super().get_command(ctx, cmd_name)
        if found is not None:
            return found
        entry = _plugin_commands(ctx, self.lazy).get(cmd_name)
        if entry is None:
            return None
        owner, component = entry
        built = _host(ctx).build("commands", f"{owner}/{component.name}", {}, place=f"roll {cmd_name}")
        return as_command(built, cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands; core's alone when the plugins cannot be asked."""
        try:
            super().format_commands(ctx, formatter)
        except RollError as error:
            with formatter.section("Commands"):
                formatter.write_dl([(name, line.help) for name, line in self.lazy.items()])
            formatter.write_paragraph()
            formatter.write_text(f"Commands of plugins are not listed: {error}")

    def command_lines(self, ctx: click.Context) -> list[tuple[str, str | None]]:
        """Help lines; a plugin's is the summary of its component, so that nothing is imported for it."""
        core = [(name, line.help) for name, line in self.lazy.items()]
        return [*core, *((n, f"{c.summary} [{owner}]") for n, (owner, c) in _plugin_commands(ctx, self.lazy).items())]

    def invoke(self, ctx: click.Context) -> Any:
        """Run, and turn errors into messages."""
        ctx.obj = _options(ctx)
        try:
            return super().invoke(ctx)
        except RollError as error:
            _fail(ctx, error, "\n".join([str(error), *getattr(error, "__notes__", ())]))
        except OSError as error:
            _fail(ctx, error, str(error))
        except ModuleNotFoundError as error:
            extra = _EXTRAS.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            _fail(ctx, error, f"this needs {error.name}: pip install 'roll-core[{extra}]'")
        except KeyboardInterrupt:
            click.echo("interrupted", err=True)
            ctx.exit(INTERRUPTED)


@click.group(cls=RollGroup, lazy=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda c, _, on: _version(c, on),
    help="Show the version of roll-core and exit.",
)
@click.option("--plugin", "plugin", multiple=True, metavar="no:NAME", help="Do not load this plugin (repeatable).")
@click.option("--rollfile", type=click.Path(path_type=Path), help="Load this Python file as a plugin.")
@click.option("--debug", is_flag=True, help="Show tracebacks.")
def cli(plugin: tuple[str, ...], rollfile: Path | None, debug: bool) -> None:
    """Reinforcement learning for language models; everything is a plugin."""
    root = logging.getLogger()
    if not any(isinstance(handler, _EchoHandler) for handler in root.handlers):
        root.addHandler(_EchoHandler())
    logging.getLogger("roll_core").setLevel(logging.DEBUG if debug else logging.WARNING)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the `roll` script.

    OpenMP reads its settings when torch is loaded. By default its idle threads spin for the core, and a step takes
    several times as long as soon as another process wants one; a short spin costs nothing on a quiet machine.
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    cli.main(args=args, prog_name="roll")


def _version(ctx: click.Context, is_asked: bool) -> None:
    """Print the version of roll-core and end."""
    if is_asked:
        from roll_core.plugin.discovery import core_version

        click.echo(core_version())
        ctx.exit()


def _options(ctx: click.Context) -> GlobalOptions:
    """Read the global options; works before the group's own callback has run.

    Raises:
        click.BadParameter: `--plugin` is not of the form no:NAME.
    """
    written: tuple[str, ...] = ctx.params.get("plugin") or ()
    for text in written:
        if not text.startswith("no:") or text == "no:":
            raise click.BadParameter(f"'{text}' is not of the form no:NAME", ctx, param_hint="--plugin")
    blocked = tuple(text.removeprefix("no:") for text in written)
    return GlobalOptions(blocked, ctx.params.get("rollfile"), bool(ctx.params.get("debug")))


def _host(ctx: click.Context) -> Host:
    """Plugins, discovered once per command line."""
    key = f"{__name__}.host"
    if key not in ctx.meta:
        ctx.meta[key] = _options(ctx).host(enforce=False)
    found: Host = ctx.meta[key]
    return found


def _plugin_commands(ctx: click.Context, core: dict[str, LazyCommand]) -> dict[str, tuple[str, Component]]:
    """(owner, component) of the plugins' commands by name; core's names are never taken over."""
    found: dict[str, tuple[str, Component]] = {}
    for _, owner, component in _host(ctx).components("commands"):
        name = component.name.replace("_", "-")
        if name in core or name in found:
            name = f"{owner}/{name}"
        found[name] = (owner, component)
    return found


def _fail(ctx: click.Context, error: Exception, message: str) -> NoReturn:
    if ctx.params.get("debug"):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    click.echo(f"error: {message}", err=True)
    ctx.exit(1)


if __name__ == "__main__":
    main()
