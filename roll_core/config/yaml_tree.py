"""YAML read strictly: every key knows its line, a key given twice is an error.

The scalars are those of YAML 1.2's core schema, so `1e-4` is a number, and `no`, `on`, `12:30` and dates are text.
Keys are text as written. Tags other than the core ones are refused.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from roll_core.config.shape import Place, dotted
from roll_core.errors import ConfigError, near_match

_TAG = "tag:yaml.org,2002:"
_MERGE = f"{_TAG}merge"
_TAGS = {"!", *(_TAG + name for name in ("null", "bool", "int", "float", "str", "merge", "seq", "map"))}


class _CoreLoader(yaml.SafeLoader):
    """Resolves plain scalars by YAML 1.2's core schema."""


_CoreLoader.yaml_implicit_resolvers = {}  # its own, or adding below would change PyYAML's

for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+0123456789.")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
    ("merge", r"<<", ["<"]),
):
    _CoreLoader.add_implicit_resolver(f"{_TAG}{_name}", re.compile(rf"^(?:{_pattern})$"), _first)


def read_yaml_file(path: Path) -> tuple[Any, dict[Place, int]]:
    """Read a YAML file; see `parse_yaml`.

    Raises:
        ConfigError: the file is missing, unreadable, not UTF-8 or malformed.
    """
    if not path.is_file():
        siblings = [p.name for p in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
        what = "is not a file" if path.exists() else "does not exist"
        raise ConfigError(f"config file '{path}' {what}{near_match(path.name, siblings)}")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"config file '{path}' is not UTF-8 text: {error}") from error
    except OSError as error:
        raise ConfigError(f"config file '{path}' cannot be read: {error}") from error
    return parse_yaml(text, str(path))


def parse_yaml(text: str, name: str) -> tuple[Any, dict[Place, int]]:
    """Parse one YAML document.

    Args:
        text: the document.
        name: what errors call it.

    Returns:
        The value, and the line (from 1) of every key and list item in it.

    Raises:
        ConfigError: malformed, a key given twice, or an unknown tag; names line and column.
    """
    try:
        loader = _CoreLoader(text)
        try:
            node = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        context = f" ({error.context})" if error.context else ""
        raise ConfigError(f"{where}: malformed YAML: {error.problem}{context}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: malformed YAML: {error}") from error
    builder = _Builder(name)
    return (None if node is None else builder.build(node, ())), builder.lines


class _Builder:
    """Turns composed nodes into plain values and remembers lines."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: dict[Place, int] = {}
        self._open: list[yaml.Node] = []

    def build(self, node: yaml.Node, place: Place) -> Any:
        if node.tag not in _TAGS:
            raise self._error(node, f"the tag '{node.tag}' is not supported")
        if any(node is parent for parent in self._open):
            raise self._error(node, f"the anchor at '{dotted(place)}' contains itself")
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, place)
            if isinstance(node, yaml.SequenceNode):
                return self._sequence(node, place)
            return self._scalar(node)
        finally:
            self._open.pop()

    def _sequence(self, node: yaml.SequenceNode, place: Place) -> list[Any]:
        values = []
        for index, item in enumerate(node.value):
            self.lines[(*place, index)] = item.start_mark.line + 1
            values.append(self.build(item, (*place, index)))
        return values

    def _mapping(self, node: yaml.MappingNode, place: Place) -> dict[str, Any]:
        values: dict[str, Any] = {}
        seen: dict[Hashable, int] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _MERGE:
                merged.extend(value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node])
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(key_node, "a key must be text; put a value with braces in quotes")
            key = key_node.value
            if key in seen:
                at = dotted((*place, key))
                raise self._error(key_node, f"key '{at}' is given twice, first in line {seen[key]}")
            seen[key] = self.lines[(*place, key)] = line
            values[key] = self.build(value_node, (*place, key))
        for source in merged:
            self._merge(source, place, values)
        return values

    def _merge(self, source: yaml.Node, place: Place, values: dict[str, Any]) -> None:
        if not isinstance(source, yaml.MappingNode):
            raise self._error(source, "'<<' takes a mapping or a list of mappings")
        inner = _Builder(self.name)
        inner._open = self._open
        inherited = inner.build(source, place)
        for key in [key for key in inherited if key not in values]:
            values[key] = inherited[key]
            start = (*place, key)
            self.lines.update({at: line for at, line in inner.lines.items() if at[: len(start)] == start})

    def _scalar(self, node: yaml.Node) -> Any:
        kind, text = node.tag.removeprefix(_TAG), node.value
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return {"true": True, "false": False}[text.lower()]
            if kind == "int":
                return int(text, 0) if text[:2] in ("0x", "0o") else int(text)
            if kind == "float":
                return float(re.sub(r"\.(inf|nan)$", r"\1", text.lower()))
        except (KeyError, ValueError):
            raise self._error(node, f"'{text}' is not of type {kind}") from None
        return text

    def _error(self, node: yaml.Node, message: str) -> ConfigError:
        mark = node.start_mark
        return ConfigError(f"{self.name}:{mark.line + 1}:{mark.column + 1}: {message}")
