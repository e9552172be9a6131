"""What test files in pytest's style need of pytest, and a driver that runs them.

Never imported: its source is put before the test code, in the jail of the tests, where neither pytest nor this package
is. Needs nothing but the standard library.
"""

from __future__ import annotations

import inspect
import io
import itertools
import math
import re
import sys
import types
import unittest
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any


class Raises:
    """`pytest.raises`: the block must raise one of the given exceptions, with a message that matches."""

    def __init__(self, expected: Any, *call: Any, match: str | None = None, **kwargs: Any) -> None:
        self.expected = expected
        self.match = match
        self.value: BaseException | None = None
        if call:
            with self:
                call[0](*call[1:], **kwargs)

    def __enter__(self) -> Raises:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool:
        assert kind is not None, f"did not raise {self.expected}"
        if not issubclass(kind, self.expected):
            return False
        self.value = error
        assert self.match is None or re.search(self.match, str(error)), f"the message is {error!s:.200}"
        return True


class Approx:
    """`pytest.approx`: equal within a relative or an absolute tolerance, also inside sequences and mappings."""

    __hash__ = None  # type: ignore[assignment] # as pytest's own

    def __init__(
        self, expected: Any, rel: float = 1e-6, abs: float = 1e-12, nan_ok: bool = False
    ) -> None:  # pytest's names
        self.expected, self.rel, self.abs, self.nan_ok = expected, rel, abs, nan_ok

    def __eq__(self, other: object) -> bool:
        return self._same(other, self.expected)

    def _same(self, got: Any, want: Any) -> bool:
        if isinstance(want, Mapping):
            return (
                isinstance(got, Mapping)
                and got.keys() == want.keys()
                and all(self._same(got[k], want[k]) for k in want)
            )
        if isinstance(want, Sequence) and not isinstance(want, str):
            is_sequence = isinstance(got, Sequence) and not isinstance(got, str)
            return is_sequence and len(got) == len(want) and all(map(self._same, got, want))
        if isinstance(want, bool) or not (isinstance(got, int | float) and isinstance(want, int | float)):
            return bool(got == want)
        if math.isnan(want):
            return self.nan_ok and math.isnan(got)
        return got == want or (math.isfinite(want) and abs(got - want) <= max(self.rel * abs(want), self.abs))

    def __repr__(self) -> str:
        return f"approx({self.expected!r})"


class Marks:
    """`pytest.mark`: only `parametrize` means anything here; other marks are passed over."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name == "parametrize":
            return self._parametrize
        return lambda *args, **_: args[0] if len(args) == 1 and callable(args[0]) else lambda test: test

    @staticmethod
    def _parametrize(names: str | Sequence[str], values: Sequence[Any], **_: Any) -> Callable[[Any], Any]:
        keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

        def mark(test: Any) -> Any:
            rows = [dict(zip(keys, row if len(keys) > 1 else [row], strict=True)) for row in values]
            test.parameters = [*getattr(test, "parameters", []), rows]
            return test

        return mark


def fixture(*args: Any, **_: Any) -> Any:
    """`pytest.fixture`: marks a function whose value tests ask for by its name."""

    def mark(function: Any) -> Any:
        function.is_fixture = True
        return function

    return mark(args[0]) if args and callable(args[0]) else mark


def param(*values: Any, **_: Any) -> Any:
    """`pytest.param`: the values alone."""
    return values if len(values) > 1 else values[0]


def fail(reason: str = "", **_: Any) -> None:
    """`pytest.fail`."""
    raise AssertionError(reason)


pytest = types.ModuleType("pytest")
for _name, _value in {
    "raises": Raises,
    "approx": Approx,
    "mark": Marks(),
    "fixture": fixture,
    "param": param,
    "fail": fail,
}.items():
    setattr(pytest, _name, _value)
sys.modules["pytest"] = pytest


def run_tests(names: Mapping[str, Any], functions: Sequence[str], classes: Sequence[str]) -> None:
    """Run test functions and classes by name, in order; the first failure ends it."""
    for name in functions:
        _run(names[name], names)
    for name in classes:
        group = names[name]
        if issubclass(group, unittest.TestCase):
            suite = unittest.defaultTestLoader.loadTestsFromTestCase(group)
            result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
            trouble = [text for _, text in [*result.failures, *result.errors]]
            assert result.testsRun > 0, "no test was run"
            assert not trouble, trouble[0][-300:]
            continue
        for method in [key for key in vars(group) if key.startswith("test")]:
            instance = group()
            getattr(instance, "setup_method", lambda *_: None)(*[None][: _takes(instance, "setup_method")])
            _run(getattr(instance, method), names)
            getattr(instance, "teardown_method", lambda *_: None)(*[None][: _takes(instance, "teardown_method")])


def _takes(instance: Any, name: str) -> int:
    return len(inspect.signature(getattr(instance, name)).parameters) if hasattr(instance, name) else 0


def _run(test: Any, names: Mapping[str, Any]) -> None:
    for rows in itertools.product(*getattr(test, "parameters", [])):
        given = {key: value for row in rows for key, value in row.items()}
        asked = {key: _fixture(names, key) for key in inspect.signature(test).parameters if key not in given}
        test(**given, **{key: value for key, (value, _) in asked.items()})
        for _, rest in asked.values():
            next(rest, None)


def _fixture(names: Mapping[str, Any], name: str) -> tuple[Any, Iterator[Any]]:
    """The value of a fixture, and what remains of it to be run after the test."""
    function = names[name]
    asked = {key: _fixture(names, key)[0] for key in inspect.signature(function).parameters}
    made = function(**asked)
    return (next(made), made) if inspect.isgenerator(made) else (made, iter(()))
