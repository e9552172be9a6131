"""Test files in pytest's style, as asserts that run by themselves."""

from __future__ import annotations

import ast
import importlib.resources
from functools import lru_cache
from typing import Any

from roll_verifier_code.asserts import parse_trusted
from roll_verifier_code.errors import TaskError

MODULE = "solution"
"""The module that tests import the answer from."""
_ASSERTING = ("raises", "fail")
"""Functions of pytest that can fail a test without an `assert`."""


def pytest_tests(text: str) -> dict[str, Any]:
    """Tests out of the text of a test file: plain asserts, functions `test_*`, or classes of them.

    Imports from `solution` become the answer's own names, and where there are test functions, what they use of pytest
    and a driver that runs them are put around.

    Raises:
        TaskError: it does not parse, asserts nothing, or needs a fixture that it does not define.
    """
    tree = parse_trusted(text, "the test code")
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test")]
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and _is_test_class(node)]
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    functions = [node for node in functions if node.name not in called]
    shim = driver = ""
    if functions or classes:
        _check(tree, functions)
        names = [node.name for node in functions], [node.name for node in classes]
        shim, driver = _shim(), f"\nrun_tests(globals(), {names[0]!r}, {names[1]!r})\n"
        tree.body = [node for node in tree.body if not _is_replaced(node)]
    body = ast.unparse(ast.fix_missing_locations(_Rewrite().visit(tree)))
    return {"type": "asserts", "code": f"{shim}\n{body}\n{driver}".lstrip()}


def _is_test_class(node: ast.ClassDef) -> bool:
    return node.name.startswith("Test") or any("TestCase" in ast.unparse(base) for base in node.bases)


def _check(tree: ast.Module, functions: list[ast.FunctionDef]) -> None:
    nodes = list(ast.walk(tree))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    asserts = any(isinstance(node, ast.Assert) for node in nodes)
    if not (asserts or any(name in _ASSERTING or name.startswith("assert") for name in attributes)):
        raise TaskError("the test code asserts nothing; an answer cannot pass nothing")
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for test in functions:
        given = {name for decorator in test.decorator_list for name in _parametrized(decorator)}
        for argument in test.args.args:
            if argument.arg not in defined | given:
                raise TaskError(
                    f"test '{test.name}' asks for the fixture '{argument.arg}', which the test code does not define; "
                    "pytest's own fixtures are not supported"
                )


def _parametrized(decorator: ast.expr) -> list[str]:
    """The arguments that a decorator gives, where it is `pytest.mark.parametrize`."""
    if not (isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize") and decorator.args):
        return []
    texts = [node.value for node in ast.walk(decorator.args[0]) if isinstance(node, ast.Constant)]
    return [name.strip() for text in texts if isinstance(text, str) for name in text.split(",")]


class _Rewrite(ast.NodeTransformer):
    """Makes the names of the answer's module plain names."""

    def visit_Import(self, node: ast.Import) -> ast.stmt:
        kept = [alias for alias in node.names if alias.name != MODULE]
        return ast.Import(kept) if kept else ast.Pass()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt | list[ast.stmt]:
        if node.module != MODULE:
            return node
        renames: list[ast.stmt] = []
        for alias in node.names:
            if alias.asname and alias.asname != alias.name:
                renames.append(ast.Assign([ast.Name(alias.asname, ast.Store())], ast.Name(alias.name, ast.Load())))
        return renames or ast.Pass()

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == MODULE and isinstance(node.ctx, ast.Load):
            return ast.Name(node.attr, ast.Load())
        return node


def _is_replaced(node: ast.stmt) -> bool:
    """Whether the driver does what a statement is for (`if __name__ == ...`), or the shim has it (`__future__`)."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


@lru_cache(maxsize=1)
def _shim() -> str:
    return (importlib.resources.files(__package__) / "pytest_shim.py").read_text(encoding="utf-8")
