"""Fenced code blocks of a model's reply, read more forgivingly than Markdown does.

Beyond CommonMark: a block may be indented as deep as its list needs; a fence inside a Python docstring belongs to the
program; a block that was never closed ends where the next tagged one begins, or with the text; text may stand directly
before an opening fence and directly behind a closing one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from roll_verifier_code.strings import after_strings

OPENER = re.compile(
    r"^(?P<indent>[ \t]*+)(?:(?P<tilde>~{3,}+)|(?P<fence>`{3,}+))[ \t]*+(?P<info>[^\n`]*+)$"
    r"|(?<!`)(?P<inline>`{3,}+)[ \t]*+(?P<tag>[\w+#.-]*+)[ \t]*+$",
    re.MULTILINE,
)
"""A line that opens a block, or one that ends in an opening fence with at most one word behind it."""
_MAX_CHARS = 8_000_000
_MAX_LINES = 60_000
"""Characters and lines of a text that are read, however often; a plain text is read once."""
_STRINGLESS = frozenset({"c", "c++", "cpp", "cc", "javascript", "js", "node", "bash", "sh", "shell"})


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block."""

    tag: str
    """Language word in lower case, without braces and dots; empty where there is none."""
    code: str
    """Its text, without the indentation of the fence."""
    start: int
    """Where its opening fence stands in the text."""
    end: int
    """Where the text goes on behind it."""


class TangledError(ValueError):
    """The fences of a text run through each other so that reading them would take too long."""


class BlockReader:
    """Reads the blocks of one text, for as long as reading them again and again stays within bounds."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._chars = _MAX_CHARS
        self._lines = _MAX_LINES

    def read(self, opener: re.Match[str]) -> Block:
        """The block that a match of `OPENER` begins, up to its closing fence, the next tagged fence, or the end.

        Raises:
            TangledError: too much of the text was read already.
        """
        fence = opener["tilde"] or opener["fence"] or opener["inline"]
        indent = _width(opener["indent"] or "")
        tag = _tag(opener["info"] or opener["tag"] or "")
        start = min(opener.end() + 1, len(self._text))
        body, end = self._find_end(start, fence, indent, has_strings=tag not in _STRINGLESS)
        self._spend(body - start, 0)
        return Block(tag, _dedent(self._text[start:body], indent), opener.start(), end)

    def _spend(self, chars: int, lines: int) -> None:
        self._chars -= chars
        self._lines -= lines
        if self._chars < 0 or self._lines < 0:
            raise TangledError("its code fences are tangled: they open and close each other too often")

    def _find_end(self, start: int, fence: str, indent: int, *, has_strings: bool) -> tuple[int, int]:
        """Where a block's text ends, and where the text behind it begins.

        Only lines that hold the fence, or the delimiter of a triple-quoted string, are looked at.
        """
        text = self._text
        marks = re.compile(f"(?<!{fence[0]}){fence[0]}{{{len(fence)}}}" + ("|\"\"\"|'''" if has_strings else ""))
        passed: tuple[int, int] | None = None
        string = ""
        position = start
        while mark := marks.search(text, position):
            line_start = max(text.rfind("\n", position, mark.start()) + 1, position)
            line_end = text.find("\n", mark.end())
            line_end = len(text) if line_end < 0 else line_end
            self._spend(line_end - position, 1)
            line = text[line_start:line_end]
            rest = _behind_fence(line, fence, indent)
            if rest is not None:
                found = (line_start, line_start if _is_tag(rest) else line_end - len(rest))
                if not string:
                    return found
                passed = passed or found
            elif not string and line.rstrip().endswith(fence) and "#" not in line:
                return line_start + line.rindex(fence), line_end
            if has_strings:
                string = after_strings(line, string)
            position = line_end + 1
        self._spend(len(text) - min(position, len(text)), 0)
        return passed or (len(text), len(text))


def _behind_fence(line: str, fence: str, indent: int) -> str | None:
    """What stands behind the fence that begins a line; None where none does that could close or follow a block."""
    bare = line.lstrip(" \t")
    if not bare.startswith(fence) or _width(line[: len(line) - len(bare)]) >= indent + 4:
        return None
    return bare.lstrip(fence[0])


def _is_tag(rest: str) -> bool:
    """Whether what stands behind a fence makes it an opening one: a single word that names a language."""
    return re.fullmatch(r"[ \t]*\{?\.?[A-Za-z][\w+#-]*\}?[ \t\r]*", rest) is not None and _tag(rest) in KNOWN_TAGS


def _tag(info: str) -> str:
    words = re.split(r"[\s:,={}]+", info.strip().lower().lstrip("{."), maxsplit=1)
    return words[0].strip(".")


def _width(indent: str) -> int:
    return len(indent.expandtabs(4))


def _dedent(code: str, width: int) -> str:
    """Take up to `width` columns of blanks from every line, as Markdown does."""
    return re.sub(rf"^[ \t]{{1,{width}}}", "", code, flags=re.MULTILINE) if width else code


PYTHON_TAGS = frozenset({"python", "py", "python3", "py3", "python2", "ipython", "ipython3", "sage", "cpython", "pypy"})
LANGUAGE_TAGS = {
    "python": PYTHON_TAGS,
    "cpp": frozenset({"cpp", "c++", "cc", "cxx", "c"}),
    "javascript": frozenset({"javascript", "js", "node", "mjs", "nodejs"}),
    "bash": frozenset({"bash", "sh", "shell", "zsh"}),
}
"""Words behind a fence that mean a language this verifier runs."""
_OTHER = """
text txt plaintext plain output out stdout input stdin console terminal cmd powershell ps1 pycon doctest traceback log
json jsonl yaml yml toml ini xml html css csv sql diff patch markdown md latex tex math mermaid java csharp cs go golang
rust rs typescript ts ruby rb php kotlin swift r haskell hs scala perl lua julia bat batch dockerfile makefile
example examples result results
"""
OTHER_TAGS = frozenset(_OTHER.split())
"""Words behind a fence that mean anything but a program in one of those."""
KNOWN_TAGS = OTHER_TAGS.union(*LANGUAGE_TAGS.values())
