"""Who the zygote and the programs are: unprivileged users, user namespaces, last words about privileges."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

from roll_core.sandbox.kernel import libc

_NOBODYS_UIDS = ((1_900_000_000, 200_000_000), (61_184, 4_336))
"""Ranges of ids, as (first, count), that systems give to nobody: beyond all users and containers, or the transient ones
of systemd where a container has only the first 65,536."""
SLOTS = 1000
"""How many ids a zygote of root takes, so that programs which run at the same time are strangers to each other."""
_CAP_SETGID, _CAP_SETUID = 6, 7


def mapped_uids() -> list[tuple[int, int]]:
    """The ranges of user ids that exist in this user namespace, as (first, count)."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return [(int(first), int(count)) for first, _, count in (line.split() for line in file)]


def unprivileged_uids() -> range | None:
    """Ids that belong to nobody, for the programs of a root host; None where it cannot become another user."""
    if os.geteuid() != 0 or not _may_change_ids():
        return None
    mapped = mapped_uids()
    for first, count in _NOBODYS_UIDS:
        if any(start <= first and first + count <= start + length for start, length in mapped):
            start = first + random.SystemRandom().randrange(count - SLOTS)
            return range(start, start + SLOTS)
    return None


def _may_change_ids() -> bool:
    """Whether this process has the capabilities that changing its ids takes; root of a container may not."""
    with open("/proc/self/status", encoding="ascii") as file:
        effective = next(int(line.split()[1], 16) for line in file if line.startswith("CapEff:"))
    return bool(effective >> _CAP_SETGID & 1 and effective >> _CAP_SETUID & 1)


def become(uid: int) -> None:
    """Give up root for `uid` with its equally numbered group, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    libc.prctl(libc.PR_SET_DUMPABLE, 1)  # the change cleared it, and with it the right to write /proc/self/uid_map


def map_own_ids(proc: int, uid: int, gid: int) -> None:
    """Map this process's ids to themselves in the user namespace that it has just made.

    Args:
        proc: a descriptor of /proc.
        uid: the user id, inside and outside.
        gid: the group id, inside and outside.
    """
    for name, text in _maps(uid, gid):
        fd = os.open(f"self/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


def _maps(uid: int, gid: int) -> Iterator[tuple[str, str]]:
    yield "setgroups", "deny"
    yield "gid_map", f"{gid} {gid} 1"
    yield "uid_map", f"{uid} {uid} 1"


def offer_to_the_oom_killer(proc: int) -> None:
    """Let the kernel kill this process, a program, before the zygote, the host or anything else."""
    fd = os.open("self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        os.write(fd, b"1000")
    finally:
        os.close(fd)
