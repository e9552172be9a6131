"""`code`: programs, judged by tests that run in a jail."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from roll_core.errors import ConfigError
from roll_core.sandbox import Level, SandboxError
from roll_core.types import Prompt, Rollout, Verdict
from roll_verifier_code.budget import Budget
from roll_verifier_code.checkers import judge_checked
from roll_verifier_code.completion import complete
from roll_verifier_code.errors import TaskError, nearest, shown
from roll_verifier_code.extract import NoProgramError, extract_code
from roll_verifier_code.formats import normalise
from roll_verifier_code.judges import Program, judge_asserts, judge_calls, judge_stdio
from roll_verifier_code.languages import LANGUAGES, Language, foreign_program
from roll_verifier_code.limits import read_limits
from roll_verifier_code.machines import Machine, package_folders
from roll_verifier_code.outcome import CaseOutcome, broken, no_program, to_verdict
from roll_verifier_code.tasks import AssertTests, CallTests, StdioTests, Tests, read_tests

_log = logging.getLogger(__name__)

_JAIL_S = 30.0
"""Seconds beyond the budget in which a jail is opened and the last run is cleared away, on a busy machine too."""


@dataclass(frozen=True, slots=True)
class CodeVerifier:
    """Runs the program in a response under the tests of its task.

    * `CORRECT`: every case passed.
    * `INCORRECT`: a case failed, was too slow, crashed or went over a limit; the score is 0, or with `partial` the
      fraction of cases passed.
    * `INVALID`: the response holds no program.
    * `ERROR`: the task is broken (no case, tests that do not parse or cannot fail, unknown keys), or the
      sandbox or this package is.

    The detail tells these apart (`roll_verifier_code.outcome`); `outcome_of` reads it.

    Args:
        level: how programs are jailed: "ns" (own namespaces and folder), "landlock" or "seccomp" (neither files to
            write nor, for "seccomp", to read); "auto" takes the strongest that holds on this machine.
        partial: score the fraction of cases passed instead of all or nothing.
        limits: of each run: `time_s` (CPU seconds, 5), `wall_s` (four times that), `mem_mb` (512), `out_kb` (4096),
            `procs` (64), `disk_mb` (64); a row's own limits override them one by one.
        packages: modules that Python programs and tests may import beside the standard library, such as "numpy"; name
            submodules that are to be loaded with it ("numpy.linalg") for the levels without a file system.
        language: what responses are written in; other languages than "python" take tests of whole programs only, and
            need their tools and bubblewrap or nsjail.
        budget_s: seconds of wall clock for all cases of one response; what is not done by then counts as timeout, so
            that no program outlives the deadline of its verdict (`deadline_s`). None sets no bound.
        stop_early: leave out the cases behind one that failed; not with `partial`.
        zygotes: processes that jails are forked from; more than one serves several threads of one process.

    Raises:
        ConfigError: an option does not fit.
    """

    level: Level | Literal["auto"] = "auto"
    partial: bool = False
    limits: Mapping[str, float] = field(default_factory=dict)
    packages: tuple[str, ...] = ()
    language: Language = "python"
    budget_s: float | None = 60.0
    stop_early: bool = False
    zygotes: int = 1

    def __post_init__(self) -> None:
        try:
            read_limits(self.limits)
        except TaskError as error:
            raise ConfigError(str(error)) from error
        if self.budget_s is not None and not (math.isfinite(self.budget_s) and self.budget_s > 0):
            raise ConfigError(f"budget_s must be a positive number of seconds, got {self.budget_s!r}")
        if self.stop_early and self.partial:
            raise ConfigError("stop_early leaves cases out, which partial would have to count; choose one of them")
        package_folders(self.packages)

    @property
    def deadline_s(self) -> float | None:
        """Seconds one verdict may take: the budget, and some for the jail."""
        return None if self.budget_s is None else self.budget_s + _JAIL_S

    def prepare(self) -> None:
        """Open the jail.

        Raises:
            SandboxUnavailableError: no level of it holds on this machine.
        """
        if self.language == "python":
            Machine(self.level, self.packages, self.zygotes).sandbox()

    def verify(
        self,
        response: str,
        reference: Any,
        *,
        prompt: Prompt | None = None,
        rollout: Rollout | None = None,
        limits: Mapping[str, float] | None = None,
        language: str | None = None,
    ) -> Verdict:
        """Judge one response.

        Args:
            response: what the policy wrote: a whole reply, or a plain program.
            reference: the tests: a mapping with a `type`, a row of HumanEval, MBPP, APPS, LiveCodeBench or KodCode, or
                the JSON text of one. `{"tests": ..., "limits": ..., "language": ...}` carries limits along.
            prompt: not looked at.
            rollout: not looked at.
            limits: of each run, where they differ from the verifier's own.
            language: of the response, where it differs from the verifier's own.
        """
        try:
            tests, own_limits, own_language = _read_reference(reference)
            spoken = _language(language or own_language or self.language)
            budget = Budget(read_limits(self.limits, own_limits, limits), self.budget_s, self.stop_early)
            _check_language(tests, spoken)
            code = extract_code(response, spoken)
            return to_verdict(self._judge(code, tests, budget, spoken), code, partial=self.partial)
        except NoProgramError as error:
            return no_program(str(error))
        except TaskError as error:
            return broken(str(error), "task")
        except SandboxError as error:
            return broken(f"the sandbox failed: {error}", "sandbox")
        except Exception as error:  # noqa: BLE001  the boundary: a fault of this package must not end the scoring
            _log.exception("the code verifier failed on a response of %d characters", len(response))
            return broken(f"the verifier failed: {type(error).__name__}: {str(error)[:300]}", "verifier")

    def _judge(self, code: str, tests: Tests, budget: Budget, language: Language) -> list[CaseOutcome]:
        sandbox = Machine(self.level, self.packages, self.zygotes).sandbox()
        if isinstance(tests, CallTests):
            return judge_calls(sandbox, code, tests, budget)
        if isinstance(tests, AssertTests):
            whole = complete(tests.prompt, tests.entry_point, code) if tests.prompt else code
            return judge_asserts(sandbox, whole, tests, budget)

        def program(stdin: bytes, limits: Any) -> Any:
            return sandbox.run(code, stdin=stdin, limits=limits)

        run: Program = program if language == "python" else foreign_program(language, code)
        if isinstance(tests, StdioTests):
            return judge_stdio(run, tests, budget)
        return judge_checked(run, sandbox, tests, budget)


def _read_reference(reference: Any) -> tuple[Tests, Mapping[str, Any] | None, Any]:
    """Tests, and the limits and language that came with them."""
    limits = language = None
    if isinstance(reference, Mapping) and "tests" in reference:
        for key in reference:
            if key not in _WRAPPER:
                raise TaskError(f"reference: unknown key {shown(key)} beside 'tests'{nearest(key, _WRAPPER)}")
        limits, language = reference.get("limits"), reference.get("language")
        reference = reference["tests"]
    return read_tests(normalise(reference)), limits, language


_WRAPPER = ("tests", "limits", "language")


def _language(name: Any) -> Language:
    for language in LANGUAGES:
        if name == language:
            return language
    raise TaskError(f"language must be one of {', '.join(LANGUAGES)}, got {shown(name)}{nearest(name, LANGUAGES)}")


def _check_language(tests: Tests, language: Language) -> None:
    if language != "python" and isinstance(tests, AssertTests | CallTests):
        raise TaskError(f"tests of this type run in Python, not in {language}; use stdio or checker tests")
