"""What a zygote has made ready for its children."""

from __future__ import annotations

from dataclasses import dataclass

from roll_core.sandbox.kernel.bpf import Program
from roll_core.sandbox.wire import ZygoteConfig
from roll_core.sandbox.zygote.usage import Proc


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything that is the same for all runs of a zygote."""

    config: ZygoteConfig
    proc: Proc
    uid: int
    gid: int
    run_uids: range | None
    """Ids for the runs to become; None: they run as `uid`."""
    program: Program
    """The seccomp filter."""
    ruleset: int | None
    """The Landlock ruleset's descriptor."""
    own_pid_namespace: int | None
    """At `ns`: the zygote's own, where it goes back to after each fork."""
    guards: tuple[int, ...]
    """Descriptors of processes whose end is the zygote's: the host, and at `ns` the launcher."""
    address_space: int
    """Bytes of address space that every child starts with."""
    resident: int
    """Bytes of resident memory that every child may share with the zygote."""
