"""Proofs by sympy in a child process that can be killed: no signals, no threads, nothing left behind.

One child serves the whole process, one question at a time. It is started by the first proof, is discarded (not
killed) by a forked copy of this process, and ends by itself when this process ends. A child that is late, dies or
cannot be started only means that there is no proof.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from typing import Any

from roll_verifier_math.reading.nodes import App, Node, Num, Sym

_MOST_LOST = 20
"""Children that may be lost in a row before no more are started."""
_MOST_KNOWN = 2_000
"""Answers kept."""
_START_SECONDS = 30.0
"""A child that is not ready by then is given up."""
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from roll_verifier_math.evaluating.prover_child import serve; serve()"
)


class Prover:
    """The child process and the conversation with it."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._child = None
        self._started = 0.0
        self._is_ready = False
        self._lost = 0
        self._buffer = b""
        self._known: dict[bytes, bool] = {}

    def prove(self, left: Node, right: Node, seconds: float) -> bool:
        """Whether sympy shows within `seconds` that two trees are equal; False means: not proved."""
        if seconds <= 0 or not sys.executable:
            return False
        question = json.dumps([packed(left), packed(right)]).encode()
        known = self._known.get(question)
        if known is not None:
            return known
        deadline = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            return False
        try:
            return self._asked(question, deadline)
        except OSError:
            self._discard()
            return False
        finally:
            self._lock.release()

    def wait_ready(self, seconds: float) -> bool:
        """Start the child if there is none, and wait for it; whether it can be asked now."""
        deadline = time.monotonic() + seconds
        with self._lock:
            try:
                return self._is_usable(deadline)
            except OSError:
                self._discard()
                return False

    def close(self) -> None:
        """End the child. The next proof starts another."""
        with self._lock:
            self._discard()
            self._lost = 0

    def forget(self) -> None:
        """Leave the child to the process that this one was forked from."""
        child = self._child
        self._reset()  # the lock too: another thread may have held it at the fork
        if child is not None:
            _close_pipes(child)
            child.returncode = 0  # so that nobody waits for a process that is not ours

    def _asked(self, question: bytes, deadline: float) -> bool:
        if not self._is_usable(deadline):
            return False
        child = self._child
        if child is None or child.stdin is None:
            return False
        rest = memoryview(question + b"\n")
        while rest:
            rest = rest[child.stdin.write(rest) or 0 :]
        answer = self._answer(deadline)
        if answer is None:
            self._discard()
        else:
            self._lost = 0
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[question] = answer == b"proved"
        return answer == b"proved"

    def _is_usable(self, deadline: float) -> bool:
        if self._child is not None and self._child.poll() is not None:
            self._discard()
        if self._child is None and not self._start():
            return False
        if not self._is_ready:
            self._is_ready = self._answer(deadline) is not None
            if not self._is_ready and time.monotonic() - self._started > _START_SECONDS:
                self._discard()
        return self._is_ready

    def _start(self) -> bool:
        if self._lost > _MOST_LOST:
            return False
        paths = [path for path in sys.path if isinstance(path, str)]
        command = [sys.executable, "-I", "-c", _BOOT, json.dumps(paths), str(os.getpid())]
        self._buffer = b""
        self._is_ready = False
        self._started = time.monotonic()
        self._child = subprocess.Popen(  # noqa: S603 - this interpreter, with arguments of our own
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
        return True

    def _answer(self, deadline: float) -> bytes | None:
        """The next line of the child; None when none comes in time or the child is gone."""
        if self._child is None or self._child.stdout is None:
            return None
        descriptor = self._child.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                return None
            received = os.read(descriptor, 4096)
            if not received:
                self._discard()
                return None
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _discard(self) -> None:
        child, self._child = self._child, None
        self._is_ready = False
        self._lost += 1
        if child is not None:
            child.kill()
            _close_pipes(child)
            child.wait()


def _close_pipes(child: subprocess.Popen[bytes]) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()


PROVER = Prover()
"""The prover of this process."""
atexit.register(PROVER.close)
os.register_at_fork(after_in_child=PROVER.forget)


def packed(node: Node) -> list[Any]:
    """An expression as plain data for JSON; what is no expression becomes an unknown operation."""
    if isinstance(node, Num):
        return ["num", f"{node.value.numerator:x}", f"{node.value.denominator:x}"]
    if isinstance(node, Sym):
        return ["sym", node.name]
    if isinstance(node, App):
        return ["app", node.op, *map(packed, node.args)]
    return ["app", "unknown"]
