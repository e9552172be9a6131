"""What became of a program under its tests, and how a verdict says it.

The detail of a verdict is one line: the outcome, then `key=value` pairs parted by blanks, always in this order:

    fail cause=candidate fraction=0.666666667 level=ns

* outcome: `pass`, `fail` (ran, wrong result), `timeout` (CPU or wall clock), `error` (exception, exit status, signal,
  memory, output or disk limit, refused operation, no program); cases that differ make `fail`.
* `cause`: `candidate`, or for an `error` without a score `task` (the tests are broken), `sandbox` (the machinery) or
  `verifier` (a fault of this package).
* `fraction`: of the cases passed, nine digits; `level`: how the program was jailed.

The reason is a sentence for people that ends in `(cases=timeout,pass*2 cpu_s=2.013)`: the outcome of each case in
order, `*n` for n in a row, left out where that is too long; and the CPU seconds of all runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, cast, get_args

from roll_core.types import Verdict
from roll_verifier_code.printable import escape_code, escape_line

Word = Literal["pass", "fail", "timeout", "error"]
Cause = Literal["candidate", "task", "sandbox", "verifier"]

_CASES_LIMIT = 1000
_END = re.compile(r"\((?:cases=(?P<cases>\S+) )?cpu_s=(?P<cpu>\d+(?:\.\d+)?)\)$")
_WORDS = get_args(Word)
_CAUSES = get_args(Cause)


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """What became of one case."""

    word: Word
    reason: str = ""
    """Why it is no pass; may quote the program."""
    fraction: float | None = None
    """Share of the case that is right, where a checker gives one; None stands for 1 or 0."""
    cpu_s: float = 0.0
    level: str = ""

    @property
    def share(self) -> float:
        """Share of the case that is right."""
        return float(self.word == "pass") if self.fraction is None else self.fraction


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a program, or why that cannot be said."""

    outcome: Word
    cause: Cause = "candidate"
    fraction: float | None = None
    """Share of cases passed; None where there is no score."""
    level: str = ""
    cpu_s: float = 0.0
    cases: tuple[Word, ...] = ()

    def detail(self) -> str:
        """The line that stands in a verdict."""
        pairs = [self.outcome, f"cause={self.cause}"]
        if self.fraction is not None:
            pairs.append(f"fraction={self.fraction:.9g}")
        if self.level:
            pairs.append(f"level={self.level}")
        return " ".join(pairs)

    def end(self) -> str:
        """What the reason of a verdict ends in."""
        runs = ((word, len(list(run))) for word, run in groupby(self.cases))
        cases = ",".join(word if count == 1 else f"{word}*{count}" for word, count in runs)
        return f"({f'cases={cases} ' if 0 < len(cases) <= _CASES_LIMIT else ''}cpu_s={self.cpu_s:.3f})"


def outcome_of(verdict: Verdict) -> Outcome:
    """Read the outcome back from a verdict of the code verifier.

    Raises:
        ValueError: the detail is not one that this verifier writes.
    """
    word, *pairs = verdict.detail.split(" ")
    values = dict(pair.partition("=")[::2] for pair in pairs)
    cause = values.get("cause")
    if word not in _WORDS or cause not in _CAUSES:
        raise ValueError(f"{verdict.detail!r:.100} is no detail of the code verifier")
    end = _END.search(verdict.reason)
    return Outcome(
        cast(Word, word),
        cast(Cause, cause),
        fraction=float(values["fraction"]) if "fraction" in values else None,
        level=values.get("level", ""),
        cpu_s=float(end["cpu"]) if end else 0.0,
        cases=_read_cases(end["cases"] or "") if end else (),
    )


def _read_cases(text: str) -> tuple[Word, ...]:
    cases: list[Word] = []
    for run in filter(None, text.split(",")):
        word, _, count = run.partition("*")
        if word not in _WORDS or not (count or "1").isdecimal():
            raise ValueError(f"{run!r:.60} is no outcome of cases")
        cases += [cast(Word, word)] * int(count or 1)
    return tuple(cases)


def combine(cases: Sequence[CaseOutcome]) -> Outcome:
    """The outcome of a whole answer: that of its cases where they agree, else `fail`."""
    words = tuple(case.word for case in cases)
    return Outcome(
        words[0] if len(set(words)) == 1 else "fail",
        fraction=sum(case.share for case in cases) / len(cases),
        level=next((case.level for case in cases if case.level), ""),
        cpu_s=sum(case.cpu_s for case in cases),
        cases=words,
    )


def to_verdict(cases: Sequence[CaseOutcome], code: str, *, partial: bool) -> Verdict:
    """The verdict on `code`: its score is 1 or 0, or with `partial` the fraction of cases passed."""
    found = combine(cases)
    code = escape_code(code)
    if found.outcome == "pass":
        return Verdict.correct(code, detail=found.detail(), reason=f"all cases passed {found.end()}")
    number, first = next((n, case) for n, case in enumerate(cases, 1) if case.word != "pass")
    passed = found.cases.count("pass")
    why = escape_line(first.reason[:500]) or first.word
    reason = f"{passed} of {len(cases)} cases passed; case {number}: {why} {found.end()}"
    score = min(found.fraction or 0.0, 1.0 - 1e-9) if partial else 0.0
    return Verdict.incorrect(code, score=score, detail=found.detail(), reason=reason)


def no_program(reason: str) -> Verdict:
    """The verdict on a reply without a program."""
    found = Outcome("error", fraction=0.0)
    return Verdict.invalid(f"{escape_line(reason)} {found.end()}", detail=found.detail())


def broken(reason: str, cause: Literal["task", "sandbox", "verifier"]) -> Verdict:
    """The verdict where no score can be given."""
    return Verdict.error(escape_line(reason), detail=Outcome("error", cause).detail())
