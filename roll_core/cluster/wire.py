"""Messages of several buffers over a stream socket, none of them copied on the way out."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

from roll_core.cluster.reference import Buffer, Parts

_COUNT = struct.Struct("!I")
_SMALL = 1 << 16
_SOCKET_BUFFER = 1 << 22


def make_pair() -> tuple[socket.socket, socket.socket]:
    """Two connected sockets with room for large messages."""
    pair = socket.socketpair()
    for end in pair:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
    return pair


def send(sock: socket.socket, parts: Sequence[Buffer]) -> None:
    """Send one message; small buffers travel together.

    Raises:
        EOFError: the peer is gone.
    """
    views = [memoryview(part).cast("B") for part in parts]
    pending = bytearray(_COUNT.pack(len(views)) + struct.pack(f"!{len(views)}Q", *(view.nbytes for view in views)))
    try:
        for view in views:
            if view.nbytes < _SMALL:
                pending += view
                continue
            sock.sendall(pending)
            sock.sendall(view)
            pending = bytearray()
        sock.sendall(pending)
    except OSError as error:
        raise EOFError("the peer closed the connection") from error


def receive(sock: socket.socket) -> Parts:
    """Receive one message, each buffer in memory of its own.

    Raises:
        EOFError: the peer is gone.
    """
    (count,) = _COUNT.unpack(_read(sock, _COUNT.size))
    sizes = struct.unpack(f"!{count}Q", _read(sock, 8 * count))
    return [_read(sock, size) for size in sizes]


def _read(sock: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        try:
            got = sock.recv_into(view)
        except OSError as error:
            raise EOFError("the connection is closed") from error
        if not got:
            raise EOFError("the peer closed the connection")
        view = view[got:]
    return data
