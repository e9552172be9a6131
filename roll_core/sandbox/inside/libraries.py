"""Names of libraries that tests use without importing them, which then must not come from the candidate."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator

from roll_core.sandbox.inside.counting import candidate_names, free_names, imports

_ALIASES = {"np": "numpy", "pd": "pandas", "numpy": "numpy", "pandas": "pandas", "scipy": "scipy", "sympy": "sympy"}
_SOURCES = ("math", "collections", "copy", "itertools", "functools", "typing", "decimal", "fractions", "datetime")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def library_names(source: str, entry_point: str | None) -> dict[str, str]:
    """Modules that tests use without importing them: name to module.

    A name counts as a module where it is one of the standard library (or `np`, `pd` and so on) and the tests do nothing
    with it but take attributes; a function that happens to be called `bisect` is not meant.
    """
    tree = ast.parse(source)
    bases = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    others = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in bases}
    free = free_names(source) - others - {entry_point}
    known = {name: name for name in sys.stdlib_module_names} | _ALIASES
    return {name: known[name] for name in sorted(free & known.keys())}


def checker_names(source: str, entry_point: str | None) -> dict[str, str]:
    """Functions of the standard library that tests use on the candidate's values without importing them.

    `isclose` in `assert isclose(f(3), 9)` decides about the candidate, so it must not be the candidate's. The `gcd` of
    `assert gcd(10, 15) == 5` is what is asked for. So a public name of a few modules counts where it is applied to what
    comes from the candidate, and no assertion is about it alone.

    Returns:
        Name to module; nothing where no other name would be left for the candidate.
    """
    theirs = set(candidate_names(source, (), entry_point))
    known: dict[str, str] = {}
    for module in _SOURCES:
        library = importlib.import_module(module)
        for name in getattr(library, "__all__", dir(library)):
            if not name.startswith("_") and name in theirs and name != entry_point:
                known.setdefault(name, module)
    tree = ast.parse(source)
    found = {name: known[name] for name in known if _decides(tree, name, theirs - {name})}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            about = _names(node.test) & theirs
            if len(about) == 1 and not _names(node.test) & _tainted(tree, theirs - about):
                found.pop(next(iter(about)), None)
    is_left = theirs - found.keys() or imports(source, "solution")
    return found if is_left else {}


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _tainted(tree: ast.AST, names: set[str]) -> set[str]:
    """These names, and those that the tests bind to what is made from one of them; every parameter is one."""
    found = set(names)
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            found |= {argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    while True:
        more = {name for value, targets in _bindings(tree) if _names(value) & found for name in targets} - found
        if not more:
            return found
        found |= more


def _bindings(tree: ast.AST) -> Iterator[tuple[ast.AST, set[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            yield node.value, set().union(*map(_names, node.targets))
        elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            yield node.value, _names(node.target)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            yield node.iter, _names(node.target)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield node.context_expr, _names(node.optional_vars)


def _decides(tree: ast.AST, name: str, others: set[str]) -> bool:
    """Whether the name is called with, or handed over beside, what comes from another name of the candidate's."""
    tainted = _tainted(tree, others)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        concerned = name in _names(node.func) or any(isinstance(part, ast.Name) and part.id == name for part in parts)
        if concerned and any(_names(part) & tainted for part in parts):
            return True
    return False
