"""Framed messages over a socket, with a deadline on every transfer."""

from __future__ import annotations

import socket
import struct
import time

_HEADER = struct.Struct("!Q")
_CHUNK = 1 << 20


class Channel:
    """One end of a stream socket that carries whole messages (bytes), each with its length in front.

    A peer that is stopped or busy makes a transfer end with `TimeoutError`, one that is gone with `EOFError`.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock

    def send(self, message: bytes, timeout_s: float | None = None) -> None:
        """Send one message within `timeout_s` seconds (None waits for ever).

        Raises:
            TimeoutError: the peer did not read it in time.
            EOFError: the peer is gone.
        """
        self._socket.settimeout(timeout_s)
        try:
            self._socket.sendall(_HEADER.pack(len(message)) + message)
        except TimeoutError:
            raise
        except OSError as error:
            raise EOFError("the peer closed the channel") from error

    def receive(self, timeout_s: float | None = None) -> bytes:
        """Receive one message within `timeout_s` seconds (None waits for ever).

        Raises:
            TimeoutError: no whole message arrived in time.
            EOFError: the peer is gone.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        (length,) = _HEADER.unpack(self._read(_HEADER.size, deadline))
        return self._read(length, deadline)

    def close(self) -> None:
        """Close this end; the peer's next read raises `EOFError`."""
        self._socket.close()

    def _read(self, count: int, deadline: float | None) -> bytes:
        parts: list[bytes] = []
        while count:
            if deadline is None:
                self._socket.settimeout(None)
            else:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError("no whole message arrived in time")
                self._socket.settimeout(left)
            try:
                part = self._socket.recv(min(count, _CHUNK))
            except TimeoutError:
                raise
            except OSError as error:
                raise EOFError("the channel is closed") from error
            if not part:
                raise EOFError("the peer closed the channel")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)
