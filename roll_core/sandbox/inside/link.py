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
from roll_core.sandbox.inside.asking import number_of
from roll_core.sandbox.inside.channel import Channel
from roll_core.sandbox.inside.handles import HandleTypes
from roll_core.sandbox.inside.reads import Reads
from roll_core.sandbox.inside.remote_errors import ENDS_LOOPS, RemoteErrors, is_remote
from roll_core.sandbox.inside.shared import Shared
from roll_core.sandbox.inside.values import decode_value

MAX_REQUESTS = 1_000_000
"""Requests of one test."""

MODULES = frozenset(
    [
        "abc",
        "array",
        "bisect",
        "calendar",
        "cmath",
        "collections",
        "collections.abc",
        "copy",
        "datetime",
        "decimal",
        "enum",
        "fractions",
        "functools",
        "heapq",
        "itertools",
        "json",
        "math",
        "numbers",
        "operator",
        "random",
        "re",
        "statistics",
        "string",
        "textwrap",
        "time",
        "typing",
    ]
)
"""Modules that a name of the candidate's may stand for; importing one of another name may do anything, even exit."""

ANY_ERROR = (AssertionError, Exception, BaseException)
"""As the candidate's own exception classes these would catch what the tests raise themselves."""


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
        self.has_answered = False
        """Whether values of the candidate's came over, so that what the tests do may be its doing."""
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
        self.reads = Reads()
        self._coroutines: dict[int, tuple[Any, int]] = {}
        self._handles = HandleTypes(self)
        self._errors = RemoteErrors(self)

    def fail(self, reason: str) -> Unverifiable:
        """Record that the candidate cannot be verified; the exception to raise."""
        self.fault = self.fault or reason
        return Unverifiable(reason)

    def refuse(self, reason: str) -> Unverifiable:
        """Record that the tests do what cannot cross; the exception to raise.

        It is the task's fault only while no value of the candidate's can have had a part in it.
        """
        if self.has_answered:
            return self.fail(reason)  # the candidate may have led the tests there
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
        value = self._own_error(name, self._result(reply))
        self.has_answered = self.has_answered or number_of(value) is None
        return True, value

    def _own_error(self, name: Any, value: Any) -> Any:
        if any(value is kind for kind in ANY_ERROR):
            raise self.fail(f"the candidate's {str(name)[:80]!r} is {value.__name__} itself, which anything raises")
        return value

    def _module(self, name: Any) -> types.ModuleType:
        """The tests' own copy of a module that the candidate imported."""
        if type(name) is not str or name not in MODULES:
            raise self.fail(f"a module of the candidate's that the tests do not take from it: {str(name)[:80]!r}")
        return importlib.import_module(name)

    def ask(self, operation: str, on: int, *arguments: Any, **keywords: Any) -> Any:
        """Do one operation on the candidate's object of that number; its result, or its exception raised."""
        request: dict[str, Node] = {
            "op": operation,
            "on": on,
            "args": [self._encode(part) for part in arguments],
            "kwargs": {name: self._encode(part) for name, part in keywords.items()},
        }
        copies_back = self._copy_back and operation == "call"
        if copies_back:
            request["copy_back"] = True
        self.was_used = True
        concerned = [number_of(part) for part in (*arguments, *keywords.values())]
        self.reads.before(operation, on, [number for number in concerned if number is not None])
        reply = self._exchange(request)
        self.has_answered = True
        if "args" in reply:
            if not copies_back:
                raise self.fail("the candidate's side sent arguments back that nobody asked for")
            self._restore(reply["args"], arguments)
        result = self._result(reply, operation)
        return self._own_error(arguments[0], result) if operation == "attr" else result

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
        if not is_remote(error):
            error.__dict__["_roll_crossed_"] = True  # it came from the tests first
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

    def _other(self, value: Any, node: Callable[[Any], Node]) -> Node:
        if type(value) is types.CoroutineType and id(value) in self._coroutines:
            return {"H": self._coroutines[id(value)][1]}
        if type(value) is types.ModuleType and value.__name__ in MODULES:
            raise self.fail("a module of the candidate's cannot be handed back to it")
        return self.shared.encode(value, node)

    def _encode(self, value: Any) -> Node:
        try:
            return encode(value, self._other)
        except UnserialisableError as error:
            raise self.refuse(f"the tests hand the candidate what cannot cross: {error}") from error
        except CodecError as error:
            raise self.fail(f"an argument that cannot cross: {error}") from error

    def _called_back(self, message: dict[str, Any]) -> dict[str, Node]:
        """Call a function of the tests for the candidate; the reply."""
        self.has_answered = True
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
            return {"back": message["back"], "ok": encode(result, self._other)}
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
            "W": lambda: self._awaitable(_expect(payload, int)),
        }
        return decoders[tag]() if tag in decoders else decode_value(tag, payload, value)

    def _awaitable(self, number: int) -> Any:
        coroutine = self._coroutine(number)
        self._coroutines[id(coroutine)] = (coroutine, number)  # kept, so that its id stays its own
        return coroutine

    async def _coroutine(self, number: int) -> Any:
        return self.ask("await", number)


def _expect(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise CodecError(f"{kind.__name__} was expected")
    return value
