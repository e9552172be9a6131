"""The options that stand before the sub-command, and the plugins a sub-command works with under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from roll_core.plugin.host import Host


@dataclass(frozen=True, slots=True)
class GlobalOptions:
    """`--plugin`, `--rollfile` and `--debug`; the defaults hold where a sub-command runs alone, as in tests."""

    blocked: tuple[str, ...] = ()
    rollfile: Path | None = None
    debug: bool = False

    def host(
        self,
        *,
        blocked: Sequence[str] = (),
        required: Sequence[str] = (),
        rollfile: Path | None = None,
        strict: bool = False,
        enforce: bool = True,
    ) -> Host:
        """Discover plugins under these options and a config's own; `--rollfile` wins over the config's."""
        from roll_core.plugin.host import Host

        return Host.discover(
            blocked=[*self.blocked, *blocked],
            required=required,
            rollfile=self.rollfile or rollfile,
            strict=strict,
            enforce=enforce,
        )


def options_of(context: click.Context) -> GlobalOptions:
    """The global options of the running command."""
    return context.find_object(GlobalOptions) or GlobalOptions()


def host_of(context: click.Context, *, enforce: bool = True) -> Host:
    """The plugins under the global options alone.

    Args:
        context: of the running command.
        enforce: False leaves failures to the host's records, for listing.

    Raises:
        PluginError: an essential plugin is blocked, or `--rollfile` failed.
    """
    return options_of(context).host(enforce=enforce)


def host_for(context: click.Context, config: Path | None, overrides: Sequence[str] = ()) -> Host:
    """The plugins that the global options and a run's configuration let in.

    Raises:
        ConfigError: the configuration cannot be read.
        PluginError: a required plugin is missing, blocked or failed.
    """
    from roll_core.config.load import load_config

    run = load_config(config, overrides).config
    rollfile = Path(run.plugins.rollfile) if run.plugins.rollfile else None
    return options_of(context).host(
        blocked=run.plugins.blocked, required=run.plugins.required, rollfile=rollfile, strict=run.strict
    )
