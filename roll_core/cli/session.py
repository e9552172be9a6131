"""A config file and the global options to the parts of a run: what train, resume and eval begin with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roll_core.cli.context import host_for, options_of
from roll_core.config.load import load_config
from roll_core.errors import ConfigError

if TYPE_CHECKING:
    from roll_core.assembly import Assembly


def assemble(context: click.Context, path: Path, overrides: Sequence[str]) -> Assembly:
    """Load and check a config; nothing heavy is loaded yet. `--rollfile` becomes part of the run, for its resume."""
    from roll_core.assembly import Assembly

    rollfile = options_of(context).rollfile
    if rollfile is not None:
        overrides = (*overrides, f"plugins.rollfile={rollfile.resolve()}")
    return Assembly(load_config(path, overrides), host_for(context, path, overrides))


def assemble_run(context: click.Context, run: Path, overrides: Sequence[str]) -> Assembly:
    """The same for an existing run's folder.

    Raises:
        ConfigError: the folder holds no run.
    """
    from roll_core.assembly import CONFIG_FILE

    config = run / CONFIG_FILE
    if not config.is_file():
        raise ConfigError(f"{run} is no run's folder: it holds no {CONFIG_FILE}")
    return assemble(context, config, (f"folder={run}", *overrides))
