"""What wandb may touch while it is at work: folders of the run, and nothing that outlives the call."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def contained(folder: Path, *, is_silent: bool) -> Iterator[None]:
    """Keep wandb's side effects inside `folder` and inside the block.

    Its staging area and caches go below `folder` (unless the environment names other places), since they default to
    the home directory. It replaces `sys.exit` and `sys.excepthook` to learn how a program ended; the engine tells it,
    so they are put back.

    Args:
        folder: where the files of W&B are kept.
        is_silent: switch off the library's own telemetry, which would use the network in every mode.
    """
    wanted = {"WANDB_DATA_DIR": str(folder / "data"), "WANDB_CACHE_DIR": str(folder / "cache")}
    if is_silent:
        wanted["WANDB_ERROR_REPORTING"] = "false"
    added = {name: value for name, value in wanted.items() if name not in os.environ}
    hooks = sys.exit, sys.excepthook
    os.environ.update(added)
    try:
        yield
    finally:
        sys.exit, sys.excepthook = hooks
        for name in added:
            os.environ.pop(name, None)
