"""What a user wrote, in layers: Python values, extended files, the file, overrides. Every value knows its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from roll_core.config.schema import RunConfig
from roll_core.config.shape import ROOT, Place, Shape, explicit, items
from roll_core.config.yaml_tree import read_yaml_file
from roll_core.errors import ConfigError

EXTENDS = "extends"
"""Top-level key of a file: another file (or a list of them) that this one is laid over."""

_PATHS: tuple[tuple[str, ...], ...] = (
    ("model", "path"),
    ("model", "reference"),
    ("critic", "path"),
    ("plugins", "rollfile"),
    ("domains", "*", "data", "path"),
    ("domains", "*", "eval_data", "path"),
)
"""Values of a file that are looked up beside it first."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value came from.

    Args:
        kind: "default" is the schema's own value.
        where: "run.yaml:12" of a file, the text of an override, "" otherwise.
        layer: later layers cover earlier ones; -1 for defaults.
    """

    kind: Literal["default", "python", "file", "override"]
    where: str = ""
    layer: int = -1

    def __str__(self) -> str:
        """Short text for people."""
        if self.kind == "override":
            return f"override '{self.where}'"
        return self.where or self.kind


DEFAULT = Source("default")


@dataclass(slots=True)
class Layered:
    """A tree of plain values with the source of each place in it."""

    tree: dict[str, Any] = field(default_factory=dict)
    sources: dict[Place, Source] = field(default_factory=dict)
    layers: int = 0
    """Number of layers so far; the next one gets this index."""
    idle: frozenset[Place] = frozenset()
    """Places that a later layer left without effect, as `check_config` found them."""

    @property
    def effective(self) -> dict[str, Any]:
        """A copy of the tree without its idle places."""
        return _without(self.tree, self.idle)

    def source(self, place: Place) -> Source:
        """The source of a value; `DEFAULT` where nothing was written."""
        return self.sources.get(place, DEFAULT)

    def nearest(self, place: Place) -> Source:
        """The source of the innermost written place that holds `place`."""
        for length in range(len(place), 0, -1):
            if place[:length] in self.sources:
                return self.sources[place[:length]]
        return DEFAULT

    def lay(self, tree: Mapping[str, Any], sources: Mapping[Place, Source]) -> None:
        """Lay another tree over this one: mappings merge key by key, everything else is replaced.

        A mapping whose `use` names another component replaces the old component with its options.
        """
        self._lay(self.tree, tree, sources, (), ROOT)
        self.layers += 1

    def forget(self, place: Place) -> None:
        """Drop the sources of a place and of everything below it."""
        for old in [old for old in self.sources if old[: len(place)] == place]:
            del self.sources[old]

    def _lay(
        self,
        into: dict[str, Any],
        tree: Mapping[str, Any],
        sources: Mapping[Place, Source],
        at: Place,
        shape: Shape | None,
    ) -> None:
        for key, value in tree.items():
            place = (*at, key)
            old = into.get(key)
            inner = shape.child(key) if shape is not None else None
            if isinstance(old, dict) and isinstance(value, Mapping) and not is_other_component(old, value, inner):
                if place in sources:
                    self.sources[place] = sources[place]
                self._lay(old, value, sources, place, inner)
                continue
            self.forget(place)
            into[key] = _copy(value)
            self.sources.update({p: s for p, s in sources.items() if p[: len(place)] == place})


def python_layer(base: Mapping[str, Any] | RunConfig, layer: int) -> tuple[dict[str, Any], dict[Place, Source]]:
    """Values given from Python; models count with what was set in them."""
    tree = expand(explicit(base), ROOT)
    return tree, {place: Source("python", "", layer) for place in places(tree, ROOT)}


def lay_file(layered: Layered, path: Path, seen: tuple[Path, ...] = ()) -> None:
    """Lay a YAML file over `layered`, the files it extends first.

    Raises:
        ConfigError: a file is missing or malformed, or extends itself.
    """
    if path.resolve() in seen:
        raise ConfigError(f"config file '{path}' extends itself")
    value, lines = read_yaml_file(path)
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise ConfigError(f"config file '{path}' must hold a mapping of keys, got {type(value).__name__}")
    for parent in _parents(value.pop(EXTENDS, ()), f"{path}:{lines.pop((EXTENDS,), 1)}"):
        lay_file(layered, path.parent / parent, (*seen, path.resolve()))
    sources = {place: Source("file", f"{path}:{line}", layered.layers) for place, line in lines.items()}
    tree = expand(value, ROOT, (), sources)
    _look_beside(tree, path.parent)
    layered.lay(tree, sources)


def expand(value: Any, shape: Shape | None, place: Place = (), sources: dict[Place, Source] | None = None) -> Any:
    """Write every short form of a component (`verifier: math`, `data: rows.jsonl`) as a mapping.

    Args:
        value: plain values.
        shape: what stands at `place`.
        place: where `value` stands.
        sources: gets the sources of the keys that appear.
    """
    if shape is None or shape.form == "free":
        return value
    component = shape.component
    if component is not None and value is not None and not isinstance(value, Mapping):
        value = component.long_form(value)
        if sources is not None and place in sources:
            sources.update({(*place, key): sources[place] for key in value})
    if isinstance(value, Mapping):
        return {key: expand(item, shape.child(key), (*place, key), sources) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item, shape.child(index), (*place, index), sources) for index, item in enumerate(value)]
    return value


def places(value: Any, shape: Shape | None, place: Place = ()) -> Iterator[Place]:
    """Every place below `place` in a tree, itself left out; lists among a component's options count as one value."""
    if not isinstance(value, Mapping) and (shape is None or shape.form != "list"):
        return
    for key, item in items(value):
        yield (*place, key)
        yield from places(item, shape.child(key) if shape is not None else None, (*place, key))


def is_other_component(old: Mapping[str, Any], new: Mapping[str, Any], shape: Shape | None) -> bool:
    """Whether `new` names another component than `old` does, or means by default."""
    if shape is None or shape.component is None or "use" not in new:
        return False
    default = shape.of_kind.default if shape.of_kind is not None else None
    return bool(new["use"] != old.get("use", default))


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _without(tree: Mapping[str, Any], idle: frozenset[Place], at: Place = ()) -> dict[str, Any]:
    kept = {key: value for key, value in tree.items() if (*at, key) not in idle}
    return {k: _without(v, idle, (*at, k)) if isinstance(v, Mapping) else _copy(v) for k, v in kept.items()}


def _parents(value: Any, where: str) -> list[str]:
    parents = [value] if isinstance(value, str) else value
    if not isinstance(parents, list | tuple) or not all(isinstance(parent, str) for parent in parents):
        raise ConfigError(f"{EXTENDS} ({where}): needs the name of a file or a list of names, got {value!r}")
    return list(parents)


def _look_beside(tree: Any, folder: Path) -> None:
    """Turn a relative path into one beside the file where something exists there; the others stay as they are."""
    for pattern in _PATHS:
        for holder in _holders(tree, pattern[:-1]):
            value = holder.get(pattern[-1])
            if isinstance(value, str):
                holder[pattern[-1]] = _beside(value, folder)
            elif isinstance(value, list):
                holder[pattern[-1]] = [_beside(item, folder) if isinstance(item, str) else item for item in value]


def _holders(tree: Any, pattern: Sequence[str]) -> list[dict[str, Any]]:
    found = [tree]
    for key in pattern:
        mappings = [node for node in found if isinstance(node, dict)]
        found = [item for node in mappings for name, item in node.items() if key in ("*", name)]
    return [node for node in found if isinstance(node, dict)]


def _beside(value: str, folder: Path) -> str:
    beside = folder / value
    return str(beside) if value and not Path(value).is_absolute() and beside.exists() else value
