"""`language:response_language`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from roll_verifier_instructions.base import Constraint, Finding, as_text, nearest
from roll_verifier_instructions.language import judge_language
from roll_verifier_instructions.scripts import LANGUAGES


def _as_language(value: Any) -> str:
    code = as_text(value).lower()
    if code not in LANGUAGES:
        known = nearest(code, LANGUAGES) or f"; known are {', '.join(sorted(LANGUAGES))}"
        raise ValueError(f"must be a known ISO 639-1 code{known}")
    return code


@dataclass(frozen=True)
class ResponseLanguage(Constraint):
    """The whole response is in the language (ISO 639-1 code), by `language.judge_language`.

    Deviates: the official checker is random on short texts, does not see an English introduction to a text in another
    language, and counts the constraint as followed when its detector raises (digits only).
    """

    id = "language:response_language"
    language: Annotated[str, _as_language]

    def _check(self, text: str) -> Finding:
        return judge_language(text, self.language)
