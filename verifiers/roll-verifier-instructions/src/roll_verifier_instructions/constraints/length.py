"""`length_constraints:*`: words, sentences and paragraphs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from roll_verifier_instructions.base import (
    BrokenTaskError,
    Constraint,
    Count,
    Finding,
    Position,
    Relation,
    Text,
    compare,
)
from roll_verifier_instructions.sentences import count_sentences
from roll_verifier_instructions.text import fold, has_words, phrase_pattern, words

_DIVIDER = re.compile(r"(?<![^\s\"“])\*\*\*(?![^\s\"”])")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+")


@dataclass(frozen=True)
class NumberWords(Constraint):
    r"""The response has at least, or less than, `num_words` words as `text.words` counts them.

    "don't", "well-known", "3.14", "1,000" and "U.S.A." are one word each; punctuation, markup and emoji are none.

    Deviates: the official checker counts matches of `\w+`: two for "don't" and "3.14", several for one Hindi word, one
    for a lone underscore.
    """

    id = "length_constraints:number_words"
    judges_repetition = True
    num_words: Count
    relation: Relation

    def _check(self, text: str) -> Finding:
        return compare(len(words(text)), self.relation, self.num_words, "words")


@dataclass(frozen=True)
class NumberSentences(Constraint):
    """The response has at least, or less than, `num_sentences` sentences as `sentences.count_sentences` counts them.

    Deviates: the official checker needs a downloaded model, counts list numbers ("1.") and splits behind abbreviations
    and initials that the model does not know; it joins a heading or an unpunctuated paragraph to what follows.
    """

    id = "length_constraints:number_sentences"
    judges_repetition = True
    num_sentences: Count
    relation: Relation

    def _check(self, text: str) -> Finding:
        return compare(count_sentences(text), self.relation, self.num_sentences, "sentences")


@dataclass(frozen=True)
class NumberParagraphs(Constraint):
    """The response has exactly `num_paragraphs` paragraphs between dividers `***`, each with a letter or digit.

    A divider is three asterisks between blanks or line ends. One at the very beginning or end is ignored; an empty
    paragraph between two dividers breaks the constraint.

    Deviates: the official checker also splits at `***bold italic***` and inside of `******`, and takes a paragraph of
    punctuation.
    """

    id = "length_constraints:number_paragraphs"
    num_paragraphs: Count

    def _check(self, text: str) -> Finding:
        parts = _DIVIDER.split(text)
        is_outer_blank = [not part.strip(' \t\n"“”') for part in (parts[0], parts[-1])]
        if len(parts) > 1 and is_outer_blank[1]:
            parts.pop()
        if len(parts) > 1 and is_outer_blank[0]:
            parts.pop(0)
        if not all(map(has_words, parts)):
            return Finding(False, "a paragraph is empty")
        return Finding(len(parts) == self.num_paragraphs, f"{len(parts)} paragraphs, wanted {self.num_paragraphs}")


@dataclass(frozen=True)
class NthParagraphFirstWord(Constraint):
    """There are exactly `num_paragraphs` blocks between blank lines, and the nth begins with the word `first_word`.

    Any number of blank lines (also with spaces in them) is one border; every block counts, a title too. Quotes,
    brackets, `#`, `>` and emphasis before the word do not matter, nor its case; "President's" begins with "president",
    "presidential" and "weekend-long" (for "weekend") do not.

    Deviates: the official checker leaves blank blocks out of its count and then looks at the nth block with them in,
    does not see a blank line with spaces, and refuses `**Weekend**`, “Weekend” and "Weekend: …".
    """

    id = "length_constraints:nth_paragraph_first_word"
    num_paragraphs: Position
    nth_paragraph: Position
    first_word: Text

    def __post_init__(self) -> None:
        if self.nth_paragraph > self.num_paragraphs:
            raise BrokenTaskError(
                f"'{self.id}' asks for paragraph {self.nth_paragraph} of {self.num_paragraphs}: it cannot be followed"
            )

    def _check(self, text: str) -> Finding:
        blocks = [block for block in _BLANK_LINES.split(text.strip()) if block.strip()]
        if len(blocks) != self.num_paragraphs:
            return Finding(False, f"{len(blocks)} paragraphs, wanted {self.num_paragraphs}")
        start = fold(blocks[self.nth_paragraph - 1][:1000]).lstrip(" \t\n\"'«([{#>*\x00¿¡-–—•")
        found = phrase_pattern(self.first_word).match(start)
        is_first = found is not None and re.match(r"[-‐‑]\w", start[found.end() :]) is None
        return Finding(is_first, f"paragraph {self.nth_paragraph} begins with {start[:30]!r}")
