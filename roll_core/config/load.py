"""From a YAML file and overrides to a checked configuration.

Relative paths in a file (`model.path`, `model.reference`, `critic.path`, `plugins.rollfile`, and `path` of a domain's
`data` and `eval_data`) mean the file's own folder where something exists there, and the working directory otherwise;
in overrides and from Python they mean the working directory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from roll_core.config.components import Catalogue, check_components
from roll_core.config.layers import Layered, Source, lay_file, python_layer
from roll_core.config.noop import noop_keys
from roll_core.config.overrides import apply_overrides
from roll_core.config.plan import BatchPlan, plan_batch, size_problems
from roll_core.config.problems import Problem, problems_of, report
from roll_core.config.resolve import resolve_algorithm
from roll_core.config.schema import RunConfig
from roll_core.config.shape import Place, dotted


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """A configuration with what was written to make it.

    Args:
        config: validated and typed.
        layered: the plain values that were written, short forms expanded, and the source of each.
    """

    config: RunConfig
    layered: Layered

    @property
    def raw(self) -> dict[str, Any]:
        """What was written and has an effect, as plain values; `load_config(None, base=raw)` gives the same run."""
        return self.layered.effective

    @property
    def origin(self) -> Mapping[str, Source]:
        """The source of every written value by dotted path; what is not in it has its default."""
        return {dotted(place): source for place, source in self.layered.sources.items()}


def load_config(
    path: Path | None,
    overrides: Sequence[str] = (),
    *,
    base: Mapping[str, Any] | RunConfig | None = None,
    host: Catalogue | None = None,
) -> LoadedConfig:
    """Load a configuration; later sources win: `base`, files named by `extends`, the file, overrides.

    Args:
        path: YAML file; None when everything comes from `base` and `overrides`.
        overrides: `key.path=value`, applied in order; values are YAML.
        base: values from Python; components may be given as objects or functions.
        host: checks names and options of components too; None leaves that to `check_config`.

    Raises:
        ConfigError: anything is wrong; lists every problem found with its place and source.
    """
    layered = Layered()
    if base is not None:
        layered.lay(*python_layer(base, layered.layers))
    if path is not None:
        lay_file(layered, Path(path))
    if overrides:
        apply_overrides(layered, overrides)
    try:
        config = RunConfig.model_validate(layered.tree)
    except ValidationError as error:
        raise report(problems_of(error), _origin(layered)) from error
    loaded = LoadedConfig(config, layered)
    check_config(loaded, host)
    return loaded


def check_config(loaded: LoadedConfig, host: Catalogue | None) -> BatchPlan:
    """Check what types cannot say: domains' own settings, keys without effect, sizes, and with a host the components.

    Returns:
        The arithmetic of a batch.

    Raises:
        ConfigError: lists every problem found.
    """
    config, layered = loaded.config, loaded.layered
    for name in config.domains:
        resolve_algorithm(config, name, origin=_origin(layered))
    problems: list[Problem] = []
    columns = None
    if host is not None:
        findings = check_components(config, host)
        problems, columns = list(findings.problems), findings.columns
    noops, layered.idle = noop_keys(config, layered, columns)
    problems += noops
    plan = plan_batch(config, None if problems else host)
    problems += size_problems(config, plan)
    if problems:
        raise report(problems, _origin(layered))
    return plan


def plain(value: Any) -> Any:
    """A copy made of what JSON and YAML can hold; an object given from Python becomes its name in angle brackets."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"<{named.__module__}.{named.__qualname__}>"


def _origin(layered: Layered) -> Callable[[Place], str]:
    def origin(place: Place) -> str:
        source = layered.nearest(place)
        return "" if source.kind in ("default", "python") else str(source)

    return origin
