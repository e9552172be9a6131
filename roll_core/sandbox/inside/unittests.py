"""Count the assertions of `unittest`, and note failures that its result object would keep to itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from roll_core.sandbox.inside.counting import Tally


def watch_unittest(source: str, tally: Tally, fail: Callable[[str], None]) -> None:
    """Patch `unittest` in this process where the tests mention it.

    Args:
        source: the tests.
        tally: counts calls of `assert...` methods.
        fail: called with a line for each test that failed or raised.
    """
    if "unittest" not in source:
        return
    import unittest  # tests that do not use it need not pay for it

    for name in dir(unittest.TestCase):
        if name.startswith("assert"):
            setattr(unittest.TestCase, name, _counted(getattr(unittest.TestCase, name), tally))
    for name in ("addFailure", "addError", "addUnexpectedSuccess"):
        setattr(unittest.TestResult, name, _noted(getattr(unittest.TestResult, name), fail))
    unittest.TestResult.addSubTest = _noted_part(unittest.TestResult.addSubTest, fail)  # type: ignore[method-assign]  # as above


def _counted(method: Callable[..., Any], tally: Tally) -> Callable[..., Any]:
    @functools.wraps(method)
    def counted(*arguments: Any, **keywords: Any) -> Any:
        tally.begin()
        result = method(*arguments, **keywords)
        tally.hold()
        return result

    return counted


def _noted(method: Callable[..., Any], fail: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def noted(self: Any, test: Any, *details: Any) -> Any:
        what = f"{type(details[0][1]).__name__}: {details[0][1]}" if details else "passed against expectation"
        fail(f"{test}: {what}")
        return method(self, test, *details)

    return noted


def _noted_part(method: Callable[..., Any], fail: Callable[[str], None]) -> Callable[..., Any]:
    @functools.wraps(method)
    def noted(self: Any, test: Any, subtest: Any, outcome: Any) -> Any:
        if outcome is not None:
            fail(f"{subtest}: {type(outcome[1]).__name__}: {outcome[1]}")
        return method(self, test, subtest, outcome)

    return noted
