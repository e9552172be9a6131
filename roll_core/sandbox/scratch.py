"""Files that a program finds in its scratch folder: they travel inside its job and are written by the locked-down run.

They are never in the zygote's memory, of which every program gets a copy.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from roll_core.sandbox.types import Level, Limits

_KEY = "scratch_files"
"""Where they are in a job."""
_MOST_FILES, _MOST_BYTES = 256, 4 << 20
"""Small enough that a run which can do anything at all can write them."""
_PAGE, _LONGEST_NAME = 4096, 255


def pack(files: Mapping[str, bytes], level: Level, limits: Limits) -> dict[str, Any]:
    """What to add to the job of a run so that it starts with `files`.

    Args:
        files: content by path relative to the scratch folder.
        level: the level of the run; only `ns` has a scratch folder.
        limits: limits of the run, of which `disk_mb` counts for these files too.

    Raises:
        ValueError: no scratch folder at this level, a path that leads outside it, too many files or too large ones.
    """
    if not files:
        return {}
    if level != "ns":
        raise ValueError(f"programs have no scratch folder at the level {level!r}, so no files can be put there")
    folders = {".", *(str(folder) for name in files for folder in PurePosixPath(name).parents)}
    for name in files:
        path = PurePosixPath(name)
        is_name = name.isprintable() and all(len(part.encode()) <= _LONGEST_NAME for part in path.parts)
        if not is_name or path.is_absolute() or ".." in path.parts or str(path) in folders:
            raise ValueError(f"a file for the scratch folder needs a relative path within it, not {name!r}")
    pages = sum(-(-len(content) // _PAGE) for content in files.values())
    room = min(limits.disk_mb << 20, _MOST_BYTES)
    if len(files) > _MOST_FILES or pages * _PAGE > room:
        raise ValueError(
            f"{len(files)} files of {pages * _PAGE} bytes are too much for the scratch folder of a run, "
            f"which starts with at most {_MOST_FILES} files of {room} bytes"
        )
    return {_KEY: {name: base64.b64encode(content).decode() for name, content in files.items()}}


def unpack(job: dict[str, Any]) -> None:
    """Inside the run: take the files out of the job and write them to the current folder."""
    for name, content in job.pop(_KEY, {}).items():
        if folder := os.path.dirname(name):
            os.makedirs(folder, exist_ok=True)
        with open(name, "wb") as file:
            file.write(base64.b64decode(content))
