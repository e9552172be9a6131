"""Examples for the conformance kit of `roll_core.testing`; nothing in a run imports this."""

from __future__ import annotations

from roll_core.testing.cases import VerifierCases

CONFORMANCE = {
    "verifiers/math": VerifierCases(
        gold=[
            ("The total is 12 + 30, so the answer is \\boxed{42}.", "42"),
            ("\\boxed{0.75}", "\\frac{3}{4}"),
            ("\\boxed{(x+1)^2}", "x^2+2x+1"),
            ("\\boxed{x<3}", "(-\\infty,3)"),
            ("So the answer is (B).", "B"),
            ("\\boxed{4 July 1776}", "\\text{July 4, 1776}"),
            ("\\boxed{x\\equiv 10\\pmod 7}", "x\\equiv 3\\pmod 7"),
        ],
        wrong=[
            ("\\boxed{41}", "42"),
            ("\\boxed{42} or \\boxed{43}", "42"),
            ("\\boxed{0.7}", "\\frac{3}{4}"),
            ("\\boxed{(x-1)^2}", "x^2+2x+1"),
            ("\\boxed{x\\le 3}", "(-\\infty,3)"),
            ("<think>\\boxed{42}</think> I cannot tell.", "42"),
            ("The answer is not 42.", "42"),
            ("\\boxed{42\\text{ kg}}", "42\\text{ g}"),
            ("\\boxed{9^{9^{9^{9}}}}", "42"),
        ],
        golden="golden.jsonl",
    )
}
