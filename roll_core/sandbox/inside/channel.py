"""Messages between two jails: frames of JSON over a connected stream socket."""

from __future__ import annotations

import os
from typing import Any

from roll_core.sandbox.codec import CodecError, Node, frame_length, loads, pack

_HEADER = 4
_CHUNK = 1 << 20


class Channel:
    """One end of the socket. Not safe for threads by itself."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def send(self, message: dict[str, Node]) -> None:
        """Send one message.

        Raises:
            CodecError: it is too big; nothing was sent.
            OSError: the other side is gone.
        """
        rest = memoryview(pack(message))
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]

    def receive(self) -> dict[str, Any]:
        """Wait for one message.

        Raises:
            EOFError: the other side is gone.
            CodecError: what came is no message.
        """
        message = loads(self._read(frame_length(self._read(_HEADER))))
        if type(message) is not dict:
            raise CodecError("a message must be an object")
        return message

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = os.read(self._descriptor, min(size - len(data), _CHUNK))
            if not part:
                raise EOFError("the other jail closed the channel")
            data += part
        return bytes(data)
