"""The tests' side of the channel: requests about the candidate's objects, and what went wrong beyond repair.

Whatever the other side sends is data. A fault is kept here, where no `except` of the tests can swallow it.
"""

from __future__ import annotations

import importlib
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

from roll_core.sandbox.codec import CodecError, Node, UnserialisableError, decode, encode
from roll_core.sandbox.inside.channel import Channel
from roll_core.sandbox.inside.handles import HandleTypes
from roll_core.sandbox.inside.remote_errors import ENDS_LOOPS, RemoteErrors
from roll_core.sandbox.inside.shared import Shared
from roll_core.sandbox.inside.values import decode_value

MAX_REQUESTS = 1_000_000
"""Requests of one test."""


class Unverifiable(BaseException):
    """The test cannot be decided. The reason is in `Link.fault` or `Link.unsupported`, whoever catches this."""


class Link:
    """Asks the candidate's side. One request at a time; call-backs from there are served while it waits."""

    def __init__(self, channel: Channel, *, copy_back: bool) -> None:
        self.fault: str | None = None
        """Why the candidate's side cannot be verified; set once, for good."""
        self.unsupported: str | None = None
        """What the tests tried that cannot cross; set once, for good."""
        self.was_used = False
        """Whether the tests did anything with an object of the candidate's."""
        self.on_callback: Callable[[Callable[[], Any]], Any] = lambda function: function()
        """Wraps the execution of a function of the tests on behalf of the candidate."""
        self.open_assertions: Callable[[], int] = int
        """Assertions of the tests that began and did not hold, so far."""
        self._channel = channel
        self._copy_back = copy_back
        self._lock = threading.RLock()
        self._requests = 0
        self.shared = Shared()
        self._contexts: dict[int, list[int]] = {}
        self._handles = HandleTypes(self)
        self._errors = RemoteErrors(self)

    def fail(self, reason: str) -> Unverifiable:
        """Record that the candidate cannot be verified; the exception to raise."""
        self.fault = self.fault or reason
        return Unverifiable(reason)

    def refuse(self, reason: str) -> Unverifiable:
        """Record that the tests do what cannot cross; the exception to raise."""
        self.unsupported = self.unsupported or reason
        return Unverifiable(reason)

    def wait_until_loaded(self) -> bool:
        """Whether the candidate's source ran to its end without an exception or exit."""
        try:
            message = self._channel.receive()
        except (EOFError, OSError, CodecError) as error:
            raise self.fail(f"the candidate ended while it was loaded: {error}") from error
        return message.get("loaded") is True

    def name(self, name: str) -> tuple[bool, Any]:
        """Whether the candidate has a global of that name, and its value."""
        reply = self._exchange({"op": "name", "name": name})
        if "none" in reply:
            return False, None
        if "module" in reply:
            return True, self._module(reply["module"])
        return True, self._result(reply)

    def _module(self, name: Any) -> types.ModuleType:
        """The tests' own copy of a module that the candidate imported."""
        if type(name) is not str or name.startswith(("_", "roll_core")):
            raise self.fail("a module's name was expected")
        try:
            return importlib.import_module(name)
        except ImportError as error:
            raise self.fail(f"the candidate's module {name[:80]!r} is not there for the tests") from error

    def ask(self, operation: str, on: int, *arguments: Any, **keywords: Any) -> Any:
        """Do one operation on the candidate's object of that number; its result, or its exception raised."""
        request: dict[str, Node] = {
            "op": operation,
            "on": on,
            "args": [self._encode(part) for part in arguments],
            "kwargs": {name: self._encode(part) for name, part in keywords.items()},
        }
        if self._copy_back and operation == "call":
            request["copy_back"] = True
        self.was_used = True
        reply = self._exchange(request)
        if "args" in reply:
            self._restore(reply["args"], arguments)
        return self._result(reply, operation)

    def enter_context(self, on: int) -> Any:
        """`__enter__` of the candidate's object."""
        value = self.ask("enter", on)
        self._contexts.setdefault(on, []).append(self.open_assertions())
        return value

    def leave_context(self, on: int, kind: Any, error: Any) -> bool:
        """`__exit__` of the candidate's object: whether it suppresses the error; never one out of an assertion."""
        before = (self._contexts.get(on) or [0]).pop()
        suppresses = self.ask("exit", on, kind, error, None) is True
        from_assertion = isinstance(error, AssertionError) or self.open_assertions() > before
        return suppresses and not from_assertion

    def _exchange(self, request: dict[str, Node]) -> dict[str, Any]:
        with self._lock:
            if self.fault is not None:
                raise Unverifiable(self.fault)
            self._requests += 1
            number = self._requests
            if number > MAX_REQUESTS:
                raise self.fail(f"more than {MAX_REQUESTS} requests")
            try:
                return self._reply_to(number, request)
            except (EOFError, OSError) as error:
                raise self.fail("the candidate's process ended") from error
            except CodecError as error:
                raise self.fail(f"the candidate's side sent what is no answer: {error}") from error

    def _reply_to(self, number: int, request: dict[str, Node]) -> dict[str, Any]:
        self._channel.send({"id": number, **request})
        while True:
            message = self._channel.receive()
            if "back" in message:
                self._channel.send(self._called_back(message))
                continue
            if message.get("id") != number:
                raise CodecError("an answer to a request that was not made")
            if "fault" in message:
                raise self.fail(f"the candidate's value cannot cross: {str(message['fault'])[:300]}")
            if type(message.get("out", "")) is str:
                sys.stdout.write(message.get("out", ""))
            return message

    def _result(self, reply: dict[str, Any], operation: str = "") -> Any:
        try:
            result = self._decode(reply["err"] if "err" in reply else reply["ok"])
        except (CodecError, KeyError) as invalid:
            raise self.fail(f"the candidate's side sent what is no value: {invalid}") from invalid
        if "err" not in reply:
            return result
        error = result
        if not isinstance(error, BaseException):
            raise self.fail("the candidate's side sent an exception that is none")
        if isinstance(error, ENDS_LOOPS) and not (operation == "next" and type(error) is StopIteration):
            raise self.fail(f"the candidate raised {type(error).__name__} out of a call")
        if isinstance(error, SystemExit):
            error.__dict__["_roll_remote_"] = True  # also where it came from the tests first: it ends nothing here
        raise error

    def _restore(self, nodes: Any, arguments: tuple[Any, ...]) -> None:
        """Copy in-place changes of arguments back, where the caller asked for it."""
        try:
            for at, node in dict(nodes).items():
                old, new = arguments[int(at)], self._decode(node)
                if type(old) is type(new) and type(old) in (list, bytearray):
                    old[:] = new
                elif type(old) is type(new) and type(old) in (dict, set):
                    old.clear()
                    old.update(new)
        except (CodecError, ValueError, TypeError, IndexError) as error:
            raise self.fail(f"the candidate's side sent no arguments back: {error}") from error

    def _encode(self, value: Any) -> Node:
        try:
            return encode(value, self.shared.encode)
        except UnserialisableError as error:
            raise self.refuse(f"the tests hand the candidate what cannot cross: {error}") from error
        except CodecError as error:
            raise self.fail(f"an argument that cannot cross: {error}") from error

    def _called_back(self, message: dict[str, Any]) -> dict[str, Node]:
        """Call a function of the tests for the candidate; the reply."""
        arguments = [self._decode(part) for part in _expect(message.get("args"), list)]
        keywords = {name: self._decode(part) for name, part in _expect(message.get("kwargs"), dict).items()}
        operation = self.shared.operation(message.get("op"), message["back"], arguments, keywords)
        try:
            result = self.on_callback(operation)
        except Unverifiable:
            raise
        except BaseException as error:  # noqa: BLE001  the candidate is to see what the tests' function raised
            return {"back": message["back"], "err": self._encode(error)}
        try:
            return {"back": message["back"], "ok": encode(result, self.shared.encode)}
        except (UnserialisableError, CodecError) as error:
            raise self.fail(f"a function of the tests gave the candidate what cannot cross: {error}") from error

    def _decode(self, node: Node) -> Any:
        return decode(node, self._decode_other)

    def _decode_other(self, tag: str, payload: Any, value: Callable[[Node], Any]) -> Any:
        decoders: dict[str, Callable[[], Any]] = {
            "H": lambda: self._handles.make(_expect(payload, dict), value),
            "X": lambda: self._errors.class_of(payload),
            "E": lambda: self._errors.make(_expect(payload, dict), value),
            "K": lambda: self.shared.get(payload),
            "W": lambda: self._coroutine(_expect(payload, int)),
        }
        return decoders[tag]() if tag in decoders else decode_value(tag, payload, value)

    async def _coroutine(self, number: int) -> Any:
        return self.ask("await", number)


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise CodecError(f"{kind.__name__} was expected")
    return value
