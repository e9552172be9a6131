"""Replies kept on disk by the content of the request."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import tempfile
from pathlib import Path

logger = logging.getLogger(__name__)


class ReplyCache:
    """One file per reply, under the SHA-256 of what was asked; whole or absent, so that processes can share a folder.

    Args:
        folder: made when the first reply is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def get(self, key: str) -> str | None:
        """The reply kept under a key; None when there is none."""
        return await asyncio.to_thread(self._read, self._path(key))

    async def put(self, key: str, reply: str) -> None:
        """Keep a reply. A folder that cannot be written is reported in the log, once per reply."""
        try:
            await asyncio.to_thread(self._write, self._path(key), json.dumps({"reply": reply}))
        except OSError as error:
            logger.warning("a judge's reply was not kept in %s: %s", self._folder, error)

    def _path(self, key: str) -> Path:
        name = hashlib.sha256(key.encode()).hexdigest()
        return self._folder / name[:2] / f"{name}.json"

    def _read(self, path: Path) -> str | None:
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))["reply"]
        except FileNotFoundError:
            return None
        except (OSError, ValueError, LookupError, TypeError) as error:
            logger.warning("a kept reply is unusable and is asked for again: %s (%s)", path, error)
            return None
        return kept if isinstance(kept, str) else None

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".partial-", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
