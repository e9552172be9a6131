"""Fenced code blocks of a model's reply, read more forgivingly than Markdown does.

Beyond CommonMark: a block may be indented as deep as its list needs; a fence inside a Python docstring belongs to the
program; a block that was never closed ends where the next tagged one begins, or with the text; text may stand directly
before an opening fence and directly behind a closing one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

OPENER = re.compile(
    r"^(?P<indent>[ \t]*)(?:(?P<tilde>~{3,})|(?P<fence>`{3,}))[ \t]*(?P<info>[^\n`]*)$"
    r"|(?P<inline>`{3,})[ \t]*(?P<tag>[\w+#.-]*)[ \t]*$",
    re.MULTILINE,
)
"""A line that opens a block, or one that ends in an opening fence with at most one word behind it."""
_TOKEN = re.compile(r"\"\"\"|'''|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|#.*")
_MAX_LINE = 20_000
"""Longer lines are not searched for strings."""
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


def read_block(text: str, opener: re.Match[str]) -> Block:
    """The block that a match of `OPENER` begins, up to its closing fence, the next tagged fence, or the end."""
    fence = opener["tilde"] or opener["fence"] or opener["inline"]
    indent = _width(opener["indent"] or "")
    tag = _tag(opener["info"] or opener["tag"] or "")
    start = min(opener.end() + 1, len(text))
    body, end = _find_end(text, start, fence, indent, has_strings=tag not in _STRINGLESS)
    return Block(tag, _dedent(text[start:body], indent), opener.start(), end)


def _find_end(text: str, start: int, fence: str, indent: int, *, has_strings: bool) -> tuple[int, int]:
    """Where a block's text ends, and where the text behind it begins."""
    closing = re.compile(rf"^(?P<indent>[ \t]*){fence}{fence[0]}*(?P<rest>[^\n]*)$")
    passed: tuple[int, int] | None = None
    string = ""
    position = start
    while position < len(text):
        line_end = text.find("\n", position)
        line_end = len(text) if line_end < 0 else line_end
        line = text[position:line_end]
        found = closing.match(line) if fence in line else None
        if found is not None and _width(found["indent"]) < indent + 4:
            is_next = _is_tag(found["rest"])
            end = position if is_next else line_end - len(found["rest"])
            if not string:
                return position, end
            passed = passed or (position, end)
        elif not string and line.rstrip().endswith(fence) and "#" not in line:
            return position + line.rindex(fence), line_end
        if has_strings:
            string = after_strings(line, string)
        position = line_end + 1
    return passed or (len(text), len(text))


def after_strings(line: str, string: str = "") -> str:
    """The delimiter of the triple-quoted string that is open behind `line`, or "".

    Args:
        line: one line of Python.
        string: the delimiter that is open before it.
    """
    if len(line) > _MAX_LINE:
        return string
    position = 0
    while True:
        if string:
            position = line.find(string, position)
            if position < 0:
                return string
            position, string = position + 3, ""
        for token in _TOKEN.finditer(line, position):
            if token[0] in ('"""', "'''"):
                string, position = token[0], token.end()
                break
        else:
            return ""


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
    if not width:
        return code
    return "\n".join(re.sub(rf"^[ \t]{{0,{width}}}", "", line) for line in code.split("\n"))


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
