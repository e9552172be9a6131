"""Test files in pytest's style, as asserts that run by themselves."""

from __future__ import annotations

import ast
import importlib.resources
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from roll_verifier_code.asserts import parse_trusted
from roll_verifier_code.errors import TaskError
from roll_verifier_code.solution_imports import without_import

_ASSERTING = ("raises", "fail")
"""Functions of pytest that can fail a test without an `assert`."""
_SKIPPED = re.compile(r"(?:pytest\.)?mark\.skip\b|(?:unittest\.)?skip\b")
_RUNNERS = frozenset({"main", "TextTestRunner", "TestLoader", "defaultTestLoader", "TestSuite", "TestResult", "debug"})
"""Names in test code that runs tests of unittest itself."""
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def pytest_tests(text: str) -> dict[str, Any]:
    """Tests out of the text of a test file: plain asserts, functions `test_*`, or classes of them.

    Imports from `solution` become the answer's own names, and where there are test functions, what they use of pytest
    and a driver that runs them are put around. Tests with a mark to skip them are not run.

    Raises:
        TaskError: it does not parse, asserts nothing, skips all, or needs a fixture that it does not define.
    """
    tree = parse_trusted(text, "the test code")
    kept = [node for node in tree.body if not _is_replaced(node)]
    functions = [node for node in kept if isinstance(node, _FUNCTIONS) and node.name.startswith("test")]
    helpers = _called(kept)
    functions = [node for node in functions if not (node.name in helpers and _unknown_arguments(node, kept))]
    classes = _test_classes(kept)
    shim = driver = ""
    if functions or classes:
        tree.body = kept
        _check(tree, functions, classes)
        names = [node.name for node in functions], [node.name for node in classes]
        shim, driver = _shim(), f"\nrun_tests(globals(), {names[0]!r}, {names[1]!r})\n"
    body = ast.unparse(ast.fix_missing_locations(without_import(tree)))
    return {"type": "asserts", "code": f"{shim}\n{body}\n{driver}".lstrip()}


@lru_cache(maxsize=512)
def with_runner(code: str) -> str:
    """Test code that also runs its classes of unittest, where it does not do that itself.

    Raises:
        TaskError: it does not parse, or asserts nothing.
    """
    if "unittest" not in code:
        return code
    tree = parse_trusted(code, "the test code")
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if names & _RUNNERS or not any("TestCase" in ast.unparse(b) for c in _test_classes(tree.body) for b in c.bases):
        return code
    return str(pytest_tests(code)["code"])


def _called(body: list[ast.stmt]) -> set[str]:
    """The plain names that are called."""
    calls = [node.func for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return {function.id for function in calls if isinstance(function, ast.Name)}


def _test_classes(body: list[ast.stmt]) -> list[ast.ClassDef]:
    """The classes of tests: by their name, or as `TestCase`, also by way of another class of the file."""
    cases: set[str] = set()
    found = []
    for node in body:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = {ast.unparse(base) for base in node.bases}
        is_case = any("TestCase" in base for base in bases) or bool(bases & cases)
        if is_case:
            cases.add(node.name)
        if is_case or node.name.startswith("Test"):
            found.append(node)
    return found


def _check(tree: ast.Module, functions: Sequence[_Function], classes: Sequence[ast.ClassDef]) -> None:
    nodes = list(ast.walk(tree))
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    asserts = any(isinstance(node, ast.Assert) for node in nodes)
    if not (asserts or any(name in _ASSERTING or name.startswith("assert") for name in attributes)):
        raise TaskError("the test code asserts nothing; an answer cannot pass nothing")
    if all(any(_SKIPPED.match(ast.unparse(one)) for one in node.decorator_list) for node in (*functions, *classes)):
        raise TaskError("every test is skipped; an answer cannot pass nothing")
    for test in functions:
        for argument in _unknown_arguments(test, tree.body):
            raise TaskError(
                f"test '{test.name}' asks for the fixture '{argument}', which the test code does not define; "
                "pytest's own fixtures are not supported"
            )
    for group in classes:
        bases = [ast.unparse(base) for base in group.bases]
        if any(base.endswith("TestCase") and "Async" not in base for base in bases):
            for part in group.body:
                if isinstance(part, ast.AsyncFunctionDef) and part.name.startswith("test"):
                    raise TaskError(f"'{group.name}.{part.name}' is async; make the class an IsolatedAsyncioTestCase")


def _unknown_arguments(test: _Function, body: list[ast.stmt]) -> list[str]:
    """The arguments of a test function that neither a fixture of the file, nor parameters, nor a default gives."""
    known = {node.name for node in body if isinstance(node, _FUNCTIONS)}
    known |= {name for decorator in test.decorator_list for name in _parametrized(decorator)}
    arguments = [*test.args.posonlyargs, *test.args.args]
    return [one.arg for one in arguments[: len(arguments) - len(test.args.defaults)] if one.arg not in known]


def _parametrized(decorator: ast.expr) -> list[str]:
    """The arguments that a decorator gives, where it is `pytest.mark.parametrize`."""
    if not (isinstance(decorator, ast.Call) and ast.unparse(decorator.func).endswith("parametrize") and decorator.args):
        return []
    texts = [node.value for node in ast.walk(decorator.args[0]) if isinstance(node, ast.Constant)]
    return [name.strip() for text in texts if isinstance(text, str) for name in text.split(",")]


def _is_replaced(node: ast.stmt) -> bool:
    """Whether the driver does what a statement is for (`if __name__ == ...`), or the shim has it (`__future__`)."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


@lru_cache(maxsize=1)
def _shim() -> str:
    return (importlib.resources.files(__package__) / "pytest_shim.py").read_text(encoding="utf-8")
