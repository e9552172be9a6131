from __future__ import annotations

import pytest

from roll_core.plugin.host import Host
from roll_core.testing.cases import find_cases
from roll_core.testing.golden import judge_rows, read_golden
from roll_core.types import Prompt, Status
from roll_verifier_choice.verify import ChoiceVerifier

CITY = {"answer": "B", "choices": ["London", "Paris", "Berlin", "Rome"]}


def judge(response, reference=CITY, **options):
    return ChoiceVerifier(**options).verify(response, reference)


def golden():
    component = next(c for _, _, c in Host.discover(enforce=False).components("verifiers") if c.name == "choice")
    cases = find_cases("verifiers", component)
    return list(judge_rows(component, cases, read_golden(component, cases)))


def test_the_golden_table_comes_out_right():
    judged = [one for one in golden() if not one.row.disputed]
    wrong = [(one.row.id, one.row.response, one.said) for one in judged if one.is_error]
    assert len(judged) >= 400
    assert not [one.row.response for one in judged if one.found and not one.row.expected], "a false positive"
    assert len(wrong) <= 0.01 * len(judged), wrong


@pytest.mark.parametrize(
    ("response", "status", "detail", "answer"),
    [
        ("The answer is B.", Status.CORRECT, "letter", "B"),
        ("The answer is Paris.", Status.CORRECT, "text", "B"),
        ("The answer is B) Paris.", Status.CORRECT, "letter_and_text", "B"),
        ("The answer is C.", Status.INCORRECT, "letter", "C"),
        ("The answer is Rome.", Status.INCORRECT, "text", "D"),
        ("The answer is A or B.", Status.INCORRECT, "hedged", "A,B"),
        ("The answer is not B.", Status.INCORRECT, "negated", "B"),
        ("The answer is B) Rome.", Status.INCORRECT, "contradiction", "B,D"),
        ("The answer is E.", Status.INVALID, "out_of_range", None),
        ("\\boxed{Madrid}", Status.INVALID, "not_an_option", None),
        ("I cannot tell.", Status.INVALID, "no_answer", None),
        ("...", Status.INVALID, "no_answer", None),
        ("<think>B", Status.INVALID, "no_answer", None),
    ],
)
def test_statuses_and_details(response, status, detail, answer):
    verdict = judge(response)
    assert (verdict.status, verdict.detail, verdict.answer) == (status, detail, answer)


@pytest.mark.parametrize(
    "reference",
    [
        None,
        "",
        "Paris",
        "A,C",
        "AC",
        "?",
        1,
        True,
        1.5,
        [],
        ["A", "C"],
        {},
        {"answer": "B", "choices": "London"},
        {"answer": "B", "choices": ["London"]},
        {"answer": "E", "choices": ["London", "Paris"]},
        {"answer": 2, "choices": ["London", "Paris"]},
        {"answer": -1, "choices": ["London", "Paris"]},
        {"answer": "Madrid", "choices": ["London", "Paris"]},
        {"answer": "A", "choices": ["B", "A"]},
        {"answer": "Paris", "choices": ["Paris", "Paris"]},
        {"answer": "A", "choices": {"label": ["A", "A"], "text": ["x", "y"]}},
        {"answer": "A", "choices": {"label": ["A", "B"], "text": ["x"]}},
        {"answer": "A", "choices": {"label": ["A", "2"], "text": ["x", "y"]}},
        {"answer": "A", "choices": [None, "x"]},
        {"answer": None, "choices": ["x", "y"]},
        {"label": "12", "text": "Paris"},
        {"Correct Answer": "x", "Incorrect Answer 1": "y"},
    ],
)
def test_a_broken_reference_is_undecided(reference):
    verdict = judge("The answer is B.", reference)
    assert (verdict.status, verdict.score, verdict.detail) == (Status.UNDECIDED, None, "bad_reference")
    assert verdict.reason


def test_an_index_counts_from_index_base():
    row = {"answer": 1, "choices": ["x", "y", "z"]}
    assert judge("B", row).score == 1.0
    assert judge("A", row, index_base=1).score == 1.0
    assert judge("B", 1, num_options=4).score == 1.0
    assert judge("C", 1, num_options=4).score == 0.0


def test_num_options_bounds_the_letters():
    assert judge("The answer is E.", "B", num_options=4).detail == "out_of_range"
    assert judge("The answer is E.", "B").detail == "letter"
    assert judge("A", "E", num_options=4).detail == "bad_reference"


def test_options_may_come_from_the_prompt():
    prompt = Prompt("1", "quiz", text="…", reference="B", info={"choices": ["London", "Paris"]})
    verifier = ChoiceVerifier()
    assert verifier.verify("Paris", "B", prompt=prompt).score == 1.0
    assert verifier.verify("The answer is C.", "B", prompt=prompt).detail == "out_of_range"
    assert verifier.verify("Paris", 1, prompt=prompt).score == 1.0


def test_extract_says_where_to_look():
    text = "The answer is \\boxed{A}.\n\nOn reflection, the answer is B."
    assert [judge(text, extract=mode).answer for mode in ("auto", "boxed", "last")] == ["B", "A", "B"]
    assert judge("The answer is B.", extract="boxed").detail == "no_answer"
    assert judge("The answer is B.\nThat is all.", extract="last").detail == "no_answer"


def test_multiple_wants_the_exact_set():
    right = [judge(text, "A,C", multiple=True).score for text in ("A, C", "The answer is C and A.", "\\boxed{AC}")]
    wrong = [judge(text, "A,C", multiple=True).score for text in ("A", "A, B, C", "A or C", "B")]
    assert (right, wrong) == ([1.0] * 3, [0.0] * 4)
    assert judge("A, C", ["A", "C"], multiple=True).answer == "A,C"


@pytest.mark.parametrize("options", [{"num_options": 1}, {"num_options": 27}, {"index_base": -1}])
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match="num_options must be"):
        ChoiceVerifier(**options)
