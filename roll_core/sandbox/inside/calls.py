"""Answer calls of the candidate's functions with plain data."""

from __future__ import annotations

import os
import types
from typing import Any, NoReturn

from roll_core.sandbox.codec import decode, encode, pack
from roll_core.sandbox.inside.program import execute, make_module, prepare_interpreter
from roll_core.sandbox.inside.streams import Streams

CANDIDATE = "solution"
"""The module name of a candidate whose functions are called: its `if __name__ == "__main__"` part does not run."""

MAX_TEXT = 500
"""Characters of an error's message."""


def answer_calls(source: str, calls: list[dict[str, Any]], result_fd: int, streams: Streams) -> NoReturn:
    """Load the candidate, do each call in turn, write one frame per call, and end the process.

    A frame is `{"i": index, "ok": node}` or `{"i": index, "error": [name, message]}`. This runs beside the candidate,
    which can write frames itself: they state values, and whoever reads them knows the expected ones.
    """
    module = load_candidate(source)
    if isinstance(module, int):
        streams.leave(module)
    for index, call in enumerate(calls):
        _write(result_fd, _frame(index, module, call))
    streams.leave(0)


def load_candidate(source: str) -> types.ModuleType | int:
    """Execute the candidate as a module; its exit status where it raised or exited before its end."""
    prepare_interpreter()
    make_module("__main__", "", "main.py")
    module = make_module(CANDIDATE, source)
    status = execute(source, module)
    return module if status is None else status


def _frame(index: int, module: types.ModuleType, call: dict[str, Any]) -> bytes:
    try:
        function = _resolve(module, call["name"])
        return pack({"i": index, "ok": encode(function(*decode(call["args"]), **decode(call["kwargs"])))})
    except BaseException as error:  # noqa: BLE001  whatever a call raises is its answer
        return pack({"i": index, "error": describe(error)})


def describe(error: BaseException) -> list[str]:
    """Type name and message of an error of the candidate's, bounded; its own `__str__` may fail."""
    try:
        message = str(error)[:MAX_TEXT]
    except BaseException:  # noqa: BLE001  the candidate's own method
        message = ""
    return [type(error).__name__[:MAX_TEXT], "".join(message)]


def _resolve(module: types.ModuleType, dotted: str) -> Any:
    """The object of that name; a class on the way is instantiated without arguments (`Solution.method`)."""
    first, *rest = dotted.split(".")
    if first not in module.__dict__:
        raise NameError(f"name {first!r} is not defined")
    found = module.__dict__[first]
    for name in rest:
        found = getattr(found() if isinstance(found, type) else found, name)
    return found


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]
