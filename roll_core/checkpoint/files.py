"""The files of a checkpoint: put on disk for good, listed with sizes and checksums, checked against that list."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from roll_core.errors import CheckpointError
from roll_core.files import naming

STATE_FILE = "state.json"
MANIFEST_FILE = "manifest.json"
STRATEGY_FOLDER = "strategy"
PENDING_FOLDER = "pending"

_CHUNK = 1 << 18
"""Bytes read at once; small, since each thread's allocator may keep what it once had."""
_THREADS = 4
"""Files read at once: hashing and fsync leave the interpreter's lock alone."""


class AbandonedError(Exception):
    """Writing was told to stop; nobody waits for the result."""


def write_text(path: Path, text: str) -> None:
    """Write a text; an error names the file."""
    with naming(path):
        path.write_text(text, encoding="utf-8")


def seal(folder: Path, step: int, is_abandoned: Callable[[], bool]) -> int:
    """Put everything in `folder` on disk and write the manifest over it; returns the size in bytes.

    Args:
        folder: holds all files of the checkpoint.
        step: number of committed steps.
        is_abandoned: asked again and again; True stops.

    Raises:
        OSError: a file could not be read or put on disk.
        AbandonedError: as asked.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="roll-checkpoint-files") as pool:
        facts = list(pool.map(lambda path: _facts(path, is_abandoned, to_disk=True), paths))
    names = [path.relative_to(folder).as_posix() for path in paths]
    manifest = folder / MANIFEST_FILE
    write_text(manifest, json.dumps({"step": step, "files": dict(zip(names, facts, strict=True))}))
    _facts(manifest, is_abandoned, to_disk=True)
    for inner in (*(path for path in folder.rglob("*") if path.is_dir()), folder):
        sync_folder(inner)
    return sum(size for size, _ in facts)


def check_files(folder: Path, step: int) -> None:
    """Read every file and compare it with the manifest.

    Raises:
        CheckpointError: names the first file that is missing, truncated or altered, or what is wrong with the manifest.
    """
    listed = _read_manifest(folder, step)
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="roll-checkpoint-files") as pool:
        for problem in pool.map(lambda name: _problem(folder / name, listed[name]), listed):
            if problem:
                raise CheckpointError(problem)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk.

    Raises:
        OSError: with the folder's name.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with naming(folder):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(folder: Path, aside: Path) -> None:
    """Remove a checkpoint: it leaves its name at once, so that a crash leaves none that lacks files.

    Args:
        folder: to be removed.
        aside: a path beside it whose name is not a checkpoint's.

    Raises:
        OSError: it cannot be moved or removed.
    """
    if aside.exists():
        shutil.rmtree(aside)
    folder.rename(aside)
    shutil.rmtree(aside)


def _read_manifest(folder: Path, step: int) -> dict[str, tuple[int, str]]:
    path = folder / MANIFEST_FILE
    try:
        manifest: Any = json.loads(path.read_text(encoding="utf-8"))
        files = {str(name): (int(size), str(digest)) for name, (size, digest) in manifest["files"].items()}
        written = int(manifest["step"])
    except FileNotFoundError as error:
        raise CheckpointError(f"{path} is missing, so the checkpoint is not whole") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    if written != step:
        raise CheckpointError(f"{path} is of step {written}, the folder's name says {step}")
    if STATE_FILE not in files:
        raise CheckpointError(f"{path} does not list {STATE_FILE}")
    return files


def _problem(path: Path, expected: tuple[int, str]) -> str:
    """What is wrong with a file; empty when nothing is."""
    try:
        size = path.stat().st_size
        if size != expected[0]:
            kind = "truncated" if size < expected[0] else "altered"
            return f"checkpoint file {path} is {kind}: {size} bytes where {expected[0]} were written"
        if _facts(path, lambda: False)[1] != expected[1]:
            return f"checkpoint file {path} is altered: its checksum is not that of what was written"
    except FileNotFoundError:
        return f"checkpoint file {path} is missing"
    except OSError as error:
        return f"checkpoint file {path} cannot be read: {error}"
    return ""


def _facts(path: Path, is_abandoned: Callable[[], bool], *, to_disk: bool = False) -> tuple[int, str]:
    """Size and checksum of a file, which is on disk then if wanted."""
    digest, size, chunk = hashlib.blake2b(), 0, memoryview(bytearray(_CHUNK))
    with path.open("rb", buffering=0) as file, naming(path):
        while count := file.readinto(chunk):
            if is_abandoned():
                raise AbandonedError
            digest.update(chunk[:count])
            size += count
        if to_disk:
            os.fsync(file.fileno())
    return size, digest.hexdigest()
