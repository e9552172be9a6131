"""Tensors over TCP, from one process to several, with checksums."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import xxhash
from torch import Tensor

_CHECKSUM_BITS = 63
"""Checksums travel as int64."""


class Broadcasts:
    """A gloo group of its own, beside torch's default one; rank 0 sends.

    Args:
        address: of rank 0.
        port: free there.
        rank: this process's.
        size: processes in all.
        bound: longest wait for the others.
    """

    def __init__(self, address: str, port: int, rank: int, size: int, bound: timedelta) -> None:
        torch_dist: Any = dist  # it exports these without saying so to type checkers
        store = torch_dist.TCPStore(address, port, size, is_master=rank == 0, timeout=bound, wait_for_workers=False)
        self._group = torch_dist.ProcessGroupGloo(torch_dist.PrefixStore("roll-weights", store), rank, size, bound)

    def broadcast(self, tensor: Tensor) -> None:
        """Send a contiguous tensor of host memory from rank 0, or receive it."""
        options: Any = dist.BroadcastOptions()
        options.rootRank = 0
        if tensor.numel():
            self._group.broadcast([tensor.reshape(-1).view(torch.uint8)], options).wait()


def checksum(tensor: Tensor) -> int:
    """XXH3 of a contiguous tensor's bytes, cut to what an int64 holds."""
    if not tensor.numel():
        return 0
    content: Any = tensor.reshape(-1).view(torch.uint8).numpy()
    digest = xxhash.xxh3_64_intdigest(content)
    return digest & ((1 << _CHECKSUM_BITS) - 1)
