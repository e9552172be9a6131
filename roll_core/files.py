"""Files that are whole or absent, and errors that say which file they are about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader, or a crash, sees the old content or the new one, never a part."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add `path` to an error of the operating system that names no file (a full disk shows while writing, not opening).

    Raises:
        OSError: of the same class, with the name.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
