"""The standard library served from memory, for programs that see no file system."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import marshal
import mmap
import os
import struct
import sys
import sysconfig
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from types import CodeType, ModuleType
from typing import NamedTuple

_PYC_HEADER, _WORD, _TRUSTED_HASH = 16, 0xFFFFFFFF, 1
"""Bytes of a .pyc's header (PEP 552); its 32-bit fields; its flags where it is not to be checked against the source."""
_SKIPPED_FOLDERS = frozenset(
    {
        *("test", "tests", "idlelib", "lib2to3", "tkinter", "turtledemo", "ensurepip", "distutils", "pydoc_data"),
        *("site-packages", "dist-packages", "lib-dynload", "__pycache__"),
    }
)
_SKIPPED_EXTENSIONS = ("_test", "_xx", "xx", "_tkinter", "_curses", "readline", "_dbm", "_gdbm", "nis", "ossaudiodev")
"""Prefixes of extension modules that test the interpreter or drive devices."""


class _Source(NamedTuple):
    path: str
    is_package: bool
    place: slice
    """Where its code lies among the code of all."""
    is_compiled: bool


class MemoryModules(MetaPathFinder, Loader):
    """Finds and loads modules whose code was read beforehand."""

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._code: bytearray | mmap.mmap = bytearray()

    def add_folder(self, folder: str, package: str = "") -> None:
        """Read every module below `folder`, which is that of `package` if one is named."""
        for current, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS]
            below = [] if current == folder else os.path.relpath(current, folder).split(os.sep)
            parts = [package, *below] if package else below
            for file in files:
                stem, extension = os.path.splitext(file)
                is_package = stem == "__init__"
                name = ".".join(parts if is_package else [*parts, stem])
                if extension == ".py" and name:
                    self._read(name, os.path.join(current, file), is_package)

    def _read(self, name: str, path: str, is_package: bool) -> None:
        assert isinstance(self._code, bytearray)  # nothing is added after `share`
        bytecode = _bytecode(path)
        if bytecode is None:
            with open(path, "rb") as file:
                code = file.read()
        else:
            code = bytecode
        start = len(self._code)
        self._code += code
        self._sources[name] = _Source(path, is_package, slice(start, len(self._code)), bytecode is not None)

    def share(self) -> None:
        """Move the code to a private mapping of a file in memory, which costs forks nothing."""
        fd = os.memfd_create("modules", os.MFD_CLOEXEC)
        os.ftruncate(fd, len(self._code))
        os.pwrite(fd, self._code, 0)
        self._code = mmap.mmap(fd, len(self._code), flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
        os.close(fd)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The import system's question."""
        source = self._sources.get(fullname)
        if source is None:
            return None
        spec = ModuleSpec(fullname, self, origin=source.path, is_package=source.is_package)
        spec.has_location = True
        if source.is_package:
            spec.submodule_search_locations = [os.path.dirname(source.path)]
        return spec

    def exec_module(self, module: ModuleType) -> None:
        """Run the code of a module in it."""
        assert module.__spec__ is not None  # the import system sets it before it loads
        source = self._sources[module.__spec__.name]
        code = self._code[source.place]
        if source.is_compiled:
            compiled: CodeType = marshal.loads(code)  # noqa: S302 - bytecode that this interpreter has cached
        else:
            compiled = compile(bytes(code), source.path, "exec", dont_inherit=True)
        exec(compiled, module.__dict__)  # noqa: S102 - loading a module is running its code

    def get_source(self, fullname: str) -> str | None:
        """No source text: `linecache` asks."""
        return None


def _bytecode(path: str) -> bytes | None:
    """What the interpreter has cached of a source file, unless there is none or it is stale."""
    try:
        with open(importlib.util.cache_from_source(path), "rb") as file:
            cached = file.read()
    except FileNotFoundError:
        return None
    status = os.stat(path)
    flags, modified, size = struct.unpack_from("<III", cached, 4)
    is_fresh = flags == 0 and modified == int(status.st_mtime) & _WORD and size == status.st_size & _WORD
    if cached[:4] != importlib.util.MAGIC_NUMBER or not (is_fresh or flags == _TRUSTED_HASH):
        return None
    return cached[_PYC_HEADER:]


def serve_from_memory(preloaded: Sequence[str]) -> None:
    """Serve the standard library and the packages of preloaded modules; import the library's extension modules.

    Extension modules cannot be loaded from memory: those of packages must be among the preloaded modules.
    """
    modules = MemoryModules()
    modules.add_folder(sysconfig.get_paths()["stdlib"])
    for package in {name.partition(".")[0] for name in preloaded}:
        for folder in getattr(sys.modules[package], "__path__", ()):
            modules.add_folder(folder, package)
    modules.share()
    sys.meta_path.append(modules)
    extensions = os.path.join(sysconfig.get_paths()["platstdlib"], "lib-dynload")
    for file in sorted(os.listdir(extensions)) if os.path.isdir(extensions) else ():
        name = file.partition(".")[0]
        if file.endswith(tuple(EXTENSION_SUFFIXES)) and not name.startswith(_SKIPPED_EXTENSIONS):
            with contextlib.suppress(ImportError):  # its shared library is missing here, as for any program
                importlib.import_module(name)
    for name in ("encodings.idna", "encodings.latin_1", "encodings.ascii", "encodings.utf_16", "linecache"):
        importlib.import_module(name)
