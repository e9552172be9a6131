"""Requests about one of the candidate's objects, by the stand-in for it on the tests' side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roll_core.sandbox.inside.reads import Seen

if TYPE_CHECKING:
    from roll_core.sandbox.inside.link import Link


def number_of(value: Any) -> int | None:
    """The number of the candidate's object that a value stands for, or None."""
    kind = type(value)
    try:
        getter = type.__getattribute__ if issubclass(kind, type) else object.__getattribute__
        number = getter(value, "_roll_id_")
    except AttributeError:
        return None
    return number if type(number) is int else None


def link_of(value: Any) -> Link:
    """The link that the object is behind."""
    link: Link = object.__getattribute__(value, "_roll_link_")
    return link


def ask(value: Any, operation: str, *arguments: Any, **keywords: Any) -> Any:
    """Do one operation on it; the result, or its exception raised."""
    return link_of(value).ask(operation, object.__getattribute__(value, "_roll_id_"), *arguments, **keywords)


def exact(value: Any, operation: str, kind: type) -> Any:
    """The result of an operation that must be of exactly this type."""
    result = ask(value, operation)
    if type(result) is not kind:
        raise link_of(value).fail(f"{operation}() of an object of the candidate's gave no plain {kind.__name__}")
    return result


def plain(value: Any) -> Any:
    """The plain contents of an instance of a built-in container's subclass; any other value as it is."""
    base = getattr(type(value), "_roll_base_", None)
    if base is None or base is object:
        return value
    seen = seen_of(value)
    if seen.plain is None:
        contents = ask(value, "plain")
        if type(contents) is not base:
            raise link_of(value).fail(f"the contents of a {base.__name__} of the candidate's are none")
        seen.plain = contents
    return seen.plain


def unverifiable(value: Any, what: str) -> BaseException:
    """Record that the object cannot be verified; the exception to raise."""
    name = type(value).__name__
    return link_of(value).fail(f"{what} an object of the candidate's class {name} cannot be verified")


def seen_of(handle: Any) -> Seen:
    """What was read of it."""
    return link_of(handle).reads.of(object.__getattribute__(handle, "_roll_id_"))


def length(handle: Any) -> int:
    """`len()` of it."""
    if type(handle)._roll_base_ is not None:
        return len(plain(handle))
    seen = seen_of(handle)
    if seen.length is None:
        seen.length = exact(handle, "len", int)
    if seen.length < 0:
        raise link_of(handle).fail("a negative length")
    return seen.length
