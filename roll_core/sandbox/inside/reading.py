"""Reading the candidate's objects: attributes, items, parts, and what has to agree between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from roll_core.sandbox.inside.asking import ask, length, link_of, number_of, plain, seen_of, unverifiable
from roll_core.sandbox.inside.reads import alike

PREDICATES = frozenset({"startswith", "endswith", "issubset", "issuperset", "isdisjoint"})
"""Methods of plain types that say whether a value is the expected one."""


def attribute(value: Any, name: str) -> Any:
    """The attribute of that name."""
    if name.startswith("_roll_"):
        raise AttributeError(name)
    if name in PREDICATES:
        if type(value)._roll_base_ is None:
            raise unverifiable(value, f"{name}() of")
        return getattr(plain(value), name)
    base = type(value)._roll_base_
    if name in _CHECKED.get(base, ()):
        return _checked(value, name)
    return ask(value, "attr", name)


_CHECKED: dict[Any, frozenset[str]] = {
    list: frozenset({"index", "count", "copy"}),
    dict: frozenset({"get", "items", "keys", "values", "copy"}),
    set: frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"}),
}
"""Methods that read a built-in container."""


def _checked(value: Any, name: str) -> Callable[..., Any]:
    """The method of the candidate's, whose answer must be what the contents give, where they give one."""
    method = ask(value, "attr", name)

    def checked(*arguments: Any, **keywords: Any) -> Any:
        contents = plain(value)
        has_own = name == "get" and not (arguments and _has(contents, arguments[0]))
        result = method(*arguments, **keywords)
        try:
            expected = getattr(contents, name)(*arguments, **keywords)
        except (TypeError, ValueError):  # a method of that name which takes other arguments, or none there
            return result
        if not has_own and not alike(_parts_of(result), _parts_of(expected)):
            raise link_of(value).fail(
                f"{name}() of a {type(contents).__name__} of the candidate's differs from its contents"
            )
        return result

    return checked


def _parts_of(value: Any) -> Any:
    """Views as lists, so that they can be compared."""
    is_view = type(value) in (type({}.keys()), type({}.values()), type({}.items()))
    return list(value) if is_view else plain(value)


def _has(contents: Any, key: Any) -> bool:
    try:
        contents[key]
    except (LookupError, TypeError):
        return False
    return True


def item(handle: Any, key: Any) -> Any:
    """The item of a key."""
    if type(handle)._roll_base_ is not None:
        return _item_of_base(handle, key)
    result = ask(handle, "item", key)
    if type(key) is int and key >= 0:
        seen = seen_of(handle)
        if key in seen.items and not alike(seen.items[key], result):
            raise link_of(handle).fail(f"item {key} is another one each time")
        seen.items[key] = result
        if not seen.agree(key):
            raise link_of(handle).fail(f"item {key} is not what iteration gives there")
    return result


def _item_of_base(handle: Any, key: Any) -> Any:
    contents = plain(handle)
    result = ask(handle, "item", key)
    if _has(contents, key) and not alike(plain(result), contents[key]):
        raise link_of(handle).fail("an item is not what the contents hold there")
    if type(contents) is dict:
        seen_of(handle).plain = None  # a look may add the key, or reorder the keys
    return result


def advance(handle: Any) -> Any:
    """`next()` of it, which goes on raising once it has ended."""
    reads = link_of(handle).reads
    number = object.__getattribute__(handle, "_roll_id_")
    try:
        value = ask(handle, "next")
    except StopIteration:
        reads.exhausted.add(number)
        raise
    if number in reads.exhausted:
        raise link_of(handle).fail("an iterator that goes on after its end")
    return value


def iterate(handle: Any) -> Any:
    """`iter()` of it."""
    if type(handle)._roll_base_ is not None:
        return iter(plain(handle))
    iterator = ask(handle, "iter")
    if not hasattr(type(iterator), "__next__"):
        raise link_of(handle).fail("iter() gave no iterator")
    if hasattr(type(handle), "__next__"):
        return iterator
    number = number_of(iterator)
    if number is not None:
        link_of(handle).reads.walked.add(number)
    return _walked(handle, iterator)


def _walked(handle: Any, iterator: Iterator[Any]) -> Iterator[Any]:
    """The parts, which must be as many as the length says, the same each time, and those that indices give."""
    count = 0
    for part in iterator:
        seen = seen_of(handle)
        if count < len(seen.parts):
            if not alike(seen.parts[count], part):
                raise link_of(handle).fail("iteration gives other parts each time")
        elif count == len(seen.parts):
            seen.parts.append(part)
        if not seen.agree(count):
            raise link_of(handle).fail(f"item {count} is not what iteration gives there")
        count += 1
        yield part
    if hasattr(type(handle), "__len__") and count != length(handle):
        raise link_of(handle).fail(f"an object of length {length(handle)} gave {count} parts")
    if count < len(seen_of(handle).parts):
        raise link_of(handle).fail("iteration gives fewer parts each time")
