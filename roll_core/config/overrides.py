"""Overrides on the command line: `algorithm.kl.coef=0.01`, `filters.0.use=pass_rate`, `model={path: tiny}`.

The value is YAML. A key must exist in the schema or among a component's options; an index may point at an item or one
behind the last. A mapping replaces what stood there; to change one key, name it. Naming another component with
`use` drops the options that the file gave to the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roll_core.config.layers import Layered, Source, expand, is_other_component, places
from roll_core.config.problems import unknown_key
from roll_core.config.shape import FREE, ROOT, Key, Place, Shape, dotted, explicit, items
from roll_core.config.yaml_tree import parse_yaml
from roll_core.errors import ConfigError, unknown_name


def apply_overrides(layered: Layered, overrides: Sequence[str]) -> None:
    """Apply overrides in order, as one layer.

    Raises:
        ConfigError: an override is malformed, names an unknown key, or starts a domain without completing it.
    """
    domains = set(_domains(layered))
    for text in overrides:
        _apply(layered, text)
    for name in sorted(set(_domains(layered)) - domains):
        domain = layered.tree["domains"][name]
        if domains and isinstance(domain, dict) and "data" not in domain:
            raise unknown_name("domain", name, domains, str(layered.nearest(("domains", name))))
    layered.layers += 1


def _domains(layered: Layered) -> list[str]:
    domains = layered.tree.get("domains")
    return list(domains) if isinstance(domains, dict) else []


def _apply(layered: Layered, text: str) -> None:
    name, equals, written = text.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"override '{text}' is not of the form key.path=value")
    value, _ = parse_yaml(written, f"override '{text}'")
    walk = _Walk(layered, Source("override", text, layered.layers))
    for key in keys[:-1]:
        walk.enter(key)
    walk.put(keys[-1], value)


class _Walk:
    """A walk into the written values, along the keys of one override."""

    def __init__(self, layered: Layered, source: Source) -> None:
        self.layered = layered
        self.source = source
        self.node: Any = layered.tree
        self.shape: Shape = ROOT
        self.place: Place = ()

    def enter(self, written: str) -> None:
        """Step into a key, making the mapping or list there when nothing is written yet."""
        key = self._key(written)
        shape = self.shape.child(key) or FREE
        place = (*self.place, key)
        if shape.form == "value":
            raise self._error(f"'{dotted(place)}' is a single value, nothing can be set below it")
        inner = dict(items(self.node)).get(key)
        if not isinstance(inner, dict | list):
            inner = explicit(shape.default) if shape.form == "list" and isinstance(shape.default, tuple) else None
            inner = inner if inner is not None else ([] if shape.form == "list" else {})
            self.layered.sources.setdefault(place, self.source)
            self._assign(key, inner)
        self.node, self.shape, self.place = inner, shape, place

    def put(self, written: str, value: Any) -> None:
        """Set a key's value; short forms are written out."""
        key = self._key(written)
        if key == "use" and is_other_component(self.node, {"use": value}, self.shape):
            self._drop_options()
        shape, place, layered = self.shape.child(key), (*self.place, key), self.layered
        layered.forget(place)
        layered.sources[place] = self.source
        value = expand(value, shape, place, layered.sources)
        layered.sources.update(dict.fromkeys(places(value, shape, place), self.source))
        self._assign(key, value)

    def _drop_options(self) -> None:
        """Forget the options that earlier layers gave to a component that is being replaced."""
        for key in [key for key in self.node if key not in self.shape.keys]:
            if self.layered.source((*self.place, key)).layer < self.source.layer:
                self.layered.forget((*self.place, key))
                del self.node[key]

    def _key(self, written: str) -> Key:
        """The key or index, checked against what stands, or may stand, here."""
        if isinstance(self.node, list):
            size = len(self.node)
            if not written.isdecimal() or int(written) > size:
                raise self._error(
                    f"'{dotted(self.place)}' is a list of {size}; use an index from 0 to {size} instead of '{written}'"
                )
            return int(written)
        if self.shape.child(written) is None:
            raise self._error(unknown_key((*self.place, written), self.shape.keys).message)
        return written

    def _assign(self, key: Key, value: Any) -> None:
        if isinstance(self.node, list) and key == len(self.node):
            self.node.append(value)
        else:
            self.node[key] = value

    def _error(self, message: str) -> ConfigError:
        return ConfigError(f"override '{self.source.where}': {message}")
