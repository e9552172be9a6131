"""The tests' side: run trusted test code, never the candidate's, and write the verdict to a file of its own."""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any, NoReturn

from roll_core.sandbox.codec import pack
from roll_core.sandbox.inside.channel import Channel
from roll_core.sandbox.inside.counting import (
    CANDIDATE_MODULE,
    FILE_NAME,
    Tally,
    candidate_names,
    imports,
    read_source,
)
from roll_core.sandbox.inside.guards import TextGuard, guard_pickle
from roll_core.sandbox.inside.libraries import checker_names, library_names
from roll_core.sandbox.inside.link import Link
from roll_core.sandbox.inside.program import exit_status, make_module, prepare_interpreter
from roll_core.sandbox.inside.remote_errors import has_crossed, is_remote
from roll_core.sandbox.inside.streams import Streams
from roll_core.sandbox.inside.unittests import watch_unittest

MAX_MESSAGE = 1000
_HERE = "roll_core.sandbox.inside."


def run_trusted_tests(job: dict[str, Any], peer_fd: int, result_fd: int, streams: Streams) -> NoReturn:
    """Run the tests of a job against the candidate at the other end of the socket; write one frame; end the process.

    The frame is `{"outcome": ..., "message": ..., "asserts": ...}` with the outcomes of `sessions.TestOutcome`.
    """
    run = TestRun(job, Link(Channel(peer_fd), copy_back=job["copy_back"]))
    outcome, message = run.outcome()
    verdict = {"outcome": outcome, "message": message[:MAX_MESSAGE], "asserts": run.tally.began}
    os.write(result_fd, pack(verdict))
    streams.leave(0)


class Names(dict[str, Any]):
    """Built-in names for the tests; one of the candidate's that it lacks is noted when the tests look it up."""

    def __init__(self, missing: set[str], guard: TextGuard) -> None:
        super().__init__(vars(builtins), **guard.names())
        self._missing = missing
        self.wanted: str | None = None
        """The first missing name that was looked up."""

    def __missing__(self, name: str) -> Any:
        if name in self._missing and self.wanted is None:
            self.wanted = name
        raise KeyError(name)


class CandidateModule(types.ModuleType):
    """The candidate as a module that tests import."""

    def __init__(self, link: Link) -> None:
        super().__init__(CANDIDATE_MODULE)
        self.__dict__["_roll_link_"] = link
        self.__dict__["_roll_missing_"] = []

    def __getattr__(self, name: str) -> Any:
        link = self.__dict__["_roll_link_"]
        found, value = (False, None) if name.startswith("__") else link.name(name)
        if not found:
            if not name.startswith("__"):
                self.__dict__["_roll_missing_"].append(name)
            raise AttributeError(f"the candidate has no {name!r}")
        link.was_used = True
        return value


class TestRun:
    """One run of trusted tests."""

    __test__ = False  # not a test class for pytest

    def __init__(self, job: dict[str, Any], link: Link) -> None:
        self.tally = Tally()
        self._source: str = job["tests"]
        self._reference: str = job["reference"]
        self._entry_point: str | None = job["entry_point"]
        self._link = link
        self._missing: set[str] = set()
        self._guard = TextGuard(link.fail, lambda: link.has_answered)
        self._names = Names(self._missing, self._guard)
        self._module = CandidateModule(link)
        self._failure: str | None = None
        self._swallowed: list[BaseException] = []
        self._handles_failures = False
        link.on_callback = self._guard_callback
        link.open_assertions = lambda: self.tally.open + self.tally.raised

    def outcome(self) -> tuple[str, str]:
        """Outcome and message."""
        prepare_interpreter()
        module = make_module("__main__", self._source, FILE_NAME)
        try:
            source = read_source(self._source)
            wanted = self._prepare(module)
            code = source.instrumented(wanted)
        except BaseException as error:  # noqa: BLE001  nothing of the candidate has been looked at yet
            return "broken", f"the tests do not stand on their own: {_line(error)}"
        self._handles_failures = source.handles_failures
        if not source.has_assertions:
            return "no_assertion", "the tests hold no assertion"
        try:
            self._connect(module, wanted)
        except BaseException as error:  # noqa: BLE001  the candidate's side did this
            return "error", self._link.fault or _line(error)
        watch_unittest(self._source, self.tally, self._fail)
        guard_pickle(self._source, self._link.fail)
        return self._judge(_run(code, module))

    def _prepare(self, module: types.ModuleType) -> list[str]:
        """Run the trusted reference, bind modules that the tests forgot to import; the names left for the candidate."""
        names = module.__dict__
        if self._reference:
            exec(compile(self._reference, "reference.py", "exec", dont_inherit=True), names)  # noqa: S102  it is trusted
            self._guard.trust(self._reference)
        self._guard.trust(self._source)
        for name, library in library_names(self._source, self._entry_point).items():
            if name not in names:
                names[name] = importlib.import_module(library)
        for name, library in checker_names(self._source, self._entry_point).items():
            if name not in names:
                names[name] = getattr(importlib.import_module(library), name)
        if imports(self._source, CANDIDATE_MODULE):
            sys.modules[CANDIDATE_MODULE] = self._module
        return candidate_names(self._source, names, self._entry_point)

    def _connect(self, module: types.ModuleType, wanted: list[str]) -> None:
        """Wait for the candidate to be loaded and bind its names."""
        if not self._link.wait_until_loaded():
            raise self._link.fail("the candidate does not load")
        for name in wanted:
            found, value = self._link.name(name)
            if found:
                module.__dict__[name] = value
            else:
                self._missing.add(name)
        module.__dict__.update(self.tally.hooks(), __builtins__=self._names)

    def _fail(self, message: str) -> None:
        self._failure = self._failure or message

    def _guard_callback(self, function: Callable[[], Any]) -> Any:
        """Run a function of the tests for the candidate, which must not swallow a failed assertion in it.

        Tests that handle failures may do so only where the failure comes out of the candidate again.
        """
        before = self.tally.open
        try:
            return function()
        except BaseException as error:
            if isinstance(error, AssertionError) and not has_crossed(error):
                self._swallowed.append(error)
            failed = isinstance(error, AssertionError) or self.tally.open > before
            if failed and not is_remote(error) and not self._handles_failures:
                self._fail(f"in a function that the candidate called: {_line(error)}")
            raise

    def _judge(self, end: BaseException | None) -> tuple[str, str]:
        noted = self._noted()
        if noted is not None:
            return noted
        if end is not None and is_remote(end):
            return "error", f"the candidate raised {_line(end)}"
        if end is None or (isinstance(end, SystemExit) and exit_status(end.code) == 0 and not _is_ours(end)):
            return self._finished()
        if not self._was_used:
            return self._unused("broken", f"the tests fail before they use the candidate: {_line(end)}")
        if isinstance(end, AssertionError | SystemExit):
            return "failed", _line(end)
        return "error", f"the tests ended with {_line(end)}"

    def _noted(self) -> tuple[str, str] | None:
        """What was noted beyond the reach of the tests' own handlers."""
        if self._link.fault is not None:
            return "error", self._link.fault
        if self._link.unsupported is not None:
            return "broken", self._link.unsupported
        lost = next((error for error in self._swallowed if not has_crossed(error)), None)
        if lost is not None:
            self._fail(f"in a function that the candidate called: {_line(lost)}")
        if self.tally.caught_own:
            self._fail("a class of the candidate's caught what the tests raised")
        if self._failure is not None:
            return "failed", self._failure
        if self._names.wanted is not None:
            return "error", f"the candidate has no {self._names.wanted!r}"
        return None

    def _unused(self, outcome: str, message: str) -> tuple[str, str]:
        """Tests that used nothing of the candidate's are at fault, unless what they imported was not there."""
        missing: list[str] = self._module.__dict__["_roll_missing_"]
        return ("error", f"the candidate has no {missing[0]!r}") if missing else (outcome, message)

    @property
    def _was_used(self) -> bool:
        return self.tally.used or self._link.was_used

    def _finished(self) -> tuple[str, str]:
        """The outcome of tests that ran to their end."""
        if not self._was_used:
            return self._unused("broken" if self.tally.began else "no_assertion", "the tests never use the candidate")
        if not self.tally.held:
            return "failed", "no assertion held"
        if self.tally.failed and not self._handles_failures:
            return "failed", "an assertion failed, and the tests went on"
        return "passed", ""


def _is_ours(error: BaseException) -> bool:
    """Whether it was raised beneath this package, so not by the tests."""
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return any(name.startswith(_HERE) for name in names[1:])  # the first is `_run`


def _run(code: Any, module: types.ModuleType) -> BaseException | None:
    """Run the tests; what ended them early, shown on standard error."""
    try:
        exec(code, module.__dict__)  # noqa: S102  it is trusted, and the process is locked down
    except BaseException as error:  # noqa: BLE001  how the tests end is the result
        trace = error.__traceback__
        traceback.print_exception(type(error), error, trace and trace.tb_next)
        return error
    return None


def _line(error: BaseException) -> str:
    """Type and message of an exception; the text is the candidate's where the exception is."""
    try:
        return "".join(traceback.format_exception_only(error)).strip()
    except BaseException:  # noqa: BLE001  its text may be asked of a candidate that is gone
        return type(error).__name__
