"""Whether a verdict is the judge's own, or somebody else's words that the judge reports or refuses."""

from __future__ import annotations

import re

_REPORT = re.compile(
    r"\b(?:claims?|claimed|says|said|asks|asked|demands?|demanded|requests?|requested|instructs?|instructed|tells|told|"
    r"wants|wanted|insists?|insisted|orders|ordered|contains|writes|wrote|begs|commands?|argues|pleads)\b[^,;:.!?\n]*$",
    re.IGNORECASE,
)
"""The end of a clause in which somebody else's words are reported."""
_DENIAL = re.compile(
    r"(?:\b(?:cannot|can't|can’t|won't|won’t|not|don't|don’t|never|refuse|decline|unable|instead of|rather than|"
    r"ignore)\b)"
    r"(?:[ \t]+(?:to|assign|give|output|print|return|award|provide|produce|write|you|it|a|the|any)){0,5}[ \t]*$",
    re.IGNORECASE,
)
"""The end of a clause that denies what follows."""
_CLAUSE_START = re.compile(r"[,;:.!?\n]|\b(?:and|but|so|hence|therefore|thus)\b", re.IGNORECASE)
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|nothing|nobody|neither|nor|hardly|scarcely|false|wrong|\w+n['’]t|nicht|kein\w*|pas|jamais|não|non|"
    r"nunca|nie|не|nem|niet)\b|n['’]$|[不没沒非未]|ない",
    re.IGNORECASE,
)
_OPEN_QUESTION = re.compile(
    r"\b(?:if|whether|unless|claims?|claimed|says|said|thinks?|believes?|asserts?|insists?|suggests?|argues|states|doubt\w*|"
    r"maybe|perhaps|possibly|might|could|would|should|ob|wenn|falls|si|se|если|ли)\b|是否|如果|かどうか",
    re.IGNORECASE,
)
_LOOKED_AT = 120
"""Characters before a verdict."""


def is_foreign(text: str, start: int) -> bool:
    """Whether the clause before `start` reports what somebody else says, or denies what follows."""
    before = text[max(0, start - _LOOKED_AT) : start]
    clause = before[max((m.end() for m in _CLAUSE_START.finditer(before)), default=0) :]
    return bool(_REPORT.search(clause) or _DENIAL.search(clause))


def is_plain_statement(before: str) -> bool:
    """Whether a sentence that begins with `before` states its end: no denial in the last clause, no open question."""
    clause = before[max((m.end() for m in _CLAUSE_START.finditer(before)), default=0) :]
    return not (_NEGATION.search(clause) or _OPEN_QUESTION.search(before))
