"""Text of immutable values whose class is the candidate's: made from their contents, never by its methods.

`str(n) == str(n)[::-1]` is a check of the number, and a subclass of int could print another one.
"""

from __future__ import annotations

from typing import Any

_BASES = (int, float, str, bytes, tuple, frozenset, complex)


def _base(value: Any) -> Any:
    return next(base for base in _BASES if isinstance(value, base))


def _names(value: Any) -> tuple[Any, Any]:
    names: tuple[Any, Any] = object.__getattribute__(value, "_roll_names_")
    return names


def _repr(value: Any) -> str:
    """As Python shows members of enumerations and named tuples; of other classes what they hold."""
    base = _base(value)
    member, fields = _names(value)
    if type(member) is str:
        return f"<{type(value).__name__}.{member}: {base.__repr__(value)}>"
    if base is tuple and type(fields) is list and len(fields) == len(value):
        shown = ", ".join(f"{field}={part!r}" for field, part in zip(fields, tuple.__iter__(value), strict=True))
        return f"{type(value).__name__}({shown})"
    text: str = base.__repr__(value)
    return text


def _str(value: Any) -> str:
    base = _base(value)
    if base is tuple:
        return _repr(value)
    text: str = str.__str__(value) if base is str else base.__repr__(value)
    return text


TEXTS: dict[str, Any] = {
    "__str__": _str,
    "__repr__": _repr,
    "__format__": lambda value, spec: _base(value).__format__(value, spec),
}
"""Methods of the stand-in's class."""
