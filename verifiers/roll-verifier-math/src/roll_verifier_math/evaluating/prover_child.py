"""What runs in the prover's child process. sympy sees trees only, so no text is ever evaluated as code."""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from typing import Any, NoReturn

from roll_verifier_math.evaluating.symbolic import proved_equal, unpacked

_WATCH_SECONDS = 0.5
_CPU_SECONDS = 4
"""For one question; the asking process kills this one long before."""
_MEMORY_BYTES = 1 << 30


def serve() -> NoReturn:
    """Answer questions from stdin, a pair of packed trees a line, with "proved" or "open", until stdin ends."""
    threading.Thread(target=_end_with, args=(int(sys.argv[2]),), daemon=True).start()
    import sympy  # noqa: F401 - loaded before the first question

    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_AS, _MEMORY_BYTES)
    _say("ready")
    for line in sys.stdin:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        # the last resort, for when nobody is left to kill this process
        _limit(resource.RLIMIT_CPU, int(usage.ru_utime + usage.ru_stime) + _CPU_SECONDS)
        left, right = json.loads(line)
        _say("proved" if _is_proved(left, right) else "open")
    os._exit(0)


def _is_proved(left: list[Any], right: list[Any]) -> bool:
    try:
        return proved_equal(unpacked(left), unpacked(right))
    except (ArithmeticError, ValueError, TypeError, AttributeError, NotImplementedError, RecursionError, MemoryError):
        return False  # sympy gave up, each part of it in its own way


def _say(answer: str) -> None:
    sys.stdout.write(answer + "\n")
    sys.stdout.flush()


def _limit(what: int, amount: int) -> None:
    """Set the soft limit of a resource, within its hard limit."""
    hard = resource.getrlimit(what)[1]
    resource.setrlimit(what, (amount if hard == resource.RLIM_INFINITY else min(amount, hard), hard))


def _end_with(parent: int) -> None:
    """End with the process that started this one, even though a copy of it may still hold the pipe."""
    while os.getppid() == parent:
        time.sleep(_WATCH_SECONDS)
    os._exit(0)
