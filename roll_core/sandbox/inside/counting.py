"""Read and instrument the source of trusted tests: which names they take from the candidate, and which asserts ran."""

from __future__ import annotations

import ast
import builtins
import copy
import symtable
import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from roll_core.sandbox.inside.remote_errors import has_crossed

FILE_NAME = "tests.py"
CANDIDATE_MODULE = "solution"
"""Tests may import the candidate under this name."""
BEGIN, JUDGE, HELD, USED = "__assert_begins__", "__assert_judge__", "__assert_held__", "__candidate__"
CAUGHT, RAISES = "__caught__", "__raises__"


def free_names(source: str) -> set[str]:
    """The global names that a module uses and does not bind itself."""
    top = symtable.symtable(source, FILE_NAME, "exec")
    bound: set[str] = set()
    used: set[str] = set()
    pending = [top]
    while pending:
        scope = pending.pop()
        for symbol in scope.get_symbols():
            is_top = scope is top
            binds = symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
            if binds and (is_top or symbol.is_declared_global()):
                bound.add(symbol.get_name())
            if symbol.is_global() or (is_top and symbol.is_referenced()):
                used.add(symbol.get_name())
        pending.extend(scope.get_children())
    return used - bound


def candidate_names(source: str, defined: Collection[str], entry_point: str | None) -> list[str]:
    """The names that come from the candidate: used by the tests, defined neither by them nor by Python.

    Args:
        source: the tests.
        defined: names that trusted code binds beforehand.
        entry_point: the name of what the candidate was asked for; it may be the name of a built-in function (`sum`).
    """
    free = free_names(source) - set(defined)
    return sorted(name for name in free if name == entry_point or not hasattr(builtins, name))


def imports(source: str, module: str) -> bool:
    """Whether the source imports the module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and module in [alias.name for alias in node.names]:
            return True
        if isinstance(node, ast.ImportFrom) and node.module == module:
            return True
    return False


@dataclass(slots=True)
class Tally:
    """What the tests did: assertions that began, held and failed, and whether they looked at the candidate.

    `raised` counts exceptions that the tests raised on a condition inside a `with`; `caught_own` is set where a class
    of the candidate's caught what the tests raised themselves.
    """

    began: int = 0
    held: int = 0
    failed: int = 0
    raised: int = 0
    used: bool = False
    caught_own: bool = False

    def begin(self) -> None:
        """An assertion begins."""
        self.began += 1

    def judge(self, value: Any) -> bool:
        """The truth of an assertion's condition, counted where it is false."""
        if value:
            return True
        self.failed += 1
        return False

    def hold(self) -> None:
        """An assertion held."""
        self.held += 1

    def use(self, value: Any) -> Any:
        """A name of the candidate's is looked at; its value as it is."""
        self.used = True
        return value

    def raising(self) -> None:
        """The tests raise an exception on a condition, inside a `with`."""
        self.raised += 1

    def caught(self, others: tuple[Any, ...]) -> None:
        """An `except` with a class of the candidate's took the exception; `others` are the tests' own."""
        error = sys.exc_info()[1]
        if error is not None and not has_crossed(error) and not isinstance(error, others):
            self.caught_own = True

    @property
    def open(self) -> int:
        """Assertions that began and did not hold."""
        return self.began - self.held

    def hooks(self) -> dict[str, Any]:
        """The names that instrumented code calls."""
        return {
            BEGIN: self.begin,
            JUDGE: self.judge,
            HELD: self.hold,
            USED: self.use,
            CAUGHT: self.caught,
            RAISES: self.raising,
        }


class _Instrument(ast.NodeTransformer):
    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._theirs = self._names
        self._in_with = self._in_if = False

    def visit_Module(self, node: ast.Module) -> ast.AST:
        self._theirs = self._names | _imported(node)
        return self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        """Note what a class of the candidate's catches."""
        classes = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type] if node.type else []
        own = [kind for kind in classes if not _mentions(kind, self._theirs)]
        caught = copy.deepcopy(own)
        self.generic_visit(node)
        if len(own) < len(classes):
            call = ast.Call(ast.Name(CAUGHT, ast.Load()), [ast.Tuple(caught, ast.Load())], [])
            node.body.insert(0, ast.copy_location(ast.Expr(call), node))
        return node

    def visit_With(self, node: ast.With) -> ast.AST:
        return self._within(node, in_with=True, in_if=False)

    def visit_If(self, node: ast.If) -> ast.AST:
        return self._within(node, in_with=self._in_with, in_if=True)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._within(node, in_with=False, in_if=False)

    def _within(self, node: ast.AST, *, in_with: bool, in_if: bool) -> ast.AST:
        before = self._in_with, self._in_if
        self._in_with, self._in_if = in_with, in_if
        self.generic_visit(node)
        self._in_with, self._in_if = before
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        if not (self._in_with and self._in_if):
            return node
        return [ast.copy_location(ast.Expr(ast.Call(ast.Name(RAISES, ast.Load()), [], [])), node), node]

    def visit_Assert(self, node: ast.Assert) -> list[ast.stmt]:
        self.generic_visit(node)
        condition = ast.Call(ast.Name(JUDGE, ast.Load()), [node.test], [])
        judged = ast.Assert(ast.copy_location(condition, node.test), node.msg)
        before, after = (ast.Expr(ast.Call(ast.Name(name, ast.Load()), [], [])) for name in (BEGIN, HELD))
        return [ast.copy_location(statement, node) for statement in (before, judged, after)]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self._names or not isinstance(node.ctx, ast.Load):
            return node
        return ast.copy_location(ast.Call(ast.Name(USED, ast.Load()), [node], []), node)

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.MatchClass:
        """A class pattern has to stay a name; only what it holds is looked at."""
        node.patterns = [self.visit(pattern) for pattern in node.patterns]
        node.kwd_patterns = [self.visit(pattern) for pattern in node.kwd_patterns]
        return node


def _mentions(node: ast.AST, names: Collection[str]) -> bool:
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


def _imported(tree: ast.Module) -> set[str]:
    """The names under which tests import the candidate, or things of it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == CANDIDATE_MODULE:
            found |= {alias.asname or alias.name for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {alias.asname or alias.name for alias in node.names if alias.name == CANDIDATE_MODULE}
    return found


@dataclass(frozen=True, slots=True)
class Source:
    """What is in the source of tests."""

    tree: ast.Module
    has_assertions: bool
    """Whether it holds an `assert`, or a call of an `assert...` or `fail` method."""
    handles_failures: bool
    """Whether it mentions AssertionError."""

    def instrumented(self, names: Collection[str]) -> Any:
        """Code in which every `assert`, and every look at one of these names, calls a hook (`Tally.hooks`)."""
        tree = ast.fix_missing_locations(_Instrument(names).visit(self.tree))
        return compile(tree, FILE_NAME, "exec", dont_inherit=True)


def read_source(source: str) -> Source:
    """Parse tests.

    Raises:
        SyntaxError: they do not parse.
        ValueError: they hold a null byte.
    """
    tree = ast.parse(source, FILE_NAME)
    compile(source, FILE_NAME, "exec", dont_inherit=True)  # finds what the parser does not: `return` outside a function
    nodes = list(ast.walk(tree))
    has_assertions = any(isinstance(node, ast.Assert) or _is_assertion_call(node) for node in nodes)
    handles_failures = any(isinstance(node, ast.Name) and node.id == "AssertionError" for node in nodes)
    return Source(tree, has_assertions, handles_failures)


def _is_assertion_call(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr.startswith("assert") or node.func.attr == "fail"
