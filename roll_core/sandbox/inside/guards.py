"""Keep text and functions from turning into code of the candidate's in the process that writes the verdict.

Whoever runs a line of code there can write the verdict, so tests must not run what a candidate returned, nor lend it a
function that does. Text that the tests hold themselves runs as it is; the candidate's may be arithmetic.
"""

from __future__ import annotations

import ast
import builtins
import io
import pickle
import sys
import types
from collections.abc import Callable
from typing import Any

Fail = Callable[[str], BaseException]
"""Records why the candidate cannot be verified; gives the exception to raise."""

_ARITHMETIC = (
    ast.Expression,
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Tuple,
    ast.List,
    ast.Set,
    ast.Dict,
    ast.Subscript,
    ast.Slice,
    ast.expr_context,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)
"""No name, attribute, call, lambda or comprehension: it can compute, and reach nothing."""

_BUILTINS = frozenset(
    [
        "abs",
        "all",
        "any",
        "ascii",
        "bin",
        "bool",
        "bytes",
        "bytearray",
        "callable",
        "chr",
        "complex",
        "dict",
        "divmod",
        "enumerate",
        "filter",
        "float",
        "format",
        "frozenset",
        "hash",
        "hex",
        "id",
        "int",
        "isinstance",
        "issubclass",
        "iter",
        "len",
        "list",
        "map",
        "max",
        "min",
        "next",
        "object",
        "oct",
        "ord",
        "pow",
        "print",
        "range",
        "repr",
        "reversed",
        "round",
        "set",
        "slice",
        "sorted",
        "str",
        "sum",
        "tuple",
        "zip",
    ]
)
_MODULES = frozenset(
    [
        "__main__",
        "math",
        "_math",
        "cmath",
        "statistics",
        "random",
        "_random",
        "operator",
        "_operator",
        "functools",
        "_functools",
        "itertools",
        "collections",
        "_collections",
        "copy",
        "decimal",
        "_decimal",
        "fractions",
        "datetime",
        "_datetime",
        "time",
        "string",
        "re",
        "heapq",
        "_heapq",
        "bisect",
        "_bisect",
        "numbers",
        "json",
        "json.decoder",
        "json.encoder",
        "textwrap",
        "enum",
        "dataclasses",
        "typing",
        "array",
        "queue",
        "_queue",
        "unittest.mock",
        "unittest.case",
        "logging",
        "ast",
        "_ast",
        "contextlib",
        "reference",
    ]
)
_PLAIN = (int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset)
_DENIED = frozenset({"attrgetter", "methodcaller", "format", "format_map"})
"""Within what is allowed: these look at any attribute of what they are given, private ones too."""


def may_be_lent(value: Any) -> bool:
    """Whether the candidate may call this function of the tests' process: one of the tests' own or a harmless one.

    `eval`, `exec`, `getattr`, `open`, `str.format` and the like would let it run code there, or look at the tests.
    """
    kind = type(value)
    name = getattr(value, "__name__", "")
    if kind.__module__ == "numpy" and kind.__name__ == "ufunc":
        return True
    if kind is types.MethodType:
        return may_be_lent(value.__func__)
    if kind in (
        types.BuiltinMethodType,
        types.MethodDescriptorType,
        types.MethodWrapperType,
        types.WrapperDescriptorType,
    ):
        owner = getattr(value, "__objclass__", None) or getattr(value, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            owner_kind = owner if isinstance(owner, type) else type(owner)
            is_plain = owner_kind in _PLAIN or owner_kind.__module__ in _MODULES or owner_kind.__name__ == "StringIO"
            return is_plain and name not in _DENIED and not name.startswith("__get")
    is_named = isinstance(value, type | types.FunctionType | types.BuiltinFunctionType)
    module = getattr(value if is_named else kind, "__module__", None)
    if is_named and module == "builtins":
        return name in _BUILTINS
    if is_named and module in ("operator", "_operator") and name in _DENIED:
        return False
    top = str(module).partition(".")[0]
    return module in _MODULES or (top not in sys.stdlib_module_names and top != "roll_core")


class TextGuard:
    """`eval`, `exec` and `compile` for tests, which refuse text that may be the candidate's.

    Args:
        fail: records a refusal.
        is_tainted: whether the candidate has given the tests any value so far.
    """

    def __init__(self, fail: Fail, is_tainted: Callable[[], bool]) -> None:
        self._fail = fail
        self._is_tainted = is_tainted
        self._known: set[str] = set()

    def trust(self, source: str) -> None:
        """Let the texts in this trusted source be run."""
        nodes = ast.walk(ast.parse(source))
        self._known |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}

    def names(self) -> dict[str, Callable[..., Any]]:
        """The functions that take the place of the built-in ones."""
        return {"eval": self._eval, "exec": self._exec, "compile": self._compile}

    def _check(self, source: Any) -> None:
        if isinstance(source, types.CodeType | ast.AST) or not self._is_tainted() or source in self._known:
            return
        try:
            tree = ast.parse(source if isinstance(source, str) else "?", mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise self._fail("the tests run text that may be the candidate's") from error
        if not all(isinstance(node, _ARITHMETIC) for node in ast.walk(tree)):
            raise self._fail("the tests run text that may be the candidate's, and more than arithmetic")

    def _eval(self, source: Any, globals: Any = None, locals: Any = None, /) -> Any:
        self._check(source)
        if globals is None:
            frame = sys._getframe(1)
            globals, locals = frame.f_globals, frame.f_locals if locals is None else locals
        return builtins.eval(source, globals, locals)  # noqa: S307  checked above

    def _exec(self, source: Any, globals: Any = None, locals: Any = None, /) -> None:
        self._check(source)
        if globals is None:
            frame = sys._getframe(1)
            globals, locals = frame.f_globals, frame.f_locals if locals is None else locals
        builtins.exec(source, globals, locals)  # noqa: S102  checked above

    def _compile(self, source: Any, filename: Any, mode: str, *arguments: Any, **keywords: Any) -> Any:
        self._check(source)
        return builtins.compile(source, filename, mode, *arguments, **{"dont_inherit": True, **keywords})


def guard_pickle(source: str, fail: Fail) -> None:
    """Patch `pickle` in this process, where tests mention it, so that loading finds classes of the tests' only."""
    if "pickle" not in source:
        return

    class Unpickler(pickle._Unpickler):  # the one written in Python
        def find_class(self, module: str, name: str) -> Any:
            found = super().find_class(module, name)
            if not isinstance(found, type) or not may_be_lent(found):
                raise fail(f"a pickle that asks for {module[:80]}.{name[:80]}")
            return found

    def load(file: Any, **keywords: Any) -> Any:
        return Unpickler(file, **keywords).load()

    def loads(data: Any, /, **keywords: Any) -> Any:
        return load(io.BytesIO(data), **keywords)

    pickle.Unpickler = Unpickler  # type: ignore[assignment,misc]  # in this process only
    pickle.load, pickle.loads = load, loads
