"""The sandboxes of this process: one per set of options, opened when first needed and shared by all verifiers."""

from __future__ import annotations

import atexit
import importlib.util
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from roll_core.errors import ConfigError
from roll_core.sandbox import DEFAULT_PRELOAD, Level, Sandbox


@dataclass(frozen=True, slots=True)
class Machine:
    """What a sandbox is made from."""

    level: Level | Literal["auto"] = "auto"
    packages: tuple[str, ...] = ()
    """Modules that programs may import beside the standard library; they are loaded once, before any program."""
    zygotes: int = 1

    def sandbox(self) -> Sandbox:
        """This process's sandbox, opened if it is not.

        Raises:
            SandboxError: no level of it holds here, or it cannot start.
        """
        with _state.lock:
            if self not in _state.open:
                _state.open[self] = Sandbox(
                    self.level,
                    zygotes=self.zygotes,
                    preload=(*DEFAULT_PRELOAD, *self.packages),
                    packages=package_folders(self.packages),
                )
            return _state.open[self]


def package_folders(names: Sequence[str]) -> list[Path]:
    """The folders that the named modules are imported from.

    Raises:
        ConfigError: one of them is not installed.
    """
    folders: list[Path] = []
    for name in names:
        top = name.partition(".")[0]
        spec = importlib.util.find_spec(top)
        if spec is None or spec.origin is None:
            raise ConfigError(f"packages: '{name}' is not installed here; install it, or leave it out")
        file = Path(spec.origin)
        folder = file.parent.parent if spec.submodule_search_locations else file.parent
        if folder not in folders:
            folders.append(folder)
    return folders


class _State:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.open: dict[Machine, Sandbox] = {}

    def unlock(self) -> None:
        """In a forked copy of the process: whoever held the lock is not here. The sandboxes see the fork themselves."""
        self.lock = threading.Lock()

    def close(self) -> None:
        with self.lock:
            for sandbox in self.open.values():
                sandbox.close()
            self.open.clear()


_state = _State()
os.register_at_fork(after_in_child=_state.unlock)
atexit.register(_state.close)
