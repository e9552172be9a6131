"""`rollfile.py`: a project's own plugin without packaging, switched on by `--rollfile` or `plugins.rollfile`."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from roll_core.errors import PluginError
from roll_core.plugin.records import describe_failure

ROLLFILE = "rollfile"
"""Name of the plugin a rollfile becomes."""


def rollfile_version(path: Path) -> str:
    """The first 12 hex digits of the SHA-256 of the file's text: the "version" of a rollfile.

    Raises:
        PluginError: the file cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    except OSError as error:
        raise PluginError(f"rollfile '{path}' cannot be read: {error.strerror or error}") from error


def rollfile_module(path: Path) -> str:
    """Name of the module a rollfile is loaded as: the same in every process, another for another text or path."""
    place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    return f"roll_rollfile_{place}_{rollfile_version(path)}"


def load_rollfile(path: Path) -> ModuleType:
    """Import a rollfile, once per process and text. Its folder is appended to `sys.path` for modules beside it.

    Raises:
        PluginError: the file is missing, or raised; the message names file and line.
    """
    path = path.resolve()
    name = rollfile_module(path)
    if name in sys.modules:
        return sys.modules[name]
    loader = _FreshLoader(name, str(path))
    module = importlib.util.module_from_spec(ModuleSpec(name, loader, origin=str(path)))
    module.__file__ = str(path)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[name] = module
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise PluginError(f"rollfile: {describe_failure(error, str(path))}") from error
    except BaseException:
        del sys.modules[name]
        raise
    return module


class _FreshLoader(SourceFileLoader):
    """Compiles the text as it is now: cached bytecode is trusted by time stamp, which is too coarse for an edit."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)
