"""Takes the program out of a model's reply.

The rule: thinking is removed; of the fenced blocks that are left the last one counts, else the whole text. A block
marked as another language, as output or as a shell session is passed over when there is one that is not; so is an
unmarked block without anything like code in it (a sample of the output) behind a block marked with the language.
"""

from __future__ import annotations

import re

from roll_verifier_code.fences import KNOWN_TAGS, LANGUAGE_TAGS, OPENER, Block, BlockReader, TangledError
from roll_verifier_code.strings import StringTracker

MAX_CHARS = 400_000
"""Characters of a reply that are looked at; a longer one holds no answer."""
_TAG = re.compile(r"<(?P<close>/?)think(?:ing)?>", re.IGNORECASE)
_EVENT = re.compile(rf"(?P<think>{_TAG.pattern})|(?P<opener>{OPENER.pattern})", re.IGNORECASE | re.MULTILINE)
_ENDS_THINKING = re.compile(r"^[ \t]*+</think(?:ing)?>", re.IGNORECASE | re.MULTILINE)
_ONE_LINE = re.compile(r"```(?:(?P<tag>[a-z+0-9]++)[ \t]++)?(?P<code>[^`\n]++)```", re.IGNORECASE)
_LOOK_BACK = 300
_QUOTES = frozenset("\"'`\\")
_CODE_LINE = re.compile(
    r"^[^\S\n]*+(?:(?:async[ \t]++)?def\s|class\s|import\s|from[ \t]++\S++[ \t]++import\s"
    r"|(?:if|for|while|with|elif)\s[^:\n]*+:|(?:try|else):"
    r"|return\b|@\w|[\w.\[\], ]++[ \t]*+[-+*/%|&]?=(?!=)|[\w.]++\("
    r"|#include|#!|using\s|function\b|(?:let|const|var)\s|int\s)",
    re.MULTILINE,
)


class NoProgramError(Exception):
    """The reply holds nothing that could be run; the message says why."""


def extract_code(response: str, language: str = "python") -> str:
    """The program in a reply, in `language` ("python", "cpp", "javascript" or "bash").

    Raises:
        NoProgramError: nothing runnable: the reply is too long, is no valid Unicode, or what is left of it is blank.
    """
    if len(response) > MAX_CHARS:
        raise NoProgramError(f"the reply has {len(response)} characters, more than {MAX_CHARS}")
    try:
        blocks, prose = read_reply(response)
        code = _choose(blocks, language, prose).removeprefix("\ufeff")
        code.encode("utf-8")
    except TangledError as error:
        raise NoProgramError(f"the reply cannot be read: {error}") from error
    except UnicodeEncodeError as error:
        raise NoProgramError(f"the program is no valid Unicode: {error.reason}") from error
    comment = "//" if language in ("cpp", "javascript") else "#"
    lines = (line.strip().strip("\u200b\ufeff\x00") for line in code.splitlines())
    if not any(line and not line.startswith(comment) for line in lines):
        raise NoProgramError("the reply holds no program")
    return code


def read_reply(text: str) -> tuple[list[Block], str]:
    """The fenced blocks outside of thinking, and the text without its thinking.

    Thinking that never ends takes the rest with it. A closing tag without an opening one ends thinking that began in
    the prompt: everything before it goes. Tags in quotes or within a block are text of a program, except for a closing
    tag that begins a line. Fences in a docstring of unfenced code open no block.
    """
    blocks: list[Block] = []
    kept: list[str] = []
    reader, strings = BlockReader(text), StringTracker(text)
    start = position = 0  # of the text not yet kept, and of the search
    while event := _EVENT.search(text, position):
        if event["think"] and _is_quoted(text, event):
            position = event.end()
        elif event["think"] and event["close"]:
            blocks, kept = [], []
            start = position = event.end()
            strings.restart(position)
        elif event["think"]:
            kept += [text[start : event.start()], "\n"]
            end = next((tag.end() for tag in _TAG.finditer(text, event.end()) if tag["close"]), None)
            start = position = len(text) if end is None else end
            strings.restart(position)
        elif inside := strings.end_of_string(event.start(), event.end()):
            position = inside
            strings.restart(position)
        else:
            opener = OPENER.search(text, event.start())
            if opener is None:  # the event is such a match itself
                break
            if opener["inline"] and "```" in text[_line_start(text, opener) : opener.start("inline")]:
                position = opener.end()  # the end of code within a line
                continue
            block = reader.read(opener)
            if ended := _ENDS_THINKING.search(text, opener.end(), block.end):
                position = ended.start()
                continue
            blocks.append(block)
            position = max(block.end, opener.end())
            strings.restart(position)
    return blocks, "".join([*kept, text[start:]])


def _line_start(text: str, found: re.Match[str]) -> int:
    """Where the line begins in which a match begins, at most some characters before it."""
    return max(text.rfind("\n", 0, found.start()) + 1, found.start() - _LOOK_BACK)


def _is_quoted(text: str, tag: re.Match[str]) -> bool:
    """Whether a tag stands in a string of a program rather than being a mark of the model's own."""
    line = text[_line_start(text, tag) : tag.start()]
    if not line.strip() or (tag["close"] and line.endswith("```")):  # a fence that closes on the line of the tag
        return False
    if line[-1] in _QUOTES:
        return True
    return bool(tag["close"]) and (_TAG.search(line) is not None or text[tag.end() : tag.end() + 1] in _QUOTES)


def _choose(blocks: list[Block], language: str, prose: str) -> str:
    own = LANGUAGE_TAGS[language]
    if not blocks:
        spans = [m["code"] for m in _ONE_LINE.finditer(prose) if (m["tag"] or "").lower() in own | {""}]
        return spans[-1] if spans and not _CODE_LINE.search(_ONE_LINE.sub("", prose)) else prose
    blocks = [block for block in blocks if block.code.strip()] or blocks
    usable = [b for b in blocks if b.tag in own or b.tag not in KNOWN_TAGS]
    has_own = any(b.tag in own for b in usable)
    while len(usable) > 1 and has_own and usable[-1].tag not in own and not _CODE_LINE.search(usable[-1].code):
        usable.pop()
    chosen = (usable or blocks)[-1]
    if chosen.tag in ("markdown", "md"):  # a whole reply inside a block
        inner, _ = read_reply(chosen.code)
        return inner[-1].code if inner else chosen.code
    return chosen.code
