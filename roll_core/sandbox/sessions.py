"""What is asked about a candidate on top of a run in the jail: the values of calls, and the outcome of tests.

The expected values never enter the candidate's process. Calls are answered with plain data that is compared here;
tests run in a jail of their own, which talks to the candidate's through a socket (`roll_core.sandbox.inside`).
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, final

from roll_core.sandbox.codec import CodecError, Node, decode, encode, pack, unpack
from roll_core.sandbox.same import same
from roll_core.sandbox.types import Ending, Limits, RunResult, SandboxError

if TYPE_CHECKING:
    from roll_core.sandbox.sandbox import Sandbox

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 2
"""How often two jails are tried: the pair is repeated as a whole, as a half has lost its partner."""

MAX_MESSAGE = 1000
"""Characters of a message in a report."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a function of the candidate's."""

    name: str
    """Name of the function; a class before a dot is instantiated without arguments (`Solution.solve`)."""
    args: tuple[Any, ...] = ()
    """Plain data."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Plain data."""


@final
class Returned:
    """What a call gave: a value, or an exception.

    The value is kept as text until it is asked for: parsed, it takes many times the memory, and a run may give many.

    Args:
        node: the value as it crossed, undecoded; None also where there is an error.
        error: name of the exception's type; "UnserialisableError" for a value that is not plain data.
        message: message of the exception.

    Raises:
        CodecError: the node is none that may cross.
    """

    __slots__ = ("_data", "error", "message")

    def __init__(self, node: Node, error: str | None = None, message: str = "") -> None:
        self._data = pack(node)
        self.error = error
        self.message = message

    @property
    def node(self) -> Node:
        """The value as it crossed, undecoded; None also where there is an error."""
        (node,) = unpack(self._data)
        return node

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Returned):
            return NotImplemented
        return (self._data, self.error, self.message) == (other._data, other.error, other.message)

    def __hash__(self) -> int:
        return hash((self._data, self.error, self.message))

    def __repr__(self) -> str:
        shown = self._data[4:84].decode("ascii")
        return f"Returned({shown}, {self.error!r}, {self.message!r})"

    def equals(self, value: Any, *, tolerance: float = 0.0, tuples_as_lists: bool = False) -> bool:
        """Whether the call returned this trusted value; nothing of the candidate's takes part (see `same`).

        Raises:
            TypeError: `value` is not plain data.
        """
        if self.error is not None:
            return False
        return same(self.node, value, tolerance=tolerance, tuples_as_lists=tuples_as_lists)

    def value(self) -> Any:
        """The value, of exact built-in types.

        Raises:
            CodecError: the call raised, or what came is no plain data.
        """
        if self.error is not None:
            raise CodecError(f"the call raised {self.error}: {self.message}")
        return decode(self.node)


def run_calls(
    sandbox: Sandbox, source: str, calls: Sequence[Call], *, limits: Limits
) -> tuple[list[Returned | None], RunResult]:
    """Load a candidate in the jail and call its functions, one after the other in one process.

    Returns:
        What each call gave, None for one that was never answered (the process ended, or the candidate wrote to the
        result file itself); and what became of the run.

    Raises:
        UnserialisableError: an argument is not plain data.
        CodecError: the arguments are too large.
        SandboxError: the jail failed.
    """
    requests = [{"name": call.name, "args": encode(call.args), "kwargs": encode(dict(call.kwargs))} for call in calls]
    run = sandbox.start({"mode": "calls", "source": source, "calls": requests}, limits=limits).wait()
    return _read_answers(run.result, len(calls)), run


def _read_answers(result: bytes, count: int) -> list[Returned | None]:
    """The frames in order; from the first that is out of order or none at all, nothing counts."""
    answers: list[Returned | None] = []
    try:
        for frame in unpack(result):
            if len(answers) == count or type(frame) is not dict or frame.get("i") != len(answers):
                break
            answers.append(_read_answer(frame))
    except CodecError:
        pass  # the candidate wrote there: the calls without an answer stay so
    return answers + [None] * (count - len(answers))


def _read_answer(frame: dict[str, Any]) -> Returned:
    if frame.keys() == {"i", "ok"}:
        return Returned(frame["ok"])
    error = frame.get("error")
    if type(error) is not list or len(error) != 2 or not all(type(part) is str for part in error):
        raise CodecError("an answer without a value")
    return Returned(None, printable(error[0]), printable(error[1]))


def printable(text: str) -> str:
    """The text with control characters, lone surrogates and the like escaped, for a log or a terminal."""
    return "".join(part if part.isprintable() else part.encode("unicode_escape").decode("ascii") for part in text)


class TestOutcome(StrEnum):
    """How tests of a candidate ended."""

    __test__ = False  # not a test class for pytest

    PASSED = "passed"
    """The tests ran to their end; an assertion held, and none that failed was lost."""
    FAILED = "failed"
    """An assertion failed, or none was reached."""
    ERROR = "error"
    """The candidate did not load, lacks a name, raised, died, forged, or gave what cannot be compared safely."""
    TIMEOUT = "timeout"
    """The tests or the candidate used up their time."""
    NO_ASSERTION = "no_assertion"
    """The tests hold no assertion, or never get to one or to the candidate. The task is at fault."""
    BROKEN = "broken"
    """The tests do not parse, fail before they use the candidate, or do what cannot be done across two processes.
    The task is at fault."""


@dataclass(frozen=True, slots=True)
class TestReport:
    """The outcome of tests, and the two runs it comes from."""

    __test__ = False  # not a test class for pytest

    outcome: TestOutcome
    message: str
    asserts: int
    """Assertions that were begun."""
    tests: RunResult
    candidate: RunResult


def run_tests(
    sandbox: Sandbox,
    candidate: str,
    tests: str,
    *,
    reference: str = "",
    entry_point: str | None = None,
    limits: Limits,
    copy_back: bool = False,
) -> TestReport:
    """Run trusted tests in one jail against a candidate in another.

    Args:
        sandbox: makes both jails.
        candidate: untrusted source.
        tests: trusted source with `assert` statements or `unittest` cases. Global names that it uses and does not
            bind, and that are no built-in names, are the candidate's.
        reference: trusted source to run before the tests, in their namespace; no name of the candidate's shadows one
            of it.
        entry_point: name of what the candidate was asked for; needed where it is the name of a built-in (`sum`).
        limits: of each of the two processes.
        copy_back: copy in-place changes of lists, dicts, sets and bytearrays among the arguments of a call back to the
            tests. Off by default: it lets `xs.clear(); return xs` pass `assert f(xs) == sorted(xs)`.

    Raises:
        SandboxError: the jail failed.
    """
    job = {"mode": "tests", "tests": tests, "reference": reference, "entry_point": entry_point, "copy_back": copy_back}
    for _ in range(_ATTEMPTS - 1):
        try:
            return _run_pair(sandbox, candidate, job, limits)
        except SandboxError as error:
            _LOG.warning("the jail failed while it ran tests, so they run again: %s", error)
    return _run_pair(sandbox, candidate, job, limits)


def _run_pair(sandbox: Sandbox, candidate: str, job: dict[str, Any], limits: Limits) -> TestReport:
    """Both jails, at the two ends of one socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with ours, theirs:
        serving = sandbox.start({"mode": "serve", "source": candidate}, limits=limits, peer=theirs)
        try:
            testing = sandbox.start(job, limits=limits, peer=ours)
        except BaseException:
            serving.kill()
            serving.wait()
            raise
    try:
        tested = testing.wait()
    finally:
        serving.kill()
        served = serving.wait()
    outcome, message, asserts = _read_verdict(tested, served)
    return TestReport(outcome, printable(message[:MAX_MESSAGE]), asserts, tested, served)


_TIME = (Ending.CPU, Ending.WALL)


def _read_verdict(tested: RunResult, served: RunResult) -> tuple[TestOutcome, str, int]:
    """Outcome, message and count of assertions; the tests' process never ran a line of the candidate's."""
    if tested.ending in _TIME:
        return TestOutcome.TIMEOUT, f"the tests ran into their {tested.ending.value} limit", 0
    verdict = _frame_of(tested) if tested.is_clean else None
    if verdict is None:
        return TestOutcome.ERROR, f"the tests' process gave no verdict: {_how(tested)}", 0
    outcome, message, asserts = TestOutcome(verdict["outcome"]), verdict["message"], verdict["asserts"]
    if outcome is TestOutcome.ERROR and served.ending in _TIME:
        return TestOutcome.TIMEOUT, f"the candidate ran into its {served.ending.value} limit", asserts
    if outcome is TestOutcome.ERROR and (served.ending is not Ending.KILLED or served.stderr):
        message = f"{message}; the candidate: {_how(served)}"
    return outcome, message, asserts


def _how(run: RunResult) -> str:
    """How a run ended, and the last line of its standard error."""
    parts = [] if run.ending is Ending.KILLED else [run.ending.value]
    parts += [f"exit status {run.exit_code}"] if run.exit_code else []
    parts += [f"signal {run.signal}"] if run.signal else []
    parts += run.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
    return ", ".join(parts)


def _frame_of(tested: RunResult) -> dict[str, Any] | None:
    frames = list(unpack(tested.result))
    return frames[0] if len(frames) == 1 else None
