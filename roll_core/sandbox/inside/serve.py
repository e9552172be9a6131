"""The candidate's side of a test: serve what its names hold to the trusted side. Nothing here is trusted by anyone."""

from __future__ import annotations

import copy
import operator
import threading
import types
from collections.abc import Callable
from typing import Any, NoReturn

from roll_core.sandbox.codec import CodecError, Node, decode, encode, flatten
from roll_core.sandbox.inside.callbacks import Callback, CallbackIterator, TestObject
from roll_core.sandbox.inside.calls import describe, load_candidate
from roll_core.sandbox.inside.channel import Channel
from roll_core.sandbox.inside.references import References
from roll_core.sandbox.inside.streams import Streams
from roll_core.sandbox.inside.values import builtin_exception, decode_value

KEPT_OUTPUT = 1 << 16
"""Bytes of standard output that one answer carries to the tests."""


def serve_candidate(source: str, peer_fd: int, streams: Streams) -> NoReturn:
    """Load the candidate and answer requests until the tests' side closes the socket; end the process."""
    channel = Channel(peer_fd)
    loaded = load_candidate(source)
    if isinstance(loaded, int):
        channel.send({"loaded": False, "status": loaded})
        streams.leave(loaded)
    streams.flushed(0)
    streams.written.keep = KEPT_OUTPUT
    channel.send({"loaded": True})
    server = Server(channel, loaded, streams)
    while True:
        try:
            message = channel.receive()
        except EOFError:
            streams.leave(0)
        server.answer(message)


class Server:
    """Answers requests about the candidate's objects; each object it names gets a number."""

    def __init__(self, channel: Channel, module: types.ModuleType, streams: Streams) -> None:
        self._channel = channel
        self._module = module
        self._streams = streams
        self._references = References()
        self._thread = threading.get_ident()
        self._objects: dict[int, TestObject] = {}

    def answer(self, message: dict[str, Any]) -> None:
        """Do one request and send its reply."""
        reply: dict[str, Node]
        try:
            reply = self._reply(message)
        except CodecError as error:
            reply = {"fault": str(error)}
        except BaseException as error:  # noqa: BLE001  whatever the candidate raises is the answer
            reply = self._error(error)
        self._streams.flushed(0)
        try:
            self._channel.send({"id": message["id"], "out": self._streams.written.take(), **reply})
        except CodecError as error:
            self._channel.send({"id": message["id"], "fault": str(error)})

    def _reply(self, message: dict[str, Any]) -> dict[str, Node]:
        if message["op"] == "name":
            return self._name(message["name"])
        target = self._references.get(message["on"])
        arguments = [self._decode(part) for part in message["args"]]
        keywords = {name: self._decode(part) for name, part in message["kwargs"].items()}
        result = _OPERATIONS[message["op"]](target, *arguments, **keywords)
        reply = {"ok": self._encode(result)}
        if message.get("copy_back"):
            kept = {str(at): part for at, part in enumerate(arguments) if type(part) in (list, dict, set, bytearray)}
            reply["args"] = {at: self._encode(part) for at, part in kept.items()}
        return reply

    def _name(self, name: str) -> dict[str, Node]:
        if name not in self._module.__dict__:
            return {"none": True}
        value = self._module.__dict__[name]
        return {"module": value.__name__} if type(value) is types.ModuleType else {"ok": self._encode(value)}

    def _encode(self, value: Any) -> Node:
        return encode(value, self._references.encode)

    def _error(self, error: BaseException) -> dict[str, Node]:
        try:
            return {"err": self._encode(error)}
        except BaseException as second:  # noqa: BLE001  the candidate's exception may refuse to be looked at
            return {"fault": f"{describe(error)[0]} cannot be described: {describe(second)[0]}"}

    def _decode(self, node: Node) -> Any:
        return decode(node, self._other)

    def _other(self, tag: str, payload: Any, value: Callable[[Node], Any]) -> Any:
        if tag == "H":
            return self._references.get(payload)
        if tag == "K":
            return Callback(self._call_back, payload["id"], payload["name"], payload["doc"])
        if tag == "Y":
            return CallbackIterator(self._call_back, payload)
        if tag == "R":
            made = TestObject(self._call_back, payload["id"], payload["type"])
            return self._objects.setdefault(payload["id"], made)
        if tag == "E":
            return self._exception(payload, value)
        return builtin_exception(payload) if tag == "X" else decode_value(tag, payload, value)

    def _exception(self, payload: dict[str, Any], value: Callable[[Node], Any]) -> BaseException:
        kind = builtin_exception(payload["name"]) or Exception
        error = kind(*value(payload["args"]))
        error.__dict__["raised_by_tests"] = payload.get("token")
        return error

    def _call_back(self, number: int, operation: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Ask the tests' side to call one of its functions, and serve its requests until it answers."""
        if threading.get_ident() != self._thread:
            raise RuntimeError("a function of the tests can be called only in the thread that the tests called")
        self._channel.send(
            {
                "back": number,
                "op": operation,
                "args": [self._encode(part) for part in arguments],
                "kwargs": {name: self._encode(part) for name, part in keywords.items()},
            }
        )
        while True:
            message = self._channel.receive()
            if "back" not in message:
                self.answer(message)
            elif "err" in message:
                raise self._decode(message["err"])
            else:
                return self._decode(message["ok"])


def _run_coroutine(coroutine: Any) -> Any:
    import asyncio  # seldom needed, and large

    return asyncio.run(coroutine)


def _operate(target: Any, name: str, *operands: Any) -> Any:
    return getattr(operator, name)(target, *operands)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "attr": getattr,
    "setattr": setattr,
    "delattr": delattr,
    "call": lambda target, /, *arguments, **keywords: target(*arguments, **keywords),
    "len": len,
    "item": operator.getitem,
    "setitem": operator.setitem,
    "delitem": operator.delitem,
    "iter": iter,
    "next": next,
    "str": str,
    "repr": repr,
    "int": int,
    "float": float,
    "index": operator.index,
    "round": round,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "operate": _operate,
    "operate_right": lambda target, name, other: _operate(other, name, target),
    "isinstance": lambda target, value: isinstance(value, target),
    "issubclass": lambda target, value: issubclass(value, target),
    "plain": flatten,
    "enter": lambda target: type(target).__enter__(target),
    "exit": lambda target, *arguments: bool(type(target).__exit__(target, *arguments)),
    "await": _run_coroutine,
}
