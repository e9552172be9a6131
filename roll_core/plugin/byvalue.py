"""Pickling of functions that another process cannot import: those of a notebook, a script, or a closure.

Such a function travels as its code, with the globals and closure it uses; everything else is pickled as usual. Both
ends must run the same Python, which holds for the processes of one run.
"""

from __future__ import annotations

import builtins
import importlib
import io
import marshal
import pickle
import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

State = tuple[dict[str, Any], tuple[Any, ...], dict[str, Any]]


def dumps(thing: object) -> bytes:
    """Pickle `thing`, functions that cannot be imported elsewhere by value.

    Raises:
        pickle.PicklingError, TypeError, AttributeError: something in it cannot be pickled.
    """
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(thing)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, ModuleType):
            return importlib.import_module, (obj.__name__,)
        if isinstance(obj, type) and obj.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__"):
            raise pickle.PicklingError(
                f"class '{obj.__qualname__}' was defined in an interactive session, which other processes cannot "
                "import; put it into a file"
            )
        if not isinstance(obj, FunctionType) or _importable(obj):
            return NotImplemented
        skeleton = (marshal.dumps(obj.__code__), obj.__name__, obj.__module__, len(obj.__closure__ or ()))
        # the state follows the memo of the skeleton, so that a function may refer to itself
        return _skeleton, skeleton, _state(obj), None, None, _fill


def _importable(function: FunctionType) -> bool:
    if function.__module__ == "__main__":
        return False
    found: Any = sys.modules.get(function.__module__)
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _state(function: FunctionType) -> State:
    used = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
    attributes = {
        "__qualname__": function.__qualname__,
        "__defaults__": function.__defaults__,
        "__kwdefaults__": function.__kwdefaults__,
        "__doc__": function.__doc__,
    }
    return used, cells, attributes


def _names(code: CodeType) -> Iterator[str]:
    """Names a function may look up in its globals, inner functions included, sorted for equal bytes."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names.update(_names(constant))
    return iter(sorted(names))


def _skeleton(code: bytes, name: str, module: str, cells: int) -> Callable[..., Any]:
    scope = {"__builtins__": builtins, "__name__": module}
    closure = tuple(CellType() for _ in range(cells))
    return FunctionType(marshal.loads(code), scope, name, None, closure)  # noqa: S302  # made by `dumps` of this run


def _fill(function: FunctionType, state: State) -> None:
    used, cells, attributes = state
    function.__globals__.update(used)
    for cell, value in zip(function.__closure__ or (), cells, strict=True):
        cell.cell_contents = value
    for name, value in attributes.items():
        setattr(function, name, value)
