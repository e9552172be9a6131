"""What a component's author wrote about its options, read from the source of its factory."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_ENTRY = re.compile(r"^(\w+): (.*)$")


def option_docs(factory: Callable[..., Any]) -> dict[str, str]:
    """Texts about a factory's parameters: the string under a field, or its entry in an `Args:` section.

    A factory without readable source, or without such texts, gives an empty mapping.

    Args:
        factory: a class, function, partial or callable object.
    """
    target: Any = factory
    while isinstance(target, functools.partial):
        target = target.func
    texts = _args_section(inspect.getdoc(target) or "")
    if inspect.isclass(target):
        texts |= _args_section(inspect.getdoc(target.__init__) or "") | _field_strings(target)
    return texts


def _args_section(text: str) -> dict[str, str]:
    """Entries of the Google section `Args:`, continued lines joined."""
    _, found, section = text.partition("\nArgs:\n")
    if not found:
        return {}
    lines = section.splitlines()
    stop = next((i for i, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    texts: dict[str, str] = {}
    name = ""
    for line in textwrap.dedent("\n".join(lines[:stop])).splitlines():
        entry = _ENTRY.match(line)
        if entry is not None:
            name = entry[1]
            texts[name] = entry[2].strip()
        elif name and line.startswith(" "):
            texts[name] += " " + line.strip()
    return texts


def _field_strings(owner: type) -> dict[str, str]:
    """Strings that stand under the annotated fields of a class and of those it inherits from."""
    texts: dict[str, str] = {}
    for cls in reversed(owner.__mro__[:-1]):
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        if file is not None:
            texts |= _strings_by_class(cls.__module__, file).get(cls.__qualname__, {})
    return texts


@functools.cache
def _strings_by_class(module: str, file: str) -> dict[str, dict[str, str]]:
    """Strings under the fields of every class of a file, by the class's qualified name.

    A rollfile that was edited is another module in the same file, hence both are the key.
    """
    del module
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):  # an extension module, or no file at all
        return {}
    found: dict[str, dict[str, str]] = {}
    queue = [("", node) for node in tree.body if isinstance(node, ast.ClassDef)]
    while queue:
        prefix, node = queue.pop()
        name = f"{prefix}{node.name}"
        found[name] = dict(_strings(node.body))
        queue += [(f"{name}.", inner) for inner in node.body if isinstance(inner, ast.ClassDef)]
    return found


def _strings(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for field, following in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
            and isinstance(following.value.value, str)
        ):
            yield field.target.id, " ".join(following.value.value.split())
