"""Rows of LiveCodeBench: public and private cases, the latter often packed."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from typing import Any

from roll_verifier_code.errors import TaskError

MAX_UNPACKED = 256 << 20
"""Bytes that packed private cases may have."""


def livecodebench_tests(row: Mapping[str, Any], compare: str, tolerance: float) -> dict[str, Any]:
    """Tests out of a row's public and private cases.

    Args:
        row: with `public_test_cases`, `private_test_cases` (lists, or their JSON text, plain or packed) and `metadata`.
        compare: policy for stdout.
        tolerance: for floats that a function returns.

    Raises:
        TaskError: the cases cannot be read, or are of both kinds.
    """
    cases = [*_cases(row, "public_test_cases"), *_cases(row, "private_test_cases")]
    kinds = {case.get("testtype", "stdin") for case in cases}
    if kinds <= {"stdin"}:
        pairs = [{"stdin": case.get("input"), "stdout": case.get("output")} for case in cases]
        return {"type": "stdio", "compare": compare, "cases": pairs}
    if kinds != {"functional"}:
        raise TaskError(f"row: cases of the types {sorted(map(str, kinds))}; all must be 'stdin', or all 'functional'")
    metadata = _json(row.get("metadata") or "{}", "metadata")
    name = metadata.get("func_name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str):
        raise TaskError("row: 'metadata' must name the function in 'func_name'")
    calls = [
        {
            "args": [_json(line, "input of a case") for line in str(case.get("input")).split("\n") if line.strip()],
            "expected": _json(case.get("output"), "output of a case"),
        }
        for case in cases
    ]
    return {"type": "calls", "function": name, "tolerance": tolerance, "cases": calls}


def _cases(row: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = row.get(key)
    if isinstance(value, str):
        value = _json(value if value.lstrip().startswith("[") else _unpack(value, key), key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(case, Mapping) for case in value):
        raise TaskError(f"row: '{key}' must be a list of cases")
    return value


def _json(text: Any, what: str) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TaskError(f"row: the {what} is no JSON: {error}") from error


def _unpack(text: str, key: str) -> str:
    """JSON text out of base64 of zlib of a pickled string; a pickle of anything but text is refused."""
    try:
        unzip = zlib.decompressobj()
        data = unzip.decompress(base64.b64decode(text, validate=True), MAX_UNPACKED)
        if unzip.unconsumed_tail:
            raise TaskError(f"row: '{key}' has more than {MAX_UNPACKED} bytes unpacked")
        value = _TextOnly(io.BytesIO(data)).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError) as error:
        raise TaskError(f"row: '{key}' is neither JSON nor packed cases: {error}") from error
    if not isinstance(value, str):
        raise TaskError(f"row: '{key}' holds a packed {type(value).__name__}, not text")
    return value


class _TextOnly(pickle.Unpickler):
    """Unpickles built-in data alone: nothing is imported, so nothing can be called."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the packed cases refer to {module}.{name}")
