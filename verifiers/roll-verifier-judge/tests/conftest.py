"""A chat endpoint on the loopback interface that answers from a script and keeps what it was sent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass
class Answer:
    """What the endpoint answers to one request."""

    text: str | None = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    finish: str = "stop"
    delay_s: float = 0.0
    refusal: str | None = None

    def payload(self) -> bytes:
        if self.body is not None:
            return self.body
        message = {"role": "assistant", "content": self.text, "refusal": self.refusal}
        return json.dumps({"choices": [{"message": message, "finish_reason": self.finish}]}).encode()


class Endpoint:
    """The script and the record."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.busy = 0
        self.most_busy = 0
        self.answer: Callable[[dict[str, Any]], Answer] = lambda _: Answer('{"score": 10}')
        self.lock = threading.Lock()

    def says(self, *answers: str | Answer) -> None:
        """Give these answers in turn, the last one over and over."""
        queue = [Answer(one) if isinstance(one, str) else one for one in answers]
        self.answer = lambda _: queue.pop(0) if len(queue) > 1 else queue[0]

    @property
    def shown(self) -> str:
        """The contents of the last request's messages."""
        return "\n".join(message["content"] for message in self.requests[-1]["messages"])

    def handle(self, body: dict[str, Any], headers: dict[str, str]) -> Answer:
        with self.lock:
            self.requests.append(body)
            self.headers.append(headers)
            self.times.append(time.monotonic())
            self.busy += 1
            self.most_busy = max(self.most_busy, self.busy)
            answer = self.answer(body)
        time.sleep(answer.delay_s)
        with self.lock:
            self.busy -= 1
        return answer


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    script = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            answer = script.handle(body, {name.lower(): value for name, value in self.headers.items()})
            payload = answer.payload()
            try:
                self.send_response(answer.status)
                for name, value in {"content-length": str(len(payload)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(payload)
            except OSError:  # a client that did not wait
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    yield script
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def make_answer() -> type[Answer]:
    return Answer
