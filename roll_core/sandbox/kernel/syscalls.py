"""System call numbers by name for the architectures that the jail knows."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from roll_core.sandbox.kernel import aarch64, x86_64
from roll_core.sandbox.types import SandboxUnavailableError


@dataclass(frozen=True, slots=True)
class Architecture:
    """One instruction set as the kernel's filters see it."""

    name: str
    audit: int
    """`AUDIT_ARCH_*`: a call made through another ABI carries another value."""
    numbers: Mapping[str, int]
    """System call number by name."""


def _numbered(runs: Mapping[int, str]) -> dict[str, int]:
    return {name: first + i for first, names in runs.items() for i, name in enumerate(names.split())}


ARCHITECTURES: Mapping[str, Architecture] = {
    "x86_64": Architecture("x86_64", x86_64.AUDIT_ARCH, _numbered(x86_64.RUNS)),
    "aarch64": Architecture("aarch64", aarch64.AUDIT_ARCH, _numbered(aarch64.RUNS)),
}
"""By the name that `uname -m` prints."""


@cache
def this_architecture() -> Architecture:
    """The architecture of this process.

    Raises:
        SandboxUnavailableError: not Linux, not 64-bit little-endian, or an architecture without a table.
    """
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in ARCHITECTURES or sys.maxsize < 2**32 or sys.byteorder != "little":
        raise SandboxUnavailableError(
            f"the jail needs 64-bit Linux on {' or '.join(ARCHITECTURES)}; this is {sys.platform} on {machine}"
        )
    return ARCHITECTURES[machine]
