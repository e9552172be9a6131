"""Read and instrument the source of trusted tests: which names they take from the candidate, and which asserts ran."""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

_ALIASES = {"np": "numpy", "pd": "pandas"}
FILE_NAME = "tests.py"
BEGIN, JUDGE, HELD, USED = "__assert_begins__", "__assert_judge__", "__assert_held__", "__candidate__"


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


def library_names(source: str, entry_point: str | None) -> dict[str, str]:
    """Modules that tests use without importing them, which then must not be the candidate's: name to module.

    A name counts as a module where it is one of the standard library (or `np`, `pd`) and the tests do nothing with it
    but take attributes; a function that happens to be called `bisect` is not meant.
    """
    tree = ast.parse(source)
    bases = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    others = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in bases}
    free = free_names(source) - others - {entry_point}
    known = {name: name for name in sys.stdlib_module_names} | _ALIASES
    return {name: known[name] for name in sorted(free & known.keys())}


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
    """What the tests did: assertions that began, held and failed, and whether they looked at the candidate."""

    began: int = 0
    held: int = 0
    failed: int = 0
    used: bool = False

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

    @property
    def open(self) -> int:
        """Assertions that began and did not hold."""
        return self.began - self.held

    def hooks(self) -> dict[str, Any]:
        """The names that instrumented code calls."""
        return {BEGIN: self.begin, JUDGE: self.judge, HELD: self.hold, USED: self.use}


class _Instrument(ast.NodeTransformer):
    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)

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
