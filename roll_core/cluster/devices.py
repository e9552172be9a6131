"""Devices of this machine, shared out to processes."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from roll_core.cluster.errors import PlacementError

_VISIBLE = "CUDA_VISIBLE_DEVICES"


def visible_devices(env: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Names of the devices this process may use: `CUDA_VISIBLE_DEVICES`, else every NVIDIA device of the machine.

    CUDA numbers the devices it may open from 0 on, whatever their files are called. As in CUDA, a negative number ends
    the list.
    """
    written = (os.environ if env is None else env).get(_VISIBLE)
    if written is not None:
        names = [name.strip() for name in written.split(",") if name.strip()]
        return tuple(itertools.takewhile(lambda name: not name.startswith("-"), names))
    return tuple(map(str, range(sum(1 for _ in Path("/dev").glob("nvidia[0-9]*")))))


def device_env(devices: Sequence[str]) -> dict[str, str]:
    """The environment in which a process sees just these devices, in the order in which the driver numbers them."""
    return {_VISIBLE: ",".join(devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


class DevicePool:
    """Hands out whole devices, and shares of devices; safe from any thread.

    Args:
        names: the devices there are.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._free = dict.fromkeys(names, 1.0)

    def take(self, amount: float, whom: str) -> tuple[str, ...]:
        """Reserve devices for one process.

        Args:
            amount: whole devices, or a fraction of one (the fullest device that still has room is chosen).
            whom: for the message.

        Raises:
            PlacementError: not enough is free.
        """
        with self._lock:
            if amount >= 1:
                chosen = [name for name, free in self._free.items() if free == 1.0][: int(amount)]
                is_enough = len(chosen) == int(amount)
            else:
                fitting = [name for name, free in self._free.items() if free + 1e-9 >= amount]
                chosen = sorted(fitting, key=lambda name: self._free[name])[:1]
                is_enough = bool(chosen)
            if not is_enough:
                state = ", ".join(f"{name}: {free:g} free" for name, free in self._free.items()) or "none"
                raise PlacementError(f"{whom} asks for {amount:g} devices; this machine's devices are {state}")
            for name in chosen:
                self._free[name] -= min(amount, 1.0)
            return tuple(chosen)

    def withhold(self, names: Iterable[str]) -> None:
        """Take devices out for good; they are somebody else's."""
        with self._lock:
            for name in names:
                del self._free[name]

    def give_back(self, names: Sequence[str], amount: float) -> None:
        """End a reservation."""
        with self._lock:
            for name in names:
                self._free[name] = min(self._free[name] + min(amount, 1.0), 1.0)
