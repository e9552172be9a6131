"""Defaults of a component's options, read from the source of its factory, so that nothing heavy is imported."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def declared_defaults(factory: str | Callable[..., Any]) -> dict[str, Any]:
    """Literal defaults of a factory's parameters (for a class, of `__init__` or of its fields).

    Args:
        factory: "module:attr", whose module is parsed and not imported (its parent packages are); or the object itself.

    Returns:
        Defaults by name. Others (computed ones, those of a base class) are left out, as is a factory whose source
        cannot be found.
    """
    if not isinstance(factory, str):
        parameters = inspect.signature(factory).parameters.values()
        return {each.name: each.default for each in parameters if each.default is not each.empty}
    module, _, attribute = factory.partition(":")
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return {}
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    for node in tree.body:
        if getattr(node, "name", None) == attribute:
            for name, default in _defaults(node):
                try:
                    found[name] = ast.literal_eval(default)
                except ValueError:
                    continue
    return found


def _defaults(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        ordered = [*node.args.posonlyargs, *node.args.args]
        with_default = ordered[len(ordered) - len(node.args.defaults) :]
        yield from ((arg.arg, value) for arg, value in zip(with_default, node.args.defaults, strict=True))
        for arg, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
            if value is not None:
                yield arg.arg, value
    elif isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name) and inner.value is not None:
                yield inner.target.id, inner.value
            elif isinstance(inner, ast.FunctionDef) and inner.name == "__init__":
                yield from _defaults(inner)
