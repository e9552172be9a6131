"""`punctuation:*`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from roll_verifier_instructions.base import Constraint, Finding

_COMMA = re.compile("[,،߸፣᠂᠈⸲⸴⹁⹌⹎⹏、﹐﹑，､꓾꘍꛵՝]|(?<=\\w)‚(?=\\s)")


@dataclass(frozen=True)
class NoComma(Constraint):
    """No comma of any script, in numbers and code too.

    The German opening quote "‚" is none, unless it stands where a comma would: behind a word, before a blank.

    Deviates: the official checker knows the ASCII comma alone, so that "،", "、" and "，" get through.
    """

    id = "punctuation:no_comma"

    def _check(self, text: str) -> Finding:
        found = _COMMA.search(text)
        if found is None:
            return Finding(True, "no comma")
        return Finding(False, f"comma in {text[max(0, found.start() - 20) : found.end() + 10]!r}")
