"""The devices of a run: read from a budget such as `16x80GB`, named `machine:device`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roll_core.errors import ConfigError

UNITS = {"GB": 10**9, "GIB": 2**30}
NONE = "none"
"""The budget of a run that uses no devices, whatever there are."""
_TERM = re.compile(r"(\d+)\s*x\s*(\d+(?:\.\d+)?)\s*(GB|GiB)", re.IGNORECASE)
_PLACE = re.compile(r"(\d+):(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """One device."""

    node: int
    index: int
    memory: int
    """Bytes."""

    @property
    def name(self) -> str:
        """Written "machine:device"."""
        return f"{self.node}:{self.index}"


def parse_budget(text: str, gpus_per_node: int = 8) -> tuple[Device, ...]:
    """Read a budget: terms `COUNTxMEMORY` joined by `+`, each of machines of its own.

    Args:
        text: `16x80GB`, `2x24GB + 8x80GB`, `none`; GB are 10^9 bytes, GiB 2^30.
        gpus_per_node: a longer term is several machines of so many.

    Raises:
        ConfigError: it cannot be read.
    """
    if text.strip().lower() == NONE:
        return ()
    devices: list[Device] = []
    node = 0
    for term in text.split("+"):
        match = _TERM.fullmatch(term.strip())
        if match is None or int(match.group(1)) == 0:
            raise ConfigError(
                f"cannot read '{term.strip()}' in the budget '{text}'; write COUNTxMEMORY, for instance 16x80GB, and "
                "join different machines by '+', for instance 2x24GB+8x80GB"
            )
        count, memory = int(match.group(1)), int(float(match.group(2)) * UNITS[match.group(3).upper()])
        for start in range(0, count, gpus_per_node):
            devices += [Device(node, index, memory) for index in range(min(gpus_per_node, count - start))]
            node += 1
    return tuple(devices)


def parse_process(text: str, devices: Sequence[Device], role: str) -> tuple[Device, ...]:
    """The devices of one process of a hand-written map.

    Args:
        text: "0:3" or "0:2-5".
        devices: what there is.
        role: for the message.

    Raises:
        ConfigError: it cannot be read, or names a device that is not there.
    """
    match = _PLACE.fullmatch(text.strip())
    if match is None:
        raise ConfigError(f"cluster.map.{role}: cannot read '{text}'; write machine:device, or machine:first-last")
    node, first = int(match.group(1)), int(match.group(2))
    last = int(match.group(3)) if match.group(3) else first
    there = {(device.node, device.index): device for device in devices}
    wanted = [(node, index) for index in range(first, last + 1)]
    missing = [f"{n}:{i}" for n, i in wanted if (n, i) not in there]
    if missing or not wanted:
        raise ConfigError(
            f"cluster.map.{role}: '{text}' names {', '.join(missing) or 'no device'}; there are {names_of(devices)}"
        )
    return tuple(there[place] for place in wanted)


def names_of(devices: Iterable[Device]) -> str:
    """Devices for people: "0:0-7, 1:0-3"; three and more machines alike together, "0-5:0-7"."""
    by_node: dict[int, list[int]] = {}
    for device in sorted(devices):
        by_node.setdefault(device.node, []).append(device.index)
    runs: list[tuple[list[int], list[int]]] = []
    for node, indices in by_node.items():
        if runs and runs[-1][1] == indices and runs[-1][0][-1] == node - 1:
            runs[-1][0].append(node)
        else:
            runs.append(([node], indices))
    texts = []
    for nodes, indices in runs:
        names = [f"{nodes[0]}-{nodes[-1]}"] if len(nodes) > 2 else [str(node) for node in nodes]
        texts += [f"{name}:{span}" for name in names for span in _spans(indices)]
    return ", ".join(texts)


def _spans(numbers: Sequence[int]) -> list[str]:
    """[0, 1, 2, 5] as ["0-2", "5"]."""
    texts = []
    start = previous = numbers[0]
    for number in [*numbers[1:], -1]:
        if number != previous + 1:
            texts.append(str(start) if start == previous else f"{start}-{previous}")
            start = number
        previous = number
    return texts


def gigabytes(amount: float) -> str:
    """Bytes in GB for people."""
    return f"{amount / 1e9:.1f}"
