"""The tests of a task: what they may hold, and how they are read.

Tests are a mapping with a `type`; rows of known data sets are turned into one by `formats.normalise`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roll_verifier_code.asserts import check_arguments, check_asserts
from roll_verifier_code.compare import Compare, comparison
from roll_verifier_code.errors import TaskError, check_keys, nearest, shown
from roll_verifier_code.pytest_style import with_runner


@dataclass(frozen=True, slots=True)
class StdioCase:
    """What a program reads and what it should print."""

    stdin: str
    stdout: str


@dataclass(frozen=True, slots=True)
class StdioTests:
    """Runs of a whole program."""

    cases: tuple[StdioCase, ...]
    compare: Compare


@dataclass(frozen=True, slots=True)
class CheckedCase:
    """What a program reads, and what its judge is told beside."""

    stdin: str
    expected: str | None


@dataclass(frozen=True, slots=True)
class CheckerTests:
    """Runs of a whole program, judged by a trusted function."""

    cases: tuple[CheckedCase, ...]
    checker: str
    """Source of the judge, with a function `check(stdin, stdout[, expected])` that returns a bool or a fraction."""
    arguments: int
    """How many arguments `check` takes, 2 or 3."""


@dataclass(frozen=True, slots=True)
class CallCase:
    """A call, and the values it may return."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    expected: tuple[Any, ...]
    """Any one of them is right."""
    tolerance: float


@dataclass(frozen=True, slots=True)
class CallTests:
    """Calls of one function."""

    function: str
    """Its name; "Class.method" is a method of a fresh instance."""
    cases: tuple[CallCase, ...]


@dataclass(frozen=True, slots=True)
class AssertTests:
    """Trusted test code with `assert` statements."""

    code: str
    reference: str
    prompt: str
    """Source that the answer continues; empty where the answer stands by itself."""
    entry_point: str
    in_place: bool
    """Whether changes that the program makes to its arguments are seen by the tests."""


Tests = StdioTests | CheckerTests | CallTests | AssertTests


def read_tests(tests: Mapping[str, Any]) -> Tests:
    """Read tests of one of the types "stdio", "asserts", "calls" and "checker".

    Raises:
        TaskError: they are broken: an unknown type or key, no case, test code without an assert.
    """
    kind = tests.get("type")
    if not isinstance(kind, str) or kind not in _READERS:
        known = ", ".join(map(repr, _READERS))
        raise TaskError(f"tests: 'type' must be one of {known}, got {shown(kind)}{nearest(kind, _READERS)}")
    return _READERS[kind](tests)


def _stdio(tests: Mapping[str, Any]) -> StdioTests:
    check_keys(tests, ("type", "cases", "compare"), "tests")
    cases = []
    for number, case in enumerate(_cases(tests, ("stdin", "stdout")), 1):
        cases.append(StdioCase(_text(case, "stdin", number), _text(case, "stdout", number)))
    return StdioTests(tuple(cases), comparison(tests.get("compare", "tokens")))


def _checker(tests: Mapping[str, Any]) -> CheckerTests:
    check_keys(tests, ("type", "cases", "checker"), "tests")
    checker = tests.get("checker")
    if not isinstance(checker, str):
        raise TaskError(f"tests: 'checker' must be Python source, got {type(checker).__name__}")
    arguments = check_arguments(checker)
    cases = []
    for number, case in enumerate(_cases(tests, ("stdin", "stdout")), 1):
        expected = _text(case, "stdout", number) if case.get("stdout") is not None else None
        cases.append(CheckedCase(_text(case, "stdin", number), expected))
    return CheckerTests(tuple(cases), checker, arguments)


def _calls(tests: Mapping[str, Any]) -> CallTests:
    check_keys(tests, ("type", "function", "cases", "tolerance"), "tests")
    function = tests.get("function")
    if not (isinstance(function, str) and all(part.isidentifier() for part in function.split("."))):
        raise TaskError(f"tests: 'function' must be a name, got {shown(function)}")
    tolerance = tests.get("tolerance", 0.0)
    cases = []
    for number, case in enumerate(_cases(tests, ("args", "kwargs", "expected", "any_of", "tolerance")), 1):
        cases.append(_call_case(case, number, tolerance))
    return CallTests(function, tuple(cases))


def _call_case(case: Mapping[str, Any], number: int, tolerance: Any) -> CallCase:
    args, kwargs = case.get("args", ()), case.get("kwargs", {})
    tolerance = case.get("tolerance", tolerance)
    if not isinstance(args, list | tuple) or not isinstance(kwargs, Mapping):
        raise TaskError(f"case {number}: 'args' must be a list and 'kwargs' a mapping")
    if ("expected" in case) == ("any_of" in case):
        raise TaskError(f"case {number}: needs either 'expected' or 'any_of'")
    expected = case["any_of"] if "any_of" in case else [case["expected"]]
    if not isinstance(expected, list | tuple) or not expected:
        raise TaskError(f"case {number}: 'any_of' must be a list of values")
    if (
        isinstance(tolerance, bool)
        or not isinstance(tolerance, int | float)
        or not 0 <= tolerance <= sys.float_info.max
    ):
        raise TaskError(f"case {number}: 'tolerance' must be a number from 0, got {shown(tolerance)}")
    return CallCase(tuple(args), dict(kwargs), tuple(expected), float(tolerance))


def _asserts(tests: Mapping[str, Any]) -> AssertTests:
    known = ("type", "code", "reference", "entry_point", "prompt", "in_place")
    check_keys(tests, known, "tests")
    texts = {key: tests.get(key) or "" for key in known[1:5]}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise TaskError(f"tests: '{key}' must be text, got {type(text).__name__}")
    if texts["prompt"] and not texts["entry_point"]:
        raise TaskError("tests: a 'prompt' needs the 'entry_point' that it begins")
    texts["code"] = with_runner(texts["code"])
    check_asserts(texts["code"], texts["reference"])
    return AssertTests(in_place=bool(tests.get("in_place")), **texts)


_READERS: dict[str, Callable[[Mapping[str, Any]], Tests]] = {
    "stdio": _stdio,
    "asserts": _asserts,
    "calls": _calls,
    "checker": _checker,
}


def _cases(tests: Mapping[str, Any], keys: tuple[str, ...]) -> Sequence[Mapping[str, Any]]:
    cases = tests.get("cases")
    if not isinstance(cases, list | tuple):
        raise TaskError(f"tests: 'cases' must be a list, got {type(cases).__name__}")
    if not cases:
        raise TaskError("tests: there is no case; an answer cannot pass nothing")
    for number, case in enumerate(cases, 1):
        if not isinstance(case, Mapping):
            raise TaskError(f"case {number} must be a mapping, got {type(case).__name__}")
        for key in ("stdin_python", "stdout_python", "stdin_template"):
            if key in case:
                raise TaskError(f"case {number}: '{key}' must be expanded to text before; a verifier evaluates nothing")
        check_keys(case, keys, f"case {number}")
    return cases


def _text(case: Mapping[str, Any], key: str, number: int) -> str:
    text = case.get(key)
    if not isinstance(text, str):
        raise TaskError(f"case {number}: '{key}' must be text, got {type(text).__name__}")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TaskError(f"case {number}: '{key}' is no valid Unicode: {error.reason}") from error
    return text
