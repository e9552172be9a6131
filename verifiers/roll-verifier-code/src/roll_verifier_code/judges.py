"""Runs a program under each kind of tests. Expected values stay on this side of the jail."""

from __future__ import annotations

import re
from collections.abc import Callable

from roll_core.sandbox import Limits, RunResult, Sandbox
from roll_core.sandbox.codec import CodecError, UnserialisableError
from roll_core.sandbox.sessions import Call, Returned, TestOutcome, run_calls, run_tests
from roll_verifier_code.budget import Budget
from roll_verifier_code.endings import outcome_of_end
from roll_verifier_code.errors import TaskError
from roll_verifier_code.outcome import CaseOutcome, Word
from roll_verifier_code.tasks import AssertTests, CallCase, CallTests, StdioTests

Program = Callable[[bytes, Limits], RunResult]
"""Runs the whole program once, on this standard input."""

_WORDS: dict[TestOutcome, Word] = {
    TestOutcome.PASSED: "pass",
    TestOutcome.FAILED: "fail",
    TestOutcome.ERROR: "error",
    TestOutcome.TIMEOUT: "timeout",
}


def judge_stdio(program: Program, tests: StdioTests, budget: Budget) -> list[CaseOutcome]:
    """Run the program once per case; a case passes when its output is equal and its end is clean."""

    def judge(index: int, limits: Limits) -> CaseOutcome:
        case = tests.cases[index]
        run = program(case.stdin.encode("utf-8"), limits)
        ended = outcome_of_end(run, limits)
        if ended is not None:
            return ended
        if tests.compare(run.stdout, case.stdout):
            return CaseOutcome("pass", cpu_s=run.cpu_s, level=run.level)
        return CaseOutcome("fail", f"printed {_shown(run.stdout)}", cpu_s=run.cpu_s, level=run.level)

    return list(budget.each(len(tests.cases), judge))


def _shown(output: bytes) -> str:
    text = output[:400].decode("utf-8", "replace")
    return f"{text[:80]!r}{'...' if len(output) > 80 else ''}"


def judge_calls(sandbox: Sandbox, code: str, tests: CallTests, budget: Budget) -> list[CaseOutcome]:
    """Do the calls in one process; one that ends the process is followed by a fresh one for the rest."""
    outcomes: list[CaseOutcome] = []
    function = _qualified(code, tests.function)
    while len(outcomes) < len(tests.cases):
        limits = budget.next_run()
        rest = tests.cases[len(outcomes) :]
        if limits is None:
            outcomes += [CaseOutcome("timeout", "not run: the time for all cases together was used up")] * len(rest)
            break
        calls = [Call(function, case.args, case.kwargs) for case in rest]
        try:
            answers, run = run_calls(sandbox, code, calls, limits=limits)
        except (UnserialisableError, CodecError) as error:
            raise TaskError(f"the arguments of a call cannot cross into the jail: {error}") from error
        outcomes += _judge_answers(rest, answers, run, limits)
        if budget.stop_early and outcomes[-1].word != "pass":
            break
    if budget.stop_early:
        failed = next((n for n, one in enumerate(outcomes, 1) if one.word != "pass"), len(outcomes))
        del outcomes[failed:]
    return outcomes


def _qualified(code: str, function: str) -> str:
    """The name to call: a method of class `Solution`, as some data sets ask, where the program has no such function."""
    has_function = re.search(rf"^(?:(?:async[ \t]+)?def[ \t]+{function}\b|{function}[ \t]*=)", code, re.MULTILINE)
    if "." in function or has_function or not re.search(r"^class[ \t]+Solution\b", code, re.MULTILINE):
        return function
    return f"Solution.{function}"


def _judge_answers(
    cases: tuple[CallCase, ...], answers: list[Returned | None], run: RunResult, limits: Limits
) -> list[CaseOutcome]:
    """Outcomes of the calls that were answered, and of the one that ended the process."""
    outcomes: list[CaseOutcome] = []
    for case, answer in zip(cases, answers, strict=True):
        if answer is None:
            died = CaseOutcome("error", "the program ended before it returned")
            outcomes.append(outcome_of_end(run, limits) or died)
            break
        outcomes.append(_judge_answer(case, answer))
    last = outcomes[-1]
    outcomes[-1] = CaseOutcome(last.word, last.reason, cpu_s=run.cpu_s, level=run.level)
    return outcomes


def _judge_answer(case: CallCase, answer: Returned) -> CaseOutcome:
    if answer.error is not None:
        return CaseOutcome("error", f"{answer.error}: {answer.message[:200]}")
    try:
        is_right = any(answer.equals(value, tolerance=case.tolerance, tuples_as_lists=True) for value in case.expected)
    except TypeError as error:
        raise TaskError(str(error)) from error
    if is_right:
        return CaseOutcome("pass")
    return CaseOutcome("fail", "another value was returned")


def judge_asserts(sandbox: Sandbox, code: str, tests: AssertTests, budget: Budget) -> list[CaseOutcome]:
    """Run the tests in a jail of their own, the program in another: one case, passed or not.

    Raises:
        TaskError: the tests fail by themselves, or never come to an assertion or to the program.
    """
    report = run_tests(
        sandbox,
        code,
        tests.code,
        reference=tests.reference,
        entry_point=tests.entry_point or None,
        limits=budget.limits,
        copy_back=tests.in_place,
    )
    if report.outcome not in _WORDS:
        raise TaskError(f"the tests are broken: {report.message[:300]}")
    ran = report.candidate
    return [CaseOutcome(_WORDS[report.outcome], report.message[:300], cpu_s=ran.cpu_s, level=ran.level)]
