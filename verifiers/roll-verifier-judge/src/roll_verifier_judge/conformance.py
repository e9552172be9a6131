"""Examples for the conformance kit of `roll_core.testing`; nothing in a run imports this.

The kit works without the network, so the options point to a stand-in on the loopback interface: a chat endpoint that
compares the parts of a request word by word.
"""

from __future__ import annotations

import atexit
import functools
import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from roll_core.testing.cases import VerifierCases
from roll_core.testing.golden import GoldenRow
from roll_core.types import Status
from roll_verifier_judge.parse import parse_reply
from roll_verifier_judge.text import fold

_PART = re.compile(r"^BEGIN ([A-Z ]+) (\w{16})\n(`{3,})\n(.*?)\n\3\nEND \1 \2$", re.MULTILINE | re.DOTALL)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a chat request."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        verdict = _compared(request["messages"][-1]["content"])
        message = {"role": "assistant", "content": json.dumps({"reasoning": "compared word by word", **verdict})}
        body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _compared(content: str) -> dict[str, Any]:
    """The verdict of the request's parts: on a single response, or on two."""
    parts = {match[1]: fold(match[4]) for match in _PART.finditer(content)}
    if "RESPONSE A" in parts:
        points = [_points(parts[f"RESPONSE {name}"]) for name in "AB"]
        return {"verdict": "tie" if points[0] == points[1] else "A" if points[0] > points[1] else "B"}
    words = {"four": "4", "paris,": "paris"}
    said = " ".join(words.get(word, word) for word in parts["RESPONSE"].strip(".").split())
    return {"score": 10 if said.endswith(parts["REFERENCE"]) else 0}


def _points(text: str) -> int:
    """How many words an answer has, if it names the city or the number."""
    return len(text.split()) * bool(re.search("paris|four", text))


@functools.cache
def _stand_in() -> str:
    """The address of the endpoint, which lives until the process ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), name="judge-stand-in", daemon=True).start()

    def stop() -> None:
        server.shutdown()
        server.server_close()

    atexit.register(stop)
    return f"http://127.0.0.1:{server.server_address[1]}/v1"


def _options(folder: Path) -> Mapping[str, Any]:
    return {"model": "stand-in", "base_url": _stand_in(), "cache": folder / "replies"}


def _judge_golden(verifier: Any, row: GoldenRow) -> tuple[bool | None, str]:
    """A reply of a judge, read (a reference of null: it holds no verdict); or a response, decided without a judge."""
    if "scale" not in row.options:
        verdict = verifier.decide(row.response, row.reference, **row.options)
        if verdict is None:
            return None, "left to the judge"
        return verdict.status is Status.CORRECT, f"{verdict.status}/{verdict.detail}"
    parsed = parse_reply(row.response, row.options["scale"])
    is_right = parsed.is_ok and (row.reference is None or parsed.value == row.reference)
    return is_right, f"ok/{parsed.value}" if parsed.is_ok else f"invalid/{parsed.reason}"


CONFORMANCE = {
    "verifiers/judge": VerifierCases(
        options=_options,
        gold=[
            ("4", "4"),
            ("The sum is four.", "4"),
            ("\\boxed{Paris}", "Paris"),
            ("<think>5?</think> It is four", "4"),
        ],
        wrong=[
            ("5", "4"),
            ("4 or 5", "4"),
            ("Solution", "4"),
            ("The answer is", "Paris"),
            ("<think>4", "4"),
            (":", "4"),
        ],
        golden="golden.jsonl",
        judge_golden=_judge_golden,
    ),
    "verifiers/pairwise_judge": VerifierCases(
        options=_options,
        gold=[
            ("It is Paris, on the Seine.", "Paris."),
            ("Four, since two and two make four.", "It is four."),
        ],
        wrong=[
            ("Paris.", "It is Paris, on the Seine."),
            ("It is five.", "It is four."),
            ("Solution", "Paris."),
        ],
    ),
}
