"""Puts an answer behind the prompt that it continues (HumanEval): the body of a function, or the whole function."""

from __future__ import annotations

import re

_FUTURE = re.compile(r"^from[ \t]+__future__[ \t]+import[ \t]+[^\n]*\n?", re.MULTILINE)


def complete(prompt: str, entry_point: str, code: str) -> str:
    """The program that an answer and its prompt make.

    An answer that defines `entry_point` itself is a program of its own behind the prompt, whose imports and helpers it
    may use; any other is the body of the function that the prompt ends in.

    Args:
        prompt: source that ends in the head of a function, with or without its docstring.
        entry_point: name of that function.
        code: the answer.
    """
    code = code.replace("\r\n", "\n")
    name = re.escape(entry_point)
    whole = re.search(rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{name}\b|^{name}[ \t]*=", code, re.MULTILINE)
    if whole is None:
        return f"{prompt.rstrip()}\n{_indented(code)}"
    future = "".join(f"{line.strip()}\n" for line in _FUTURE.findall(code))
    return f"{future}{prompt.rstrip()}\n    pass\n\n{_FUTURE.sub('', code)}"


def _indented(body: str) -> str:
    """A body whose first line, or all of it, lost its indentation on the way."""
    lines = body.split("\n")
    filled = [number for number, line in enumerate(lines) if line.strip()]
    if not filled or lines[filled[0]][0] in " \t":
        return body
    first, rest = filled[0], [_width(lines[number]) for number in filled[1:]]
    is_block = lines[first].rstrip().endswith(":")
    if rest and min(rest) >= 4 and (not is_block or rest[0] >= 8):
        lines[first] = f"    {lines[first]}"
        return "\n".join(lines)
    return "\n".join(f"    {line}" if line.strip() else line for line in lines)


def _width(line: str) -> int:
    return len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
