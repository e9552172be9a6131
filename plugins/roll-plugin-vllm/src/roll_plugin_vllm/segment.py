"""Weights in shared memory: written once by the driver, read by every replica of the machine, checked by checksum.

The memory is anonymous (`memfd_create`): it is reached through the owner's file descriptor while the owner lives,
stays for whoever has mapped it, and leaves nothing behind when processes die.
"""

from __future__ import annotations

import mmap
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor

from roll_core.contracts import TensorInfo
from roll_core.errors import BackendError

_ALIGN = 64
_TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one tensor lies."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    checksum: int
    """XXH3 (64 bits) of its bytes."""


@dataclass(frozen=True, slots=True)
class Shipment:
    """How to find a segment and what is in it; small, goes to every replica."""

    path: str
    nbytes: int
    token: str
    """What its first bytes hold, in hexadecimal: another machine may have something else at the same path."""
    entries: tuple[Entry, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for transports that know nothing else."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Shipment:
        """The shipment that `to_dict` took apart."""
        entries = tuple(Entry(**{**entry, "shape": tuple(entry["shape"])}) for entry in values["entries"])
        return cls(values["path"], values["nbytes"], values["token"], entries)


class SegmentUnreachable(BackendError):  # noqa: N818  # not a fault: the machine is another one, the bytes are sent
    """The segment is not to be found from here."""


class Segment:
    """A segment this process owns. `close` gives it up; replicas that have mapped it keep it.

    Args:
        nbytes: its size.
    """

    def __init__(self, nbytes: int) -> None:
        if not hasattr(os, "memfd_create"):
            raise BackendError("weights are handed over in shared memory, which needs Linux (memfd_create)")
        self._descriptor = os.memfd_create("roll-weights", os.MFD_CLOEXEC)
        os.ftruncate(self._descriptor, nbytes)
        self.memory = mmap.mmap(self._descriptor, nbytes)
        self.devices: frozenset[torch.device] = frozenset()
        self.shipment = Shipment(f"/proc/{os.getpid()}/fd/{self._descriptor}", nbytes, "", ())

    @classmethod
    def write(cls, manifest: Sequence[TensorInfo], tensors: Iterable[tuple[str, Tensor]]) -> Segment:
        """Copy announced tensors into a new segment.

        Raises:
            BackendError: what is delivered is not what was announced.
        """
        places, nbytes = _layout(manifest)
        segment = cls(nbytes)
        try:
            entries = tuple(segment._fill(places, tensors))
        except BaseException:
            segment.close()
            raise
        token = secrets.token_bytes(_TOKEN_BYTES)
        segment.memory[:_TOKEN_BYTES] = token
        segment.shipment = Shipment(segment.shipment.path, nbytes, token.hex(), entries)
        return segment

    @classmethod
    def receive(cls, shipment: Shipment, content: np.ndarray[Any, np.dtype[np.uint8]]) -> Segment:
        """A copy of another machine's segment."""
        segment = cls(shipment.nbytes)
        np.frombuffer(segment.memory, np.uint8)[:] = content
        segment.shipment = Shipment(segment.shipment.path, shipment.nbytes, shipment.token, shipment.entries)
        return segment

    def content(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """All bytes, for replicas of other machines."""
        return np.frombuffer(self.memory, np.uint8)

    def close(self) -> None:
        """Give up the descriptor; the memory goes when nobody maps it any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _fill(self, places: dict[str, Entry], tensors: Iterable[tuple[str, Tensor]]) -> Iterator[Entry]:
        outstanding = dict(places)
        view = memoryview(self.memory)
        for name, tensor in tensors:
            place = outstanding.pop(name, None)
            if place is None:
                raise BackendError(f"the weight source delivered '{name}' twice or without announcing it")
            target = _tensor(self.memory, place)
            if tuple(tensor.shape) != place.shape:
                raise BackendError(
                    f"the weight source delivered '{name}' with shape {tuple(tensor.shape)}, announced {place.shape}"
                )
            target.copy_(tensor.detach())
            self.devices |= {tensor.device}
            checksum = xxhash.xxh3_64_intdigest(view[place.offset : place.offset + place.nbytes])
            yield Entry(name, place.dtype, place.shape, place.offset, place.nbytes, checksum)
        if outstanding:
            raise BackendError(f"the weight source did not deliver {', '.join(sorted(outstanding)[:8])}")


class Attached:
    """A segment of another process, mapped copy-on-write: reading costs nothing, writing changes nobody's weights.

    Args:
        shipment: where it is.

    Raises:
        SegmentUnreachable: it is not to be found from this process.
    """

    def __init__(self, shipment: Shipment) -> None:
        self.shipment = shipment
        try:
            descriptor = os.open(shipment.path, os.O_RDONLY)
        except OSError as error:
            raise SegmentUnreachable(f"weights at {shipment.path} cannot be reached from here: {error}") from error
        try:
            if os.fstat(descriptor).st_size != shipment.nbytes:
                raise SegmentUnreachable(f"{shipment.path} holds something else than the weights announced there")
            self._memory = mmap.mmap(
                descriptor, shipment.nbytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
            )
        finally:
            os.close(descriptor)
        if self._memory[:_TOKEN_BYTES].hex() != shipment.token:
            raise SegmentUnreachable(f"{shipment.path} holds something else than the weights announced there")

    def verify(self) -> None:
        """Compare every tensor with its checksum.

        Raises:
            BackendError: bytes differ from what was sent.
        """
        with memoryview(self._memory) as view:
            for entry in self.shipment.entries:
                found = xxhash.xxh3_64_intdigest(view[entry.offset : entry.offset + entry.nbytes])
                if found != entry.checksum:
                    told = f"checksum {found:016x}, sent {entry.checksum:016x}"
                    raise BackendError(f"the weights of '{entry.name}' arrived damaged: {told}")

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Name and tensor, over the mapped memory."""
        for entry in self.shipment.entries:
            yield entry.name, _tensor(self._memory, entry)


def _layout(manifest: Sequence[TensorInfo]) -> tuple[dict[str, Entry], int]:
    """Where each announced tensor goes, and the size of it all."""
    places: dict[str, Entry] = {}
    offset = _ALIGN
    for info in manifest:
        if info.name in places:
            raise BackendError(f"the weight source announces '{info.name}' twice")
        size = _dtype(info.dtype).itemsize * int(np.prod(info.shape, dtype=np.int64))
        places[info.name] = Entry(info.name, info.dtype, tuple(info.shape), offset, size, 0)
        offset += -(-size // _ALIGN) * _ALIGN
    return places, offset


def _dtype(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise BackendError(f"the weight source announces a tensor of dtype '{name}', which torch does not have")
    return found


def _tensor(memory: mmap.mmap, entry: Entry) -> Tensor:
    kind = _dtype(entry.dtype)
    if not entry.nbytes:
        return torch.empty(entry.shape, dtype=kind)
    flat = torch.frombuffer(memory, dtype=kind, offset=entry.offset, count=entry.nbytes // kind.itemsize)
    return flat.view(entry.shape)
