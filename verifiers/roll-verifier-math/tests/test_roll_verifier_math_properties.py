from __future__ import annotations

import json
import re
import time
from fractions import Fraction
from importlib.resources import files

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roll_verifier_math.verify import MathVerifier, judge

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def is_right(gold: str, answer: str) -> bool:
    return judge(gold, answer).score == 1.0


# --- formulas, written in two ways ------------------------------------------------------------------------------------

leaves = st.one_of(
    st.integers(0, 30).map(lambda n: (str(n), str(n))),
    st.sampled_from([("x", "x"), ("y", "y"), ("\\pi", "pi"), ("a_1", "a_{1}"), ("\\sqrt{2}", "sqrt(2)")]),
)


def combined(inner):
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(lambda p: (f"{p[0][0]}+{p[1][0]}", f"({p[1][1]}) + ({p[0][1]})")),
        pair.map(lambda p: (f"({p[0][0]})({p[1][0]})", f"({p[1][1]})*({p[0][1]})")),
        pair.map(lambda p: (f"\\frac{{{p[0][0]}}}{{1+({p[1][0]})^2}}", f"({p[0][1]})/(({p[1][1]})^2 + 1)")),
        inner.map(lambda p: (f"-({p[0]})", f"0-({p[1]})")),
        inner.map(lambda p: (f"\\sin({p[0]})", f"sin({p[1]})")),
        inner.map(lambda p: (f"({p[0]})^{{3}}", f"({p[1]})*({p[1]})^2")),
    )


formulas = st.recursive(leaves, combined, max_leaves=6)


@QUICK
@given(formulas)
def test_two_spellings_are_equal_both_ways(pair):
    latex, plain = pair
    assert is_right(latex, plain), (latex, plain, judge(latex, plain))
    assert is_right(plain, latex)


@QUICK
@given(formulas, formulas)
def test_comparison_is_symmetric(one, two):
    assert is_right(one[0], two[1]) == is_right(two[1], one[0])


@QUICK
@given(formulas)
def test_one_more_is_never_equal(pair):
    assert not is_right(pair[0], f"({pair[1]})+1")


@given(st.fractions(max_denominator=10**6))
def test_fractions_are_exact(value):
    shown = f"\\frac{{{value.numerator}}}{{{value.denominator}}}"
    assert is_right(shown, f"{value.numerator}/{value.denominator}")
    assert not is_right(shown, f"{value.numerator + 1}/{value.denominator}")


@given(st.integers(-(10**9), 10**9), st.integers(0, 6))
def test_decimals_are_exact(mantissa, places):
    value = Fraction(mantissa, 10**places)
    text = f"{mantissa / 10**places:.{places}f}" if abs(mantissa) < 10**9 else str(mantissa)
    if Fraction(text) == value:
        assert is_right(f"{value.numerator}/{value.denominator}", text)


WRAPPERS = ["${}$", "\\({}\\)", "**{}**", " {} ", "{}.", "\\boxed{{{}}}", "\\text{{{}}}", "\\displaystyle {}", "`{}`"]


@given(st.sampled_from(["5", "-3", "\\frac{1}{2}", "x+1", "(1,2)"]), st.sampled_from(WRAPPERS))
def test_wrappers_do_not_matter(answer, wrapper):
    if wrapper != "\\text{{{}}}" or "\\" not in answer:
        assert is_right(answer, wrapper.format(answer))


@given(st.permutations(["1", "\\sqrt{2}", "x"]))
def test_order_matters_in_tuples_only(order):
    one, two = ["1", "\\sqrt{2}", "x"], list(order)
    assert is_right(", ".join(one), ", ".join(two))
    assert is_right("\\{" + ", ".join(one) + "\\}", "\\{" + ", ".join(two) + "\\}")
    assert is_right("(" + ", ".join(one) + ")", "(" + ", ".join(two) + ")") == (one == two)


# --- whatever is thrown at it -----------------------------------------------------------------------------------------

PIECES = [
    "\\frac", "{", "}", "(", ")", "[", "]", "1", "23", "x", "y'", "^", "_", "+", "-", "*", "/", "\\sqrt", "\\pm", "|",
    "=", "<", "\\le", ",", ";", " and ", " or ", "\\cup", "\\{", "\\}", "\\infty", "\\sin", "\\log", "!", "%",
    "\\text{a}",
    "\\boxed{", "$", "\\begin{pmatrix}", "\\end{pmatrix}", "&", "\\\\", "f(", "\\pmod", ":", "^\\circ", "e", "i", "0.5",
    "\\in", "\\setminus", "\\mathbb{R}", "\\binom", "\\emptyset", " ",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.sampled_from(["5", "x", "(1,2)", "x<3", ""]))
def test_never_raises_on_formula_soup(text, other):
    for gold, answer in ((other, text), (text, other)):
        verdict = MathVerifier(form="answer").verify(answer, gold)
        assert verdict.status != "error"
    if text.strip():
        assert judge(text, text).score == 1.0 or judge(text, text).status == "invalid"


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_never_raises_on_text(text):
    MathVerifier().verify(text, "5")
    MathVerifier(form="answer").verify("5", text)


TOKENS = re.compile(r"\\[A-Za-z]+|\d+|[A-Za-z]+|\s+|.", re.DOTALL)
ROWS = [json.loads(line) for line in (files("roll_verifier_math") / "golden.jsonl").read_text("utf-8").splitlines()]
TEXTS = sorted({text for row in ROWS for text in (row["reference"], row["response"]) if 0 < len(text) < 120})
SIMPLE = [
    "5",
    "x",
    "(1,2)",
    "x>3",
    "\\{1,2\\}",
    "x=5",
    "\\text{yes}",
    "B",
    "5\\text{ cm}",
    "x^2+C",
    "\\sqrt{2}",
    "O(n)",
    "\\infty",
    "12:30",
    "101_2",
    "x\\equiv 1\\pmod 3",
    "50\\%",
    "2+3i",
    "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
    "July 4",
]


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(TEXTS), st.sampled_from(TEXTS), st.integers(0, 40), st.integers(0, 40), st.sampled_from(SIMPLE))
def test_whatever_an_answer_is_made_of_it_is_scored(one, two, cut, width, gold):
    left, right = TOKENS.findall(one), TOKENS.findall(two)
    text = "".join(left[:cut] + right[cut : cut + width] + left[cut:])
    for verifier in (MathVerifier(form="answer", prove=False), MathVerifier(prove=False)):
        assert verifier.verify(text, gold).status.is_scored
        verifier.verify(gold, text)


BOMBS = {
    "tower": "10^{10^{10}}",
    "plain tower": "9**9**9**9",
    "factorial": "2000000!",
    "nested fractions": "5\\frac{" * 40 + "x" + "}{x}" * 40,
    "roots": "\\sqrt" * 300 + "2",
    "signs": "-" * 900 + "5",
    "brackets": "(" * 2000 + "5" + ")" * 2000,
    "percent": "5" + "%" * 900,
    "slashes": "1" + "/2" * 300,
    "large argument": "\\sin(\\pi^{100000})",
    "exponentials": "e^{e^{e^{10}}}",
    "long set": "\\{" + ",".join(f"\\sqrt{{{n}}}" for n in range(2, 200)) + "\\}",
    "expansion": "((a+b+c+d)^{12})^{12}",
    "digits": "9" * 100_000,
    "boxes": "\\boxed{" * 500,
    "dollars": "$" * 100_000,
    "openings": "\\(" * 50_000,
    "tags": "<answer>" * 20_000,
    "megabyte": "answer is 1 " * 90_000,
    "factorials": "+".join(f"{n}!" for n in range(4900, 5000)),
    "binomials": "+".join(f"\\binom{{{n}}}{{{n // 2}}}" for n in range(4900, 4990)),
    "functions": "f(" * 20 + "(a+b+c+d+e)^{9}" + ")" * 20,
    "signs of both kinds": "\\pm" * 40 + "1",
    "list of formulas": ",".join(f"\\sqrt{{{n}}}+\\sin{n}" for n in range(2, 52)),
    "sines": "\\sin(" * 24 + "x" + ")" * 24,
    "units": "5" + " cm" * 300,
    "words": "five " * 390,
    "spaces": "5" + " " * 1900 + "6",
    "dots": "." * 1900,
    "roots of roots": "\\sqrt{2+" * 40 + "2" + "}" * 40,
    "denominators": "+".join(f"\\frac{{1}}{{{n}^{{4000}}}}" for n in range(101, 130)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_time_is_bounded(name):
    judge("\\sqrt{2}", "2^{1/2}")  # libraries are loaded
    started = time.process_time()
    for gold in ("5", "\\sqrt{2}", "\\{1,\\sqrt{2}\\}"):
        assert MathVerifier(form="answer").verify(BOMBS[name], gold).score == 0.0
        assert MathVerifier().verify(BOMBS[name], gold).status.is_scored
        assert MathVerifier(form="answer").verify(gold, BOMBS[name]).score != 1.0
    assert time.process_time() - started < 10.0
