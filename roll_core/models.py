"""How a model name becomes a local Hugging Face folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from roll_core.errors import ConfigError, near_match

if TYPE_CHECKING:
    from roll_core.plugin.host import Host


def cache_folder() -> Path:
    """Where prepared models are kept: `ROLL_CACHE`, else `~/.cache/roll`, with `models` below it."""
    return Path(os.environ.get("ROLL_CACHE") or Path.home() / ".cache" / "roll") / "models"


def resolve_model(name: str, host: Host | None = None, *, place: str = "model.path") -> Path:
    """A folder that `from_pretrained` loads, prepared first when an installed `models` component offers the name.

    Args:
        name: a folder, or the name of a `models` component.
        host: where components are looked up; None discovers the installed plugins.
        place: the config path the name came from.

    Raises:
        ConfigError: neither a folder with a `config.json` nor an installed name.
    """
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return folder
    if folder.is_dir():
        raise ConfigError(f"{folder} ({place}) holds no config.json, so it is no Hugging Face model folder")
    if host is None:
        from roll_core.plugin.host import Host

        host = Host.discover()
    known = {component.name for _, _, component in host.components("models")}
    if name not in known:
        raise ConfigError(
            f"no model folder and no installed model named '{name}' ({place}){near_match(name, known) or ';'} "
            f"installed models: {', '.join(sorted(known)) or 'none'}"
        )
    resolver = host.build("models", name, {}, place=place, cache=cache_folder())
    return Path(resolver.resolve(name))
