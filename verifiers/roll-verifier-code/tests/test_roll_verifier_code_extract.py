from __future__ import annotations

import contextlib
import time

import pytest

from roll_verifier_code import NoProgramError, extract_code

BOUND_S = 10.0
"""Seconds of processor time; reading in linear time takes well below one, in quadratic time minutes."""

SQUARE = "def square(x):\n    return x*x\n"
BLOCK = f"```python\n{SQUARE}```"
NESTED = 'def f():\n    """\n    ```\n    f(1)\n    ```\n    """\n    return 1\n'
STRIPS = 'import re\nprint(re.sub(r"<think>.*?</think>", "", input()))\n'
DOCUMENTED = 'def f(s):\n    """Remove <think> blocks."""\n    return s\n'


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (SQUARE, SQUARE),
        (f"Here:\n{BLOCK}\nok", SQUARE),
        (f"```python\nold()\n```\nWait:\n{BLOCK}", SQUARE),
        (f"{BLOCK}\nOutput:\n```\n9\n```", SQUARE),
        (f"{BLOCK}\n```text\nprint(1)\n```", SQUARE),
        (f"{BLOCK}\nRun it:\n```bash\npython a.py\n```", SQUARE),
        (f'{BLOCK}\n\n```json\n{{"a": 1}}\n```', SQUARE),
        (f"```python\nold()\n```\nFinal\n```\n{SQUARE}```", SQUARE),
        (f"```text\n{SQUARE}```", SQUARE),
        (f"~~~python\n{SQUARE}~~~", SQUARE),
        (f"~~~\n{SQUARE}~~~\n", SQUARE),
        (f"```py\n{SQUARE}```", SQUARE),
        (f"```python3\n{SQUARE}```", SQUARE),
        (f"```Python\n{SQUARE}```", SQUARE),
        (f"```{{python}}\n{SQUARE}```", SQUARE),
        (f"```{{.python .numberLines}}\n{SQUARE}```", SQUARE),
        (f'```python title="a.py"\n{SQUARE}```', SQUARE),
        (f"```python:a.py\n{SQUARE}```", SQUARE),
        (f"```solution\n{SQUARE}```", SQUARE),
        (f"````python\n{SQUARE}````", SQUARE),
        (f"```\n{SQUARE}```", SQUARE),
        (f"```python\n{SQUARE}", SQUARE),
        (f"```python\nold()\nWait:\n{BLOCK}", SQUARE),
        (f"```\n\n```\n{BLOCK}", SQUARE),
        (f"{BLOCK}\n```\n```", SQUARE),
        (f"Answer: ```python\n{SQUARE}```", SQUARE),
        ("```python\nx = 1```\nhope", "x = 1"),
        (f"```python\n{SQUARE}```I hope this helps", SQUARE),
        (f"```python\n{SQUARE}```I hope\n```python\nprint(2)\n```", "print(2)\n"),
        ("1. item:\n   ```python\n   def square(x):\n       return x*x\n   ```\n", SQUARE),
        (BLOCK.replace("\n", "\r\n"), SQUARE.replace("\n", "\r\n")),
        (f"````markdown\nHi\n{BLOCK}\n````", SQUARE),
        ("```print(3)```", "print(3)"),
        ("Use this: ```python print(3)```", "print(3)"),
        ("\ufeff" + SQUARE, SQUARE),
        # fences in strings
        (f"```python\n{NESTED}```\nbye", NESTED),
        ('```python\n"""\n```\nexample\n```\n"""\nx=1\n```\nbye', '"""\n```\nexample\n```\n"""\nx=1\n'),
        (NESTED, NESTED),
        ('```python\nx = \'"""\'\n```\nprose\n', 'x = \'"""\'\n'),
        ('```python\nx = 1  # it\'s """\n```\nprose\n', 'x = 1  # it\'s """\n'),
        ("```python\nprint('''\n```\nThat is\n```python\nprint(2)\n```\n", "print(2)\n"),
        # thinking
        ("<think>```python\nold()\n```</think>I am not sure.", "\nI am not sure."),
        (f"<think>a</think>{BLOCK}", SQUARE),
        (f"<thinking>\nold()\n</thinking>\n{BLOCK}", SQUARE),
        (f"old ```python\nold()\n``` more\n</think>\n{BLOCK}", SQUARE),
        (f"old\n```python\nold()\n</think>\n{BLOCK}", SQUARE),
        (f"{BLOCK}\n<think>late", SQUARE),
        (STRIPS, STRIPS),
        ('s = input()\nprint(s.split("</think>")[1])\n', 's = input()\nprint(s.split("</think>")[1])\n'),
        (f"```python\n{STRIPS}```\n", STRIPS),
        (f"<think>x</think>\n```python\n{DOCUMENTED}```", DOCUMENTED),
    ],
)
def test_the_program_of_a_reply(reply, code):
    assert extract_code(reply) == code


@pytest.mark.parametrize(
    "reply",
    [
        "",
        " \n",
        "\u200b",
        "\u00a0",
        f"<think>\n{BLOCK}",
        "# only\n  # comments",
        "```python\n```",
        "x" * 400_001,
        "'\ud800'",
    ],
)
def test_nothing_to_run(reply):
    with pytest.raises(NoProgramError):
        extract_code(reply)


def test_the_language_decides_which_block_counts():
    reply = "```cpp\nint main() {}\n```\n```python\nprint(1)\n```\n```js\nlet x\n```\n"
    assert extract_code(reply, "cpp") == "int main() {}\n"
    assert extract_code(reply, "python") == "print(1)\n"
    assert extract_code(reply, "javascript") == "let x\n"
    assert extract_code("```bash\necho 1\n```\n```text\n1\n```", "bash") == "echo 1\n"


@pytest.mark.parametrize(
    "unit",
    [
        "<think>",
        "</think>",
        "```\n",
        "```python\n",
        '"""\n```\n',
        "`",
        "~~~\n",
        "```a ",
        "'",
        "<think> ```\n</think>\n",
        "    ```\n",
        "x```\n",
        "``` \n'''\n",
        '"""```python\n',
        '"',
        "(",
        "\n",
    ],
)
def test_odd_replies_take_little_time(unit):
    started = time.process_time()
    with contextlib.suppress(NoProgramError):
        extract_code(unit * (400_000 // len(unit)))
    assert time.process_time() - started < BOUND_S
