"""What a component's author wrote about its options, read from the source of its factory."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable
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
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
        except (OSError, TypeError, SyntaxError):  # no source: made at run time, or built in
            continue
        body = tree.body[0].body if tree.body and isinstance(tree.body[0], ast.ClassDef) else []
        for field, following in itertools.pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(following, ast.Expr)
                and isinstance(following.value, ast.Constant)
                and isinstance(following.value.value, str)
            ):
                texts[field.target.id] = " ".join(following.value.value.split())
    return texts
