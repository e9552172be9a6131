"""Atomic, complete checkpoints of a run, written while the run goes on.

A checkpoint is a folder `step-00000012` that appears under its name only when every file in it is on disk, with a
list of sizes and checksums. A run killed at any moment leaves either the whole new checkpoint or only the previous
ones; a failed write (full disk, read-only folder) removes what it left and keeps the previous ones.
"""

from __future__ import annotations

from roll_core.checkpoint.files import MANIFEST_FILE, PENDING_FOLDER, STATE_FILE, STRATEGY_FOLDER
from roll_core.checkpoint.saver import Saver
from roll_core.checkpoint.saving import Saving
from roll_core.checkpoint.store import Checkpoint, CheckpointStore

__all__ = [
    "MANIFEST_FILE",
    "PENDING_FOLDER",
    "STATE_FILE",
    "STRATEGY_FOLDER",
    "Checkpoint",
    "CheckpointStore",
    "Saver",
    "Saving",
]
