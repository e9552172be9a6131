"""A config file and the global options to the parts of a run: what train, resume and eval begin with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roll_core.cli.state import global_options
from roll_core.config.load import LoadedConfig, load_config
from roll_core.errors import ConfigError

if TYPE_CHECKING:
    from roll_core.assembly import Assembly
    from roll_core.plugin.host import Host


def host_of(loaded: LoadedConfig) -> Host:
    """The plugins that a config and the command line let in."""
    plugins = loaded.config.plugins
    return global_options().host(
        blocked=plugins.blocked,
        required=plugins.required,
        rollfile=Path(plugins.rollfile) if plugins.rollfile is not None else None,
        strict=loaded.config.strict,
    )


def assemble(path: Path, overrides: Sequence[str]) -> Assembly:
    """Load and check a config; nothing heavy is loaded yet."""
    from roll_core.assembly import Assembly

    loaded = load_config(path, overrides)
    return Assembly(loaded, host_of(loaded))


def assemble_run(run: Path, overrides: Sequence[str]) -> Assembly:
    """The same for an existing run's folder.

    Raises:
        ConfigError: the folder holds no run.
    """
    from roll_core.assembly import CONFIG_FILE

    config = run / CONFIG_FILE
    if not config.is_file():
        raise ConfigError(f"{run} is no run's folder: it holds no {CONFIG_FILE}")
    return assemble(config, (f"folder={run}", *overrides))
