r"""Our math verifier and math-verify on the same responses, side by side.

    python benchmarks/verifiers.py DATA_DIR                         # the ordinary traffic
    python benchmarks/verifiers.py DATA_DIR --cases math.jsonl      # and a hard corpus

DATA_DIR holds `gsm8k_test_300.jsonl`, `svamp_600.jsonl`, `math500.jsonl` and `deepmath_200.jsonl`. Every row becomes
one right and one wrong response as models write them: a worked solution that ends in `\boxed{...}` or "The answer is
...", wrong by a changed number or with another row's answer. CASES rows have `gold`, `answer`, `expected`, `form`
(`answer` or `response`) and optionally `disputed`; disputed ones are timed, but count for no accuracy.

Both verify everything in this one process and thread, warm, in alternating rounds. math-verify is called as documented,
`verify(parse(gold), parse(response))` with its defaults, five-second limits included; a bare gold or answer is boxed
first. References come again (in the two responses of a row, and in every round), as they do in a group of rollouts; a
verifier may keep what it read of them. math-verify's time limits need the main thread. Needs `pip install
math-verify==0.9.0` beside roll-verifier-math.

The last line is `ratio ordinary <x> hard <y>`: verifications per second, ours over math-verify's, median over the
rounds, over all ordinary sets together and over the cases (nan without --cases). Ends with status 1 when our side
imported sympy for the ordinary traffic.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from roll_core.types import Status
from roll_verifier_math.verify import MathVerifier

SETS = ("gsm8k_test_300", "svamp_600", "math500", "deepmath_200")
TIME_LIMIT_SUSPECT_S = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One thing to verify."""

    id: str
    text: str
    gold: str
    form: Literal["answer", "response"]
    is_right: bool
    is_disputed: bool = False


Judge = Callable[[Sample], bool]


@dataclass(slots=True)
class Measured:
    """What one verifier did with one data set: seconds of every sample in every round, and its last verdicts."""

    rounds: list[list[float]] = field(default_factory=list)
    accepted: list[bool] = field(default_factory=list)

    def totals(self) -> list[float]:
        """Seconds of each round."""
        return [sum(seconds) for seconds in self.rounds]

    def per_sample(self) -> list[float]:
        """Median seconds of each sample over the rounds."""
        return [statistics.median(seconds) for seconds in zip(*self.rounds, strict=True)]


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def samples_of(rows: list[dict[str, Any]]) -> list[Sample]:
    """One right and one wrong response a row; which form and which fault alternates."""
    found = []
    for index, row in enumerate(rows):
        gold, work = row["answer"], worked(row)
        found.append(Sample(f"{row['id']} right", written(work, gold, index % 2 == 0), gold, "response", is_right=True))
        wrong = perturbed(gold) if index % 4 < 2 else None
        wrong = wrong or other_answer(rows, index)
        response = written(work, wrong, index % 2 == 1)
        found.append(Sample(f"{row['id']} wrong", response, gold, "response", is_right=False))
    return found


def worked(row: Mapping[str, Any]) -> str:
    """A worked solution without its last line: the data set's own one, else the question taken apart."""
    if "solution" in row:
        solution = re.sub(r"<<[^>]*>>", "", row["solution"])
        return str(solution.partition("####")[0].strip())
    numbers = ", ".join(re.findall(r"\d+(?:\.\d+)?", row["question"])[:8])
    return (
        f"Let's go through it step by step.\n\nWe are asked the following: {row['question']}\n\n"
        f"1. Note what is given: {numbers or 'no number'}.\n2. Set up the relation between the quantities.\n"
        "3. Simplify, and check the result by putting it back."
    )


def written(work: str, answer: str, is_boxed: bool) -> str:
    r"""The response: `work`, then the answer in `\boxed{}` or after "The answer is"."""
    if is_boxed:
        return f"{work}\n\nTherefore, the final answer is $\\boxed{{{answer}}}$."
    shown = answer if re.fullmatch(r"[-\d.,]+", answer) else f"${answer}$"
    return f"{work}\n\nThe answer is {shown}."


def perturbed(answer: str) -> str | None:
    """The answer with its first number raised by one; None when it has none."""
    changed = re.sub(r"\d+", lambda digits: str(int(digits[0]) + 1), answer, count=1)
    return changed if changed != answer else None


def other_answer(rows: list[dict[str, Any]], index: int) -> str:
    """The answer of the next row that has another one."""
    following = rows[index + 1 :] + rows[:index]
    return str(next(row["answer"] for row in following if core(row["answer"]) != core(rows[index]["answer"])))


def core(answer: str) -> str:
    """Letters and digits right of the last equals sign: `5`, `x = 5` and `$5$` are no different answers."""
    return re.sub(r"[^0-9A-Za-z]", "", answer.rpartition("=")[2])


def cases_of(rows: list[dict[str, Any]]) -> list[Sample]:
    """The hard corpus as samples."""
    return [
        Sample(row["id"], row["answer"], row["gold"], row["form"], row["expected"], row.get("disputed", False))
        for row in rows
    ]


def our_judge() -> Judge:
    """`MathVerifier`, whole responses or bare answers."""
    verifiers = {"answer": MathVerifier(form="answer"), "response": MathVerifier(form="response")}

    def judge(sample: Sample) -> bool:
        return verifiers[sample.form].verify(sample.text, sample.gold).status is Status.CORRECT

    return judge


def their_judge() -> Judge:
    """math-verify with its documented defaults."""
    try:
        from math_verify import parse, verify
        from math_verify.errors import TimeoutException
    except ImportError as error:
        raise SystemExit(f"{error}: pip install math-verify==0.9.0") from error
    logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it logs every time-out

    def judge(sample: Sample) -> bool:
        text = f"\\boxed{{{sample.text}}}" if sample.form == "answer" else sample.text
        try:
            return bool(verify(parse(f"\\boxed{{{sample.gold}}}"), parse(text)))
        except (Exception, TimeoutException):  # noqa: BLE001 - whatever escapes it is no match, as a caller would have it
            return False

    return judge


def measure(judge: Judge, samples: Iterable[Sample], into: Measured) -> None:
    """Judge every sample once."""
    seconds, accepted = [], []
    for sample in samples:
        started = time.perf_counter()
        accepted.append(judge(sample))
        seconds.append(time.perf_counter() - started)
    into.rounds.append(seconds)
    into.accepted = accepted


def compare(
    judges: Mapping[str, Judge], data: Mapping[str, list[Sample]], rounds: int
) -> dict[str, dict[str, Measured]]:
    """Every judge on every data set, alternating, after one warm-up of 20 samples each."""
    for judge in judges.values():
        measure(judge, [s for samples in data.values() for s in samples[:20]], Measured())
    found = {name: {who: Measured() for who in judges} for name in data}
    for round_ in range(rounds):
        for name, samples in data.items():
            for who, judge in judges.items():
                print(f"round {round_ + 1} of {rounds}: {name}, {who}", file=sys.stderr, flush=True)
                measure(judge, samples, found[name][who])
    return found


def accuracy(samples: list[Sample], accepted: list[bool]) -> str:
    """Share judged as labelled, with the counts of both kinds of error, undisputed samples only."""
    pairs = [(s.is_right, a) for s, a in zip(samples, accepted, strict=True) if not s.is_disputed]
    wrongly_accepted = sum(a and not right for right, a in pairs)
    wrongly_refused = sum(right and not a for right, a in pairs)
    share = 1 - (wrongly_accepted + wrongly_refused) / len(pairs)
    return (
        f"{share:.2%} right (of {len(pairs)}: {wrongly_accepted} wrongly accepted, {wrongly_refused} wrongly refused)"
    )


def report(name: str, samples: list[Sample], found: Mapping[str, Measured]) -> None:
    """Print one data set's figures."""
    for who, measured in found.items():
        rate = len(samples) / statistics.median(measured.totals())
        each = measured.per_sample()
        slowest = max(range(len(samples)), key=each.__getitem__)
        print(
            f"{name} n={len(samples)} {who}: {rate:.0f}/s, {accuracy(samples, measured.accepted)}, "
            f"slowest {each[slowest] * 1000:.1f} ms ({samples[slowest].id})"
        )


def ratio(found: Iterable[Mapping[str, Measured]]) -> float:
    """Verifications per second, ours over theirs, all sets together: the median over the rounds."""
    sets = list(found)
    ours = [sum(each) for each in zip(*(one["ours"].totals() for one in sets), strict=True)]
    theirs = [sum(each) for each in zip(*(one["math-verify"].totals() for one in sets), strict=True)]
    return float(statistics.median(b / a for a, b in zip(ours, theirs, strict=True)))


def ratio_within_limits(found: Mapping[str, Measured]) -> float:
    """The ratio over the samples that neither side took long for, so that no time-out dominates it."""
    pairs = zip(found["ours"].per_sample(), found["math-verify"].per_sample(), strict=True)
    quick = [(a, b) for a, b in pairs if max(a, b) < TIME_LIMIT_SUSPECT_S]
    return sum(b for _, b in quick) / sum(a for a, _ in quick)


def imported_sympy(ordinary: Mapping[str, list[Sample]], judge: Judge) -> bool:
    """Judge the ordinary traffic alone, before math-verify is imported; say which set brings sympy in, if any."""
    for name, samples in ordinary.items():
        for sample in samples:
            judge(sample)
            if "sympy" in sys.modules:
                print(f"sympy imported by ours: yes, first by {name} {sample.id} (reference {sample.gold!r})")
                return True
    print(f"sympy imported by ours: no, in {sum(map(len, ordinary.values()))} ordinary verifications")
    return False


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with the data sets")
    parser.add_argument("--cases", type=Path, help="the hard corpus, a JSON Lines file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, help="take at most so many rows of each data set")
    args = parser.parse_args()
    ordinary = {name: samples_of(read_rows(args.data / f"{name}.jsonl")[: args.rows]) for name in SETS}
    hard = {args.cases.stem: cases_of(read_rows(args.cases)[: args.rows])} if args.cases else {}
    ours = our_judge()
    has_sympy = imported_sympy(ordinary, ours)
    found = compare({"ours": ours, "math-verify": their_judge()}, ordinary | hard, args.rounds)
    for name, samples in (ordinary | hard).items():
        report(name, samples, found[name])
    hard_ratio = math.nan
    for name in hard:
        hard_ratio = ratio([found[name]])
        quick = ratio_within_limits(found[name])
        print(f"{name}: {quick:.1f} times math-verify's rate where both end within {TIME_LIMIT_SUSPECT_S} s")
    print(f"ratio ordinary {ratio(found[name] for name in ordinary):.1f} hard {hard_ratio:.1f}")
    if has_sympy:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
