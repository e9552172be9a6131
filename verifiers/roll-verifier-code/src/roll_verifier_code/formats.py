"""Rows of public data sets, turned into tests.

| data set | recognised by | becomes |
|---|---|---|
| HumanEval | `prompt`, `test`, `entry_point` | asserts; the answer may be the body or the whole function |
| MBPP | `test_list` (also a bare list of assert lines) | asserts |
| KodCode | `test` with functions `test_*` | asserts |
| APPS, TACO | `input_output` | stdio, or calls where it has an `fn_name` |
| `{"inputs", "outputs"}` (verl, PRIME) | these keys | the same |
| LiveCodeBench | `public_test_cases`, `private_test_cases` | stdio, or calls where a case is "functional" |

What a row holds beside (text, solution, difficulty, ...) is not looked at.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from roll_verifier_code.asserts import parse_trusted
from roll_verifier_code.errors import TaskError, shown
from roll_verifier_code.livecodebench import livecodebench_tests
from roll_verifier_code.pytest_style import pytest_tests

TOLERANCE = 1e-6
"""For floats in data sets that name no tolerance."""
STDOUT = f"decimals:{TOLERANCE:g}"
"""How stdout is compared for data sets that do not say how."""


def normalise(row: Any) -> dict[str, Any]:
    """Tests out of a row, as a mapping with a `type` that `tasks.read_tests` reads.

    Args:
        row: tests already (they come back as they are), a row of a data set, a list of assert lines, the JSON text of
            one of these, or the text of a test file.

    Raises:
        TaskError: nothing of this kind, or one that is broken.
    """
    if isinstance(row, str):
        return _from_text(row)
    if isinstance(row, Sequence) and not isinstance(row, bytes):
        return _from_list(row)
    if not isinstance(row, Mapping):
        raise TaskError(f"tests must be a mapping, a list or text, got {type(row).__name__}")
    if "type" in row:
        return dict(row)
    for keys, make in _ROWS:
        if all(row.get(key) is not None for key in keys):
            return make(row)
    names = ", ".join(map(repr, list(row)[:12]))
    raise TaskError(f"tests: no 'type', and no known data set has the keys {names or '(none)'}")


def _from_text(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return pytest_tests(text)
    if isinstance(value, str):
        raise TaskError("tests: the JSON text holds only text")
    return normalise(value)


def _from_list(items: Sequence[Any]) -> dict[str, Any]:
    if items and all(isinstance(item, str) for item in items):
        return _mbpp({"test_list": items})
    if items and all(isinstance(item, Mapping) and "input" in item for item in items):
        return livecodebench_tests({"public_test_cases": items}, STDOUT, TOLERANCE)
    raise TaskError("tests: a list must hold assert lines, or mappings with 'input' and 'output'")


def _humaneval(row: Mapping[str, Any]) -> dict[str, Any]:
    """The tests call `check`; helper functions of the prompt are the task's own, so an answer cannot replace them."""
    prompt, entry_point = _text(row, "prompt"), _text(row, "entry_point")
    if not entry_point.isidentifier():
        raise TaskError(f"row: 'entry_point' must be a name, got {shown(entry_point)}")
    return {
        "type": "asserts",
        "code": f"{_text(row, 'test')}\n\ncheck({entry_point})\n",
        "reference": _helpers(prompt, entry_point),
        "prompt": prompt,
        "entry_point": entry_point,
    }


def _helpers(prompt: str, entry_point: str) -> str:
    """What a prompt defines before the function to be written; empty where that is only imports."""
    tree = parse_trusted(f"{prompt.rstrip()}\n    pass\n", "the row's 'prompt'")
    body = [node for node in tree.body if getattr(node, "name", None) != entry_point]
    if len(body) == len(tree.body):
        raise TaskError(f"row: the 'prompt' does not begin the function '{entry_point}'")
    if all(isinstance(node, ast.Import | ast.ImportFrom) for node in body):
        return ""
    return ast.unparse(ast.Module(body, type_ignores=[]))


def _mbpp(row: Mapping[str, Any]) -> dict[str, Any]:
    parts = [*_lines(row, "test_imports"), _text(row, "test_setup_code"), *_lines(row, "test_list")]
    code = "\n".join([part for part in parts if part.strip()] + [""])
    defined = re.findall(r"^def[ \t]+(\w+)", _text(row, "code"), re.MULTILINE)
    asked = next((name for name in reversed(defined) if re.search(rf"\b{name}\b", code)), "")
    return {"type": "asserts", "code": code, "entry_point": asked}  # the tests of one row ask for a function 'sum'


def _kodcode(row: Mapping[str, Any]) -> dict[str, Any]:
    return pytest_tests(_text(row, "test"))


def _apps(row: Mapping[str, Any]) -> dict[str, Any]:
    data = row["input_output"]
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise TaskError(f"row: 'input_output' is no JSON: {error}") from error
    if not isinstance(data, Mapping):
        raise TaskError(f"row: 'input_output' must be a mapping, got {type(data).__name__}")
    return _inputs_outputs(data)


def _inputs_outputs(row: Mapping[str, Any]) -> dict[str, Any]:
    inputs, outputs = row.get("inputs"), row.get("outputs")
    if not (isinstance(inputs, list | tuple) and isinstance(outputs, list | tuple) and len(inputs) == len(outputs)):
        raise TaskError("row: 'inputs' and 'outputs' must be lists of the same length")
    name = row.get("fn_name")
    if name is None:
        pairs = zip(map(_joined, inputs), map(_joined, outputs), strict=True)
        return {"type": "stdio", "compare": STDOUT, "cases": [{"stdin": i, "stdout": o} for i, o in pairs]}
    is_wrapped = all(isinstance(output, list) and len(output) == 1 for output in outputs)
    cases = []
    for args, output in zip(inputs, outputs, strict=True):
        answers = [output, output[0]] if is_wrapped else [output]
        cases.append({"args": [_int_keys(a) for a in _args(args)], "any_of": [_int_keys(a) for a in answers]})
    return {"type": "calls", "function": name, "tolerance": TOLERANCE, "cases": cases}


def _args(args: Any) -> list[Any]:
    if isinstance(args, list):
        return args
    raise TaskError(f"row: the input of a call must be a list of arguments, got {type(args).__name__}")


def _joined(text: Any) -> Any:
    """Text that some rows hold as a list of lines."""
    return "\n".join(text) if isinstance(text, list) and all(isinstance(line, str) for line in text) else text


def _int_keys(value: Any) -> Any:
    """JSON made the keys of a mapping text; where all of them are integers they were integers."""
    if isinstance(value, dict) and value and all(key.removeprefix("-").isdecimal() for key in value):
        return {int(key): part for key, part in value.items()}
    return value


def _livecodebench(row: Mapping[str, Any]) -> dict[str, Any]:
    return livecodebench_tests(row, STDOUT, TOLERANCE)


_ROWS: tuple[tuple[tuple[str, ...], Callable[[Mapping[str, Any]], dict[str, Any]]], ...] = (
    (("prompt", "test", "entry_point"), _humaneval),
    (("test_list",), _mbpp),
    (("input_output",), _apps),
    (("public_test_cases",), _livecodebench),
    (("private_test_cases",), _livecodebench),
    (("test",), _kodcode),
    (("inputs", "outputs"), _inputs_outputs),
)
"""Keys that a row must have, most telling first, and what reads it then."""


def _text(row: Mapping[str, Any], key: str) -> str:
    text = row.get(key)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise TaskError(f"row: '{key}' must be text, got {type(text).__name__}")
    return text.replace("\r\n", "\n")


def _lines(row: Mapping[str, Any], key: str) -> list[str]:
    lines = row.get(key) or []
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise TaskError(f"row: '{key}' must be a list of text")
    return list(lines)
