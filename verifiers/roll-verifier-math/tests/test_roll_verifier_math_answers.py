from __future__ import annotations

import pytest

from roll_verifier_math.answers.announced import announced, shortened
from roll_verifier_math.answers.boxes import last_boxes
from roll_verifier_math.answers.extract import extract
from roll_verifier_math.answers.fallback import last_value


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        (r"\boxed{1}", ["1"]),
        (r"\boxed {\frac{1}{2}} and more", [r"\frac{1}{2}"]),
        (r"\boxed5", ["5"]),
        (r"\fbox{5} \framebox{6}", ["5", "6"]),
        (r"\boxed{\boxed{8}}", [r"\boxed{8}"]),
        (r"\boxed{1}, \boxed{2} and $\boxed{3}$", ["1", "2", "3"]),
        (r"x=\boxed{1} or x=\boxed{2}", ["1", "2"]),
        (r"\boxed{5} / \boxed{7}", ["5", "7"]),
        (r"If n is even, \boxed{5}; if n is odd, \boxed{7}.", ["5", "7"]),
        (r"\boxed{5}. That was a slip; it is \boxed{7}", ["7"]),
        (r"First \boxed{5}. Hence \boxed{7}", ["7"]),
        (r"I got \boxed{5}, but the correct answer is \boxed{7}", ["7"]),
        (r"\boxed{5}, but it might be \boxed{7}", ["5", "7"]),
        (r"\boxed{1\}", ["1\\"]),
        (r"\boxed{1", []),
        (r"\boxed{\{1,2\}", []),
        (r"It is not \boxed{5}", []),
        (r"\boxed{5} is wrong.", []),
        ("no box", None),
    ],
)
def test_boxes(text, texts):
    row = last_boxes(text)
    assert (None if row is None else list(row.texts)) == texts


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 5.", "5"),
        ("The answer is $x + 1$.", "$x + 1$"),
        ("The answer is $\\$18.90$.", "$\\$18.90$"),
        ("Answer: 3:30 p.m. today", "3:30 p.m. today"),
        ("**Answer:** 5", "5"),
        ("### Final Answer\n\n5", "5"),
        ("#### 18", "18"),
        ("The correct option is (B).", "(B)"),
        ("答案是5。", "5"),
        ("The answer is therefore 5", "5"),
        ("The answer is 5, since 2+3=5.", "5"),
        ("The answer is 5 (i.e. five).", "5"),
        ("The answer is 5. Or 6.", "5 or Or 6"),
        ("The answer is 6. The answer is not 5.", "6"),
        ("The answer is not 5.", ""),
        ("Is the answer is 5?", ""),
        ("This answer is nice.", None),
        ("<answer>5</answer>", "5"),
        ("<answer>The answer is 5.</answer>", "5"),
        ("<answer>5</answer> <answer>6</answer>", "5, 6"),
        ("I would pick option B", "B"),
        ("Final Answer: The largest $n$ is 34.", "34"),
        ("nothing said", None),
    ],
)
def test_announcements(text, answer):
    assert announced(text) == answer


@pytest.mark.parametrize(
    ("sentence", "said"),
    [
        ("The largest n is 34", "34"),
        ("Jane started growing it 3 hours ago", "3"),
        ("Jane needs 3 or 4 hours", "Jane needs 3 or 4 hours"),
        ("5 apples", "5 apples"),
        ("the largest prime", "the largest prime"),
    ],
)
def test_sentences_are_shortened_to_what_they_say(sentence, said):
    assert shortened(sentence) == said


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("So we get 2 + 3 = 5.", "5"),
        ("It costs $1,234.50.", "$1,234.50"),
        ("The probability is \\frac{1}{3}.", "\\frac{1}{3}"),
        ("Hence $x = 5$ as required.", "x = 5"),
        ("7, 8", "7, 8"),
        ("The roots are 7 and 8.", "7 and 8"),
        ("It is 5, not 6.", "5"),
        ("I think it's 5 but it could be 6.", None),
        ("It is 5 or 6.", None),
        ("Is it 7?", None),
        ("I give up after 5 attempts.", None),
        ("We have 9 candidates. I cannot decide.", None),
        ("Yes", "Yes"),
        ("", None),
    ],
)
def test_the_last_value_counts_when_it_is_meant(text, value):
    assert last_value(text) == value


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("<think>\\boxed{41}</think> The answer is 42.", "42"),
        ("<think>\\boxed{41}", None),
        ("<think>" + "x" * 300_000 + " \\boxed{5}", None),
        ("<thinking>41</thinking>42", "42"),
        ("The answer is 42<|im_end|>", "42"),
        ("The answer is 42</s>\n", "42"),
        ("\\boxed{?} is asked for. The answer is 5.", "5"),
        ("\\boxed{}", None),
        ("Answer: \\boxed{}", None),
    ],
)
def test_extraction(response, text):
    found = extract(response, "auto")
    assert (None if found is None else found.text) == text
