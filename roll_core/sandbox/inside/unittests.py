"""Count the assertions of `unittest`, and note failures that its result object would keep to itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from roll_core.sandbox.inside.counting import Tally
from roll_core.sandbox.inside.remote_errors import is_remote


def watch_unittest(source: str, tally: Tally, fail: Callable[[str], None]) -> None:
    """Patch `unittest` in this process where the tests mention it.

    Args:
        source: the tests.
        tally: counts calls of `assert...` and `fail` methods, and those that fail.
        fail: called with a line for each test that failed or raised.
    """
    if "unittest" not in source:
        return
    import unittest  # tests that do not use it need not pay for it

    for name in dir(unittest.TestCase):
        if name.startswith("assert"):
            setattr(unittest.TestCase, name, _counted(getattr(unittest.TestCase, name), tally))
    unittest.TestCase.fail = _failing(unittest.TestCase.fail, tally)  # type: ignore[method-assign]  # this process only
    context: Any = unittest.case._BaseTestCaseContext  # the base of what assertRaises returns
    context._raiseFailure = _failing(context._raiseFailure, tally)
    unittest.TestResult.addExpectedFailure = _expected(  # type: ignore[method-assign]  # as above
        unittest.TestResult.addExpectedFailure, tally
    )
    for name in ("addFailure", "addError", "addUnexpectedSuccess"):
        setattr(unittest.TestResult, name, _noted(getattr(unittest.TestResult, name), fail))
    unittest.TestResult.addSubTest = _noted_part(unittest.TestResult.addSubTest, fail)  # type: ignore[method-assign]  # as above


def _counted(method: Callable[..., Any], tally: Tally) -> Callable[..., Any]:
    @functools.wraps(method)
    def counted(*arguments: Any, **keywords: Any) -> Any:
        tally.begin()
        failed = tally.failed
        try:
            result = method(*arguments, **keywords)
        except AssertionError as error:
            if not is_remote(error) and tally.failed == failed:  # else what it called counted it
                tally.failed += 1
            raise
        tally.hold()
        return result

    return counted


def _failing(method: Callable[..., Any], tally: Tally) -> Callable[..., Any]:
    """A method that always raises: its failure counts, whoever catches it."""

    @functools.wraps(method)
    def failing(*arguments: Any, **keywords: Any) -> Any:
        tally.begin()
        tally.failed += 1
        return method(*arguments, **keywords)

    return failing


def _expected(method: Callable[..., Any], tally: Tally) -> Callable[..., Any]:
    """The one failure that ended a test which the tests themselves mark as failing does not count."""

    @functools.wraps(method)
    def expected(self: Any, test: Any, details: Any) -> Any:
        if isinstance(details[1], AssertionError) and not is_remote(details[1]):
            tally.failed -= 1
        return method(self, test, details)

    return expected


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
