"""The 25 constraint types by their IFEval ids."""

from __future__ import annotations

from roll_verifier_instructions.base import BrokenTaskError, Constraint, nearest
from roll_verifier_instructions.constraints import (
    case,
    combination,
    content,
    formats,
    keywords,
    length,
    punctuation,
    response_language,
    startend,
)

CONSTRAINTS: dict[str, type[Constraint]] = {
    constraint.id: constraint
    for constraint in (
        case.CapitalWordFrequency,
        case.EnglishCapital,
        case.EnglishLowercase,
        combination.RepeatPrompt,
        combination.TwoResponses,
        content.NumberPlaceholders,
        content.Postscript,
        formats.ConstrainedResponse,
        formats.HighlightedSections,
        formats.JsonFormat,
        formats.MultipleSections,
        formats.NumberBulletLists,
        formats.Title,
        keywords.ForbiddenWords,
        keywords.KeywordFrequency,
        keywords.KeywordsExist,
        keywords.LetterFrequency,
        length.NthParagraphFirstWord,
        length.NumberParagraphs,
        length.NumberSentences,
        length.NumberWords,
        punctuation.NoComma,
        response_language.ResponseLanguage,
        startend.EndChecker,
        startend.Quotation,
    )
}


def constraint_type(instruction_id: str) -> type[Constraint]:
    """The class of an id.

    Raises:
        BrokenTaskError: there is no such id; the message names near ones.
    """
    try:
        return CONSTRAINTS[instruction_id]
    except KeyError:
        known = nearest(instruction_id, CONSTRAINTS) or f"; known are {', '.join(sorted(CONSTRAINTS))}"
        raise BrokenTaskError(f"no instruction has the id '{instruction_id}'{known}") from None
