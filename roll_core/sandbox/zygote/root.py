"""The root folder of the `ns` level: an allow list of read-only trees, a few devices, one scratch folder.

There is no /proc: what a program sees is then the same everywhere, and containers refuse to mount it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from roll_core.sandbox.kernel import libc

SCRATCH_PARENT = "/sandbox"
"""Holds nothing but the scratch folder: a Landlock rule covers what is mounted below, not what is mounted on."""
SCRATCH = f"{SCRATCH_PARENT}/work"
"""Where each run gets a fresh folder of its own; /tmp and /dev/shm lead there."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")
_ALIASES = ("/tmp", "/dev/shm")  # noqa: S108 - names inside the jail
_STAGE = "/tmp"  # noqa: S108 - covered by a private mount before anything is put there


def build_root(readable: Sequence[str]) -> None:
    """Build the root and move into it; the caller has a mount namespace of its own.

    Args:
        readable: files and folders shown read-only; symbolic links are made anew.

    Raises:
        OSError: the kernel or a security module refuses one of the mounts.
    """
    libc.mount("none", "/", None, libc.MS_REC | libc.MS_PRIVATE)
    links = {path: os.readlink(path) for path in readable if os.path.islink(path)}
    read_only = libc.MOUNT_ATTR_RDONLY | libc.MOUNT_ATTR_NOSUID | libc.MOUNT_ATTR_NODEV
    trees = [(path, _clone(path, read_only, recursive=True)) for path in readable if path not in links]
    no_exec = libc.MOUNT_ATTR_NOSUID | libc.MOUNT_ATTR_NOEXEC
    trees += [(path, _clone(path, no_exec, recursive=False)) for path in DEVICES if os.path.exists(path)]
    are_folders = {path: os.path.isdir(path) for path, _ in trees}
    # the sources are held by descriptors now, so covering /tmp hides none of them
    libc.mount("tmpfs", _STAGE, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "size=1m,nr_inodes=512,mode=755")
    for path, fd in trees:
        _attach(fd, _STAGE + path, is_folder=are_folders[path])
    os.makedirs(_STAGE + SCRATCH)
    for path, target in links.items() | {(alias, SCRATCH) for alias in _ALIASES}:
        if not os.path.lexists(_STAGE + path):  # a tree below /tmp keeps it a folder
            os.makedirs(os.path.dirname(_STAGE + path), exist_ok=True)
            os.symlink(target, _STAGE + path)
    os.chdir(_STAGE)
    libc.pivot_here()
    libc.restrict_mount(libc.AT_FDCWD, libc.MOUNT_ATTR_RDONLY, path="/", recursive=False)


def _clone(path: str, attributes: int, *, recursive: bool) -> int:
    fd = libc.clone_tree(path, recursive=recursive)
    libc.restrict_mount(fd, attributes, recursive=recursive)
    return fd


def _attach(fd: int, target: str, *, is_folder: bool) -> None:
    os.makedirs(target if is_folder else os.path.dirname(target), exist_ok=True)
    if not is_folder:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o444))
    libc.attach_tree(fd, target)
    os.close(fd)


def mount_scratch(disk_mb: int) -> None:
    """Give this run, in a mount namespace of its own, a fresh scratch folder and go there."""
    flags = libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC
    inodes = 1024 + 16 * disk_mb
    size = max(disk_mb << 20, 1)  # rounded up to a page; 0 would be no limit at all
    libc.mount("tmpfs", SCRATCH, "tmpfs", flags, f"size={size},nr_inodes={inodes},mode=700")
    os.chdir(SCRATCH)
