"""Answers that a response announces: "The answer is ...", "Answer: ...", "#### ...", `<answer>` tags."""

from __future__ import annotations

import re

from roll_verifier_math.bounds import MAX_ANSWER_CHARS

_MARKER = re.compile(
    r"(?:answers?|(?<=correct )(?:option|choice|letter)|(?<=right )(?:option|choice))\b[\s*_]*(?:\d\s*(?=[:.]))?"
    r"(?:(?:to|of|for|in)\s[^.:=\n]{1,60}?\s*)?(?:\*\*)?\s*"
    r"(?P<verb>(?:is|are|(?:must|should|will|would) be|comes out to)\b\s*:?|=|:|：|[-–—]\s|\*\*|$|\n)"
    r"|solutions?\s+(?:is|are)\s*:?(?=\s*(?:[$\\({\[\d-]|[a-z]\s*=))|(?<!\w)(?:答案|最终答案)\s*(?P<sign>[:：是为])|#{3,}\s",
    re.IGNORECASE,
)
_SIGNS = ("answer", "solution", "option", "choice", "letter", "答案", "###")
_LEAD = " \t\r\n*:：=_"
_ADVERBS = re.compile(
    r"^(?:(?:therefore|thus|then|hence|simply|just|exactly|clearly|indeed|also|now|finally|equal to|given by)\b,?\s*)+",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"(?:not\b|n't\b|neither\b|never\b|hardly\b|unlikely\b|anything but\b|far from\b|other than\b|different from\b|"
    r"unclear|unknown|undetermined)",
    re.IGNORECASE,
)
_POINTING = re.compile(r"\b(?:this|that|above|an?|any|each|every|previous)\s+(?:final\s+)?$", re.IGNORECASE)
"""Before "answer": the sentence speaks about an answer that was given elsewhere."""
_PICKED = re.compile(
    r"(?:pick|choose|select|go(?:ing)? with)\s+(?:the\s+)?(?:option|choice|answer|letter)?\s*[*(]*([A-J])[*)]*[.!]?\s*$"
)
_END = re.compile(r"(?<!\.m)(?<!\.e)(?<!\.g)\.(?=\s|$|\*\*|<\|)|[!?](?=\s|$)|。|\n|<\|")
_FORMULA = re.compile(r"\$\$.*?\$\$|(?<!\\)\$(?:\\.|[^$\n\\])*\$|\\\(.*?\\\)|\\\[.*?\\\]", re.DOTALL)
_REMARK = re.compile(
    r"\s*\((?:i\.e\.|that is|which is|about|approximately|or about|equivalently|in [a-z]+)[^()]*\)\s*$", re.IGNORECASE
)
_TAIL = re.compile(
    r",?\s+(?:because|since|as|so|which|where|i\.e\.?|that is|namely|after|obtained|by|as required|not|but not|"
    r"rather than|instead of|when rounded|in total|altogether)(?:\s.*)?$",
    re.DOTALL | re.IGNORECASE,
)
_SECOND_THOUGHT = re.compile(
    r"\s*(?:or|alternatively|maybe|perhaps|possibly|otherwise|on second thoughts?|no\b|wait|actually|hmm|sorry|"
    r"correction|hold on|scratch that)\b[^.\n]*",
    re.IGNORECASE,
)
_COPULA = re.compile(r"^.*(?:\b(?:is|are|equals|be)\b|=)\s*:?\s*", re.DOTALL | re.IGNORECASE)
_PROSE = re.compile(r"(?:[A-Za-z]{2,}[\s,]+){2,}|[A-Z][a-z]+\s+[$\\(]")
_VALUE = re.compile(r"\$[^$\n]+\$|\\\(.+?\\\)|(?<![\w.])-?\$?\d[\d,]*(?:\.\d+)?(?:/\d+)?%?")
_OPEN = re.compile(
    r"\b(?:or|between|least|most|more|less|fewer|not|maybe|perhaps|either|neither|about|than)\b", re.IGNORECASE
)
_MOST_MARKERS = 40


def announced(text: str) -> str | None:
    """The answer that the last announcement gives; None without one, "" when the only ones are denials."""
    tagged = _tagged(text)
    if tagged is not None:
        return tagged
    is_denied = False
    for begin in _markers(text):
        rest = _ADVERBS.sub("", text[begin : begin + 2 * MAX_ANSWER_CHARS].lstrip(_LEAD))
        if _NEGATED.match(rest) or _is_question(rest):
            is_denied = True
        elif rest and (answer := _sentence(rest)):
            return answer
    if picked := _PICKED.search(text[-80:]):
        return picked[1]
    return "" if is_denied else None


def _is_question(rest: str) -> bool:
    return rest[_sentence_end(rest) :].startswith("?")


def _tagged(text: str) -> str | None:
    if "</answer>" not in text:
        return None
    pieces = text.split("</answer>")[:-1]
    if not pieces or "<answer>" not in pieces[-1]:
        return None
    found = [pieces[-1].rpartition("<answer>")[2].strip()]
    for after, piece in zip(reversed(pieces), reversed(pieces[:-1]), strict=False):
        if after.partition("<answer>")[0].strip() or "<answer>" not in piece:
            break
        found.insert(0, piece.rpartition("<answer>")[2].strip())
    distinct = list(dict.fromkeys(found))
    if len(distinct) > 1:
        return ", ".join(distinct)
    return announced(distinct[0]) or distinct[0]


def _markers(text: str) -> list[int]:
    """Where announcements end, the last one first."""
    lowered = text.lower()
    if len(lowered) != len(text):  # a few letters have no single lower-case letter
        lowered = text
    found = []
    for sign in _SIGNS:
        position = len(lowered)
        for _ in range(_MOST_MARKERS):
            position = lowered.rfind(sign, 0, position)
            if position < 0:
                break
            match = _MARKER.match(text, position)
            if match and not _POINTING.search(text[max(0, position - 24) : position]):
                found.append(match.end())
    return sorted(found, reverse=True)


def _sentence(rest: str) -> str:
    """The announced answer: the rest of its sentence, without what only explains it."""
    end = _sentence_end(rest)
    answer, following = rest[:end], rest[end + 1 :]
    if hedge := _SECOND_THOUGHT.match(following):
        return f"{answer.strip()} or {hedge[0].strip()}"
    answer = _TAIL.sub("", _REMARK.sub("", answer)).strip().strip("*_").strip()
    if answer.endswith("\\]") and "\\[" not in answer:
        answer = answer[:-2].strip()
    return shortened(answer)


def _sentence_end(rest: str) -> int:
    position = 0
    while True:
        end = _END.search(rest, position)
        formula = _FORMULA.search(rest, position)
        if end is None:
            return len(rest)
        if formula is None or formula.start() > end.start():
            return end.start()
        position = formula.end()


def shortened(answer: str) -> str:
    """What a sentence says: "The largest n is 34" says 34. Anything else stays as it is."""
    if not _PROSE.match(answer) or _OPEN.search(answer):
        return answer
    said = _COPULA.sub("", answer, count=1)
    if said and said != answer:
        return said
    values = _VALUE.findall(answer)
    numbers = [value for value in values if any(character.isdigit() for character in value)]
    return numbers[0] if len(numbers) == 1 else answer
