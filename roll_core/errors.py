"""The error model.

* **Config errors** (`ConfigError` and below) stop a run before anything heavy is loaded. They name the wrong
  value, the place it came from and what to write instead.
* **Component errors** (`ComponentError`) are exceptions of a plugin's code that the run cannot go on without; the
  component's name is added and the original error is kept as `__cause__`.
* **Sample failures** (a verifier that hangs, a judge that answers nonsense) are never exceptions to the engine: they
  become a `Verdict` without a score, are counted and shown.
* **Observer errors** (a tracker or an observing hook that raises) are logged with the plugin's name and counted; a
  strict run raises them.

Every class derives from the matching standard error too, and survives pickling, since errors cross processes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RollError(Exception):
    """Root of every error this package raises on purpose."""


class ConfigError(RollError, ValueError):
    """The configuration is wrong; nothing has been loaded yet."""


class UnknownNameError(ConfigError, LookupError):
    """A name in the configuration is not known: a component, a domain, a key."""


class DataError(ConfigError):
    """A data set is missing, malformed or empty."""


class PluginError(RollError, RuntimeError):
    """A plugin could not be loaded, or breaks a rule of the host."""


class ComponentError(RollError, RuntimeError):
    """A component's own code raised where the run cannot go on without its result."""


class GroupError(RollError, ValueError):
    """A group of rollouts cannot be used as asked (for instance a baseline from one rollout)."""


class StarvationError(RollError, RuntimeError):
    """The draw budget ended before a batch was full: the data are too hard or too easy for the filters."""


class CheckpointError(RollError, OSError):
    """A checkpoint could not be written or read; the previous one is untouched."""


class BackendError(RollError, RuntimeError):
    """A rollout backend or train strategy failed, or cannot do what was asked."""


def near_match(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the closest of `known`, or an empty string when nothing is close."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{matches[0]}'?" if matches else ""


def unknown_name(what: str, name: str, known: Iterable[str], place: str = "") -> UnknownNameError:
    """Build the error for an unknown name.

    Args:
        what: the kind of thing, in the singular ("verifier", "key").
        name: what was written.
        known: the names that exist.
        place: where it was written, as a dotted config path ("domains.math.verifier").
    """
    names = sorted(known)
    where = f" ({place})" if place else ""
    hint = near_match(name, names) or ";"
    return UnknownNameError(f"no {what} named '{name}'{where}{hint} known: {', '.join(names) or 'none'}")
