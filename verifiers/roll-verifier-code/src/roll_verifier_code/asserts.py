"""Looks at trusted test code before it runs: does it parse, and can it assert anything at all?"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from roll_verifier_code.errors import TaskError

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def parse_trusted(source: str, what: str) -> ast.Module:
    """Parse source of the task's own.

    Raises:
        TaskError: it does not parse.
    """
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TaskError(f"{what} does not parse: {error}") from error


@lru_cache(maxsize=512)
def check_asserts(code: str, reference: str) -> None:
    """Refuse test code that cannot fail.

    Raises:
        TaskError: the code or its reference does not parse, or no `assert` and no call of an `assert...` method in it
            can be reached.
    """
    parse_trusted(reference, "the reference of the tests")
    tree = parse_trusted(code, "the test code")
    if not any(map(_is_assertion, ast.walk(tree))):
        raise TaskError("the test code holds no assert; an answer cannot pass nothing")
    if not any(map(_is_assertion, _reachable(tree))):
        raise TaskError("no assert of the test code is ever reached; an answer cannot pass nothing")


def _is_assertion(node: ast.AST) -> bool:
    """Whether this is an `assert`, or calls a method of unittest's such as `self.assertEqual`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr.startswith("assert")
    return isinstance(node, ast.Assert)


def _reachable(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes that a run can come to; a function counts when its name, or its class's, is used somewhere.

    Methods also count where a framework is imported that finds them by itself.
    """
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    used |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    has_framework = any(
        isinstance(n, ast.Import | ast.ImportFrom) and "unittest" in ast.dump(n) for n in ast.walk(tree)
    )
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        yield node
        if isinstance(node, _FUNCTIONS) and node.name not in used:
            continue
        if isinstance(node, ast.ClassDef):
            if node.name in used or has_framework:
                queue += [
                    part for item in node.body for part in (item.body if isinstance(item, _FUNCTIONS) else [item])
                ]
            continue
        if isinstance(node, ast.If) and isinstance(node.test, ast.Constant):
            queue += node.body if node.test.value else node.orelse
            continue
        queue += ast.iter_child_nodes(node)


@lru_cache(maxsize=128)
def check_arguments(checker: str) -> int:
    """How many arguments a checker's function `check` takes: 2 (input, output) or 3 (and what was expected).

    Raises:
        TaskError: the source does not parse, or has no such function.
    """
    tree = parse_trusted(checker, "the checker")
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if not found:
        raise TaskError("the checker defines no function 'check(stdin, stdout[, expected])'")
    arguments = found[-1].args
    least = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    most = 3 if arguments.vararg else len(arguments.posonlyargs) + len(arguments.args)
    if least > 3 or most < 2 or any(default is None for default in arguments.kw_defaults):
        raise TaskError("the checker's 'check' must take (stdin, stdout) or (stdin, stdout, expected)")
    if not any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(found[-1])):
        raise TaskError("the checker's 'check' returns nothing; it must return a bool, or a number from 0 to 1")
    return 3 if most >= 3 else 2
