from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.types import Status
from roll_verifier_match import bounded
from roll_verifier_match.exact import ExactVerifier
from roll_verifier_match.pattern import RegexVerifier

EXTRACTS = ["whole", "raw", "last_line", "tag", "boxed"]
SOUP = [
    "a",
    "b",
    "B",
    " ",
    "\n",
    ".",
    "<answer>",
    "</answer>",
    "\\boxed{",
    "}",
    "<think>",
    "</think>",
    " or ",
    "é",
    "e\u0301",
]
soup = st.text(max_size=40) | st.lists(st.sampled_from(SOUP), max_size=12).map("".join)


# --- exact ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "options", "status", "detail"),
    [
        ("Paris", {}, Status.CORRECT, "equal"),
        ("London", {}, Status.INCORRECT, "different"),
        ("x" * 20, {"max_chars": 10}, Status.INCORRECT, "too_long"),
        ("\\boxed{Paris} or \\boxed{London}", {"extract": "boxed"}, Status.INCORRECT, "hedged"),
        ("Paris", {"extract": "tag"}, Status.INVALID, "no_answer"),
        ("...", {"punctuation": "remove"}, Status.INVALID, "no_answer"),
        ("", {}, Status.INVALID, "no_answer"),
        ("<think>Paris", {}, Status.INVALID, "no_answer"),
        ("<think>a</think>Paris", {"extract": "raw"}, Status.INCORRECT, "different"),
    ],
)
def test_exact(response, options, status, detail):
    verdict = ExactVerifier(**options).verify(response, "Paris")
    assert (verdict.status, verdict.detail) == (status, detail)


@pytest.mark.parametrize(
    "reference",
    [None, "", "  ", True, [], ["a"], {"any_of": []}, {"any_of": "a"}, {"any_of": ["a", None]}, {"a": 1}, "x" * 20_000],
)
def test_a_reference_that_cannot_be_met_is_undecided(reference):
    verdict = ExactVerifier().verify("a", reference)
    assert (verdict.status, verdict.score, verdict.detail) == (Status.UNDECIDED, None, "bad_reference")


@pytest.mark.parametrize("options", [{"max_chars": 0}])
def test_exact_refuses_impossible_options(options):
    with pytest.raises(ValueError, match="max_chars"):
        ExactVerifier(**options)


@given(st.text(min_size=1, max_size=30).filter(lambda t: t.strip() and "<" not in t))
def test_exact_is_reflexive(text):
    for options in ({}, {"case": False}, {"whitespace": "collapse"}, {"whitespace": "remove"}, {"unicode": "NFKC"}):
        assert ExactVerifier(**options).verify(text, text).score == 1.0


@given(soup, soup)
def test_exact_is_symmetric_where_both_sides_can_be_references(first, second):
    verifier = ExactVerifier(extract="raw", case=False, whitespace="collapse")
    assert (verifier.verify(first, second).score == 1.0) == (verifier.verify(second, first).score == 1.0)


@settings(max_examples=200)
@given(soup, st.sampled_from(EXTRACTS), st.sampled_from(["keep", "strip", "remove"]))
def test_exact_never_raises_and_always_scores(text, extract, punctuation):
    for reference in ("ab", ["a", "b"]):
        verifier = ExactVerifier(extract=extract, punctuation=punctuation, any_of=True)
        assert verifier.verify(text, reference).score is not None
        assert verifier.verify(text, reference) == verifier.verify(text, reference)


# --- regex ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "reference", "options", "status", "detail"),
    [
        ("ab", "a+b", {}, Status.CORRECT, "match"),
        ("xab", "a+b", {}, Status.INCORRECT, "no_match"),
        ("xab", "a+b", {"mode": "search"}, Status.CORRECT, "match"),
        ("AB", re.compile("ab", re.IGNORECASE), {}, Status.CORRECT, "match"),
        ("ab", None, {"default_pattern": "a."}, Status.CORRECT, "match"),
        (" ab ", "a+b", {"strip": False}, Status.INCORRECT, "no_match"),
        ("a" * 50, "a+", {"max_chars": 10}, Status.INCORRECT, "too_long"),
        ("a" * 60 + "!", "(a|aa)+$", {"timeout_s": 0.05}, Status.INCORRECT, "timeout"),
        ("\\boxed{a}, \\boxed{b}", ".", {"extract": "boxed"}, Status.INCORRECT, "hedged"),
        ("a", ".", {"extract": "boxed"}, Status.INVALID, "no_answer"),
        (" ", ".*", {}, Status.INVALID, "no_answer"),
        ("<think>x</think><b>1</b>", "<think>.+</think><b>.+</b>", {"extract": "raw"}, Status.CORRECT, "match"),
        ("ab", "(", {}, Status.UNDECIDED, "bad_pattern"),
        ("ab", "", {}, Status.UNDECIDED, "bad_pattern"),
        ("ab", None, {}, Status.UNDECIDED, "bad_pattern"),
        ("ab", 5, {}, Status.UNDECIDED, "bad_pattern"),
        ("ab", re.compile(b"ab"), {}, Status.UNDECIDED, "bad_pattern"),
        ("ab", "(" * 5000 + ")" * 5000, {}, Status.UNDECIDED, "bad_pattern"),
        ("ab", "a" * 20_000, {}, Status.UNDECIDED, "bad_pattern"),
    ],
)  # fmt: skip
def test_regex(response, reference, options, status, detail):
    verdict = RegexVerifier(**options).verify(response, reference)
    assert (verdict.status, verdict.detail) == (status, detail)


def test_a_pattern_that_is_slow_on_ordinary_text_is_the_tasks_fault(monkeypatch):
    monkeypatch.setattr(bounded, "_ORDINARY", ("a" * 60 + "!",))
    monkeypatch.setattr(bounded, "_PROBE_S", 0.05)
    verdict = RegexVerifier(timeout_s=0.05).verify("a" * 60 + "?", "(a|aa)+$")
    assert (verdict.status, verdict.detail) == (Status.UNDECIDED, "bad_pattern")


@pytest.mark.parametrize("options", [{"flags": "q"}, {"default_pattern": "("}, {"timeout_s": 0.0}, {"max_chars": 0}])
def test_regex_refuses_impossible_options(options):
    with pytest.raises(ValueError, match=r"flags must|does not compile|must be positive"):
        RegexVerifier(**options)


@settings(max_examples=200, deadline=None)
@given(soup, st.sampled_from([r"a+", r"(a|b)*c", r"(?=.*b)a.*", r"(a)\1", r"\w+\s\w+"]), st.sampled_from(EXTRACTS))
def test_regex_never_raises_and_always_scores(text, pattern, extract):
    for mode in ("full", "search"):
        assert RegexVerifier(mode=mode, extract=extract).verify(text, pattern).score is not None


@given(st.from_regex(r"[a-c]{1,3}-\d{2}", fullmatch=True))
def test_regex_accepts_what_its_pattern_makes(text):
    assert RegexVerifier().verify(text, r"[a-c]{1,3}-[0-9]{2}|[a-c]{1,3}-\d{2}").score == 1.0


@pytest.mark.parametrize(
    "unit", ["a", "\\boxed{", "\\boxed{a}", "<answer>", "<answer>a</answer>", " ", "<think>", "\n"]
)
def test_a_megabyte_takes_no_time(unit):
    text = unit * (1_000_000 // len(unit))
    started = time.perf_counter()
    for extract in EXTRACTS:
        ExactVerifier(extract=extract, punctuation="strip").verify(text, "a")
        RegexVerifier(extract=extract, timeout_s=0.1).verify(text, "(a|aa)+$")
    assert time.perf_counter() - started < 20
