"""Examples for the conformance kit of `roll_core.testing`; nothing in a run imports this."""

from __future__ import annotations

from roll_core.testing.cases import VerifierCases

_ADD = {
    "type": "stdio",
    "compare": "tokens",
    "cases": [{"stdin": "1 2\n", "stdout": "3\n"}, {"stdin": "-5 5\n", "stdout": "0\n"}],
}
_SQUARE = {"type": "asserts", "entry_point": "square", "code": "assert square(3) == 9\nassert square(-2) == 4\n"}
_POWER = {
    "type": "calls",
    "function": "power",
    "cases": [{"args": [2, 3], "expected": 8}, {"args": [2], "kwargs": {"n": 0}, "expected": 1}],
}
_SUMMANDS = {
    "type": "checker",
    "checker": "def check(stdin, stdout):\n    return sum(map(int, stdout.split())) == int(stdin)\n",
    "cases": [{"stdin": "10\n"}],
}

CONFORMANCE = {
    "verifiers/code": VerifierCases(
        gold=[
            ("a, b = map(int, input().split())\nprint(a + b)\n", _ADD),
            ("<think>x * x</think>\n```python\ndef square(x):\n    return x * x\n```\nDone.", _SQUARE),
            ("def power(a, n):\n    return a**n\n", _POWER),
            ("n = int(input())\nprint(1, n - 1)\n", _SUMMANDS),
        ],
        wrong=[
            ("print(3)\n", _ADD),
            ("def square(x):\n    return 9\n", _SQUARE),
            ("import os\nos._exit(0)\ndef square(x):\n    return 0\n", _SQUARE),
            ("def power(a, n):\n    return 8\n", _POWER),
            ("print(11)\n", _SUMMANDS),
        ],
        golden="golden.jsonl",
        options={"limits": {"time_s": 1}},
    ),
}
