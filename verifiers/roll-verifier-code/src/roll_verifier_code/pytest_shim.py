"""What test files in pytest's style need of pytest, and a driver that runs them.

Never imported: its source is put before the test code, in the jail of the tests, where neither pytest nor this package
is. Needs nothing but the standard library.
"""

from __future__ import annotations

import importlib
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


class Mark:
    """One mark, to be put on a test; `skip`, `skipif` and `xfail` keep it from being run, others mean nothing."""

    def __init__(self, name: str, *conditions: Any) -> None:
        self.name, self.conditions = name, conditions

    @property
    def skips(self) -> bool:
        """Whether what it is put on is not to be run; conditions in text are not evaluated."""
        holds = any(bool(one) for one in self.conditions if not isinstance(one, str))
        if self.name == "xfail":
            return holds or not self.conditions
        return self.name == "skip" or (self.name == "skipif" and holds)

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Put it on the test that is the only argument; other arguments make a mark that holds under conditions."""
        test = args[0] if len(args) == 1 and not options else None
        if inspect.isfunction(test) or inspect.isclass(test):
            if self.skips:
                setattr(test, "is_skipped", True)  # noqa: B010  a function has no such attribute by its type
            return test
        return Mark(self.name, *args, *(options[key] for key in ("condition",) if key in options))


class Marks:
    """`pytest.mark`."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self._parametrize if name == "parametrize" else Mark(name)

    @staticmethod
    def _parametrize(names: str | Sequence[str], values: Sequence[Any], **_: Any) -> Callable[[Any], Any]:
        keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)

        def mark(test: Any) -> Any:
            wanted = [row for row in values if not (isinstance(row, Param) and row.is_skipped)]
            rows = [row.values if isinstance(row, Param) else row if len(keys) > 1 else [row] for row in wanted]
            given = [dict(zip(keys, row, strict=True)) for row in rows]
            test.parameters = [*getattr(test, "parameters", []), given]
            return test

        return mark


class Skipped(BaseException):
    """Raised by a test that does not want to be run."""


def fixture(*args: Any, **_: Any) -> Any:
    """`pytest.fixture`: marks a function whose value tests ask for by its name."""

    def mark(function: Any) -> Any:
        function.is_fixture = True
        return function

    return mark(args[0]) if args and callable(args[0]) else mark


class Param:
    """`pytest.param`: the values of one run of a test."""

    def __init__(self, *values: Any, marks: Any = (), **_: Any) -> None:
        self.values = values
        self.is_skipped = _skips(marks)


def _skips(marks: Any) -> bool:
    """Whether one mark, or one of several, keeps a test from being run."""
    return any(mark.skips for mark in (marks if isinstance(marks, list | tuple) else [marks]))


def fail(reason: str = "", *_: Any, **options: Any) -> None:
    """`pytest.fail`; an assertion, so that it counts as failed whatever the test catches."""
    went_well = False
    assert went_well, reason or options.get("msg", "")


def skip(reason: str = "", *_: Any, **__: Any) -> None:
    """`pytest.skip` and `pytest.xfail`."""
    raise Skipped(reason)


def importorskip(name: str, *_: Any, **__: Any) -> Any:
    """`pytest.importorskip`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Skipped(str(error)) from error


pytest = types.ModuleType("pytest")
for _name, _value in {
    "raises": Raises,
    "approx": Approx,
    "mark": Marks(),
    "fixture": fixture,
    "param": Param,
    "fail": fail,
    "skip": skip,
    "xfail": skip,
    "importorskip": importorskip,
}.items():
    setattr(pytest, _name, _value)
sys.modules["pytest"] = pytest


def run_tests(names: Mapping[str, Any], functions: Sequence[str], classes: Sequence[str]) -> None:
    """Run test functions and classes by name, in order; the first failure ends it, and so does that nothing was run."""
    count = 0
    if not _skips(names.get("pytestmark", ())):
        count += sum(_run(names[name], names) for name in functions)
        count += sum(_run_class(names[name], names) for name in classes)
    if not count:
        fail("no test was run")


def _run_class(group: Any, names: Mapping[str, Any]) -> int:
    """Run the tests of a class, inherited ones too; how many were run."""
    if getattr(group, "is_skipped", False) or not getattr(group, "__test__", True):
        return 0
    if issubclass(group, unittest.TestCase):
        return _run_unittest(group)
    methods = dict.fromkeys(name for base in reversed(group.__mro__) for name in vars(base) if name.startswith("test"))
    _call_hook(group, "setup_class")
    count = 0
    for method in methods:
        instance = group()
        _call_hook(instance, "setup_method")
        own = {name: getattr(instance, name) for name in dir(group) if hasattr(getattr(group, name), "is_fixture")}
        count += _run(getattr(instance, method), {**names, **own})
        _call_hook(instance, "teardown_method")
    _call_hook(group, "teardown_class")
    return count


def _run_unittest(group: type[unittest.TestCase]) -> int:
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(group)
    result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
    trouble = [text for _, text in [*result.failures, *result.errors]]
    if trouble:
        fail(trouble[0][-300:])
    return result.testsRun - len(result.skipped) - len(result.expectedFailures)


def _call_hook(owner: Any, name: str) -> None:
    """Call what a class of tests has to set itself up; some take what they are called for, which is left empty."""
    hook = getattr(owner, name, None)
    if hook is not None:
        hook(*[None] * len(inspect.signature(hook).parameters))


def _run(test: Any, names: Mapping[str, Any]) -> int:
    """Run a test with each set of its parameters; how many of them were run."""
    if getattr(test, "is_skipped", False):
        return 0
    parameters = inspect.signature(test).parameters.values()
    wanted = [one.name for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    return sum(
        _run_once(test, {key: value for row in rows for key, value in row.items()}, wanted, names)
        for rows in itertools.product(*getattr(test, "parameters", []))
    )


def _run_once(test: Any, given: Mapping[str, Any], wanted: Sequence[str], names: Mapping[str, Any]) -> bool:
    """Run a test once; whether it did not skip itself."""
    asked = {key: _fixture(names, key) for key in wanted if key not in given}
    try:
        result = test(**given, **{key: value for key, (value, _) in asked.items()})
        if inspect.isawaitable(result):
            import asyncio  # seldom needed, and large

            asyncio.run(_wait(result))
    except Skipped:
        return False
    for _, rest in asked.values():
        next(rest, None)
    return True


async def _wait(awaitable: Any) -> None:
    await awaitable


def _fixture(names: Mapping[str, Any], name: str) -> tuple[Any, Iterator[Any]]:
    """The value of a fixture, and what remains of it to be run after the test."""
    function = names[name]
    asked = {key: _fixture(names, key)[0] for key in inspect.signature(function).parameters}
    made = function(**asked)
    return (next(made), made) if inspect.isgenerator(made) else (made, iter(()))
