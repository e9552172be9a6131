"""Judges output by a trusted function of the task's own (a special judge)."""

from __future__ import annotations

from typing import Any, NamedTuple

from roll_core.sandbox import Limits, Sandbox
from roll_core.sandbox.codec import CodecError
from roll_core.sandbox.sessions import Call, run_calls
from roll_verifier_code.budget import Budget
from roll_verifier_code.endings import outcome_of_end
from roll_verifier_code.errors import TaskError, shown
from roll_verifier_code.judges import Program
from roll_verifier_code.outcome import CaseOutcome
from roll_verifier_code.tasks import CheckedCase, CheckerTests

LIMITS = Limits(cpu_s=10.0, wall_s=20.0, memory_mb=1024)
"""Of one call of a checker; this is what a verdict may take beyond its budget."""
_BUGS = frozenset({"NameError", "ImportError", "ModuleNotFoundError", "NoShare"})
"""What is wrong with a checker that fails so both on an output and on the expected one."""
_ENDED = "Ended"


class _Said(NamedTuple):
    """What a checker gave for an output; without a share, why not."""

    share: float | None
    error: str = ""
    reason: str = ""


def judge_checked(program: Program, sandbox: Sandbox, tests: CheckerTests, budget: Budget) -> list[CaseOutcome]:
    """Run the program once per case, and the checker on what it printed, each in a jail of its own.

    A checker that fails on an output, or returns neither a bool nor a number in [0, 1], gives no credit for it. What a
    program prints must not decide whether it is scored, so only what is wrong with any output is the checker's fault.

    Raises:
        TaskError: the checker cannot be loaded, misses a name or a module, or returns another type for the expected
            output too.
    """

    def judge(index: int, limits: Limits) -> CaseOutcome:
        case = tests.cases[index]
        run = program(case.stdin.encode("utf-8"), limits)
        ended = outcome_of_end(run, limits)
        if ended is not None:
            return ended
        said = _ask(sandbox, tests, case, run.stdout.decode("utf-8", "replace"))
        if said.share is None:
            _confirm(sandbox, tests, case, said)
        share = said.share or 0.0
        if share == 1.0:
            return CaseOutcome("pass", fraction=share, cpu_s=run.cpu_s, level=run.level)
        reason = said.reason or f"the checker gives {share:g}"
        return CaseOutcome("fail", reason, fraction=share, cpu_s=run.cpu_s, level=run.level)

    return list(budget.each(len(tests.cases), judge))


def _ask(sandbox: Sandbox, tests: CheckerTests, case: CheckedCase, output: str) -> _Said:
    args: tuple[Any, ...] = (case.stdin, output, case.expected)[: tests.arguments]
    try:
        answers, run = run_calls(sandbox, tests.checker, [Call("check", args)], limits=LIMITS)
    except CodecError:
        return _Said(None, "TooLarge", "the output is too large for the checker")
    answer = answers[0]
    if answer is None:
        ended = outcome_of_end(run, LIMITS)
        return _Said(None, _ENDED, f"the checker did not return: {ended.reason if ended else 'it ended'}")
    if answer.error is not None:
        return _Said(None, answer.error, f"the checker raised {answer.error}: {answer.message[:200]}")
    try:
        value = answer.value()
    except (CodecError, ArithmeticError, ValueError) as error:
        return _Said(None, "NoValue", f"the checker returned what cannot be read: {str(error)[:200]}")
    if isinstance(value, bool | int | float) and 0 <= value <= 1:
        return _Said(float(value))
    kind = "NotInRange" if isinstance(value, int | float | None) else "NoShare"
    return _Said(None, kind, f"the checker returned {shown(value)}, neither a bool nor a number from 0 to 1")


def _confirm(sandbox: Sandbox, tests: CheckerTests, case: CheckedCase, said: _Said) -> None:
    """Refuse a checker that cannot be loaded, or fails in the same way where nothing is the program's."""
    if said.error == _ENDED:
        probe = f"{tests.checker}\n\ndef __probe__():\n    return True\n"
        answers, _ = run_calls(sandbox, probe, [Call("__probe__", ())], limits=LIMITS)
        if answers[0] is None or answers[0].error is not None:
            raise TaskError(f"the checker cannot be loaded: {said.reason}")
    elif said.error in _BUGS:
        other = _ask(sandbox, tests, case, case.expected or "")
        if other.error in _BUGS:
            expected = "no output" if case.expected is None else "the expected output"
            raise TaskError(f"{said.reason}; and for {expected}: {other.reason}")
