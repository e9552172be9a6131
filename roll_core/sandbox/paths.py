"""Which paths a jailed program may read: its interpreter's library and the system's shared libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from functools import cache

from roll_core.sandbox.types import SandboxError

_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo")
_PROGRAMS = ("/bin", "/usr/bin")
_OLDEST_PYTHON = [3, 11]
_ASK = (
    "import json, sys, sysconfig; p = sysconfig.get_paths(); "
    "print(json.dumps([p['stdlib'], p['platstdlib'], sysconfig.get_config_var('LIBDIR') or '', sys.base_prefix, "
    "list(sys.version_info[:2])]))"
)


def readable_paths(python: str, packages: Sequence[str], *, allow_processes: bool) -> list[str]:
    """The shortest list of files and folders that covers what programs need.

    Args:
        python: the interpreter.
        packages: folders with packages that programs may import.
        allow_processes: also what `subprocess` and `multiprocessing` start: the interpreter, the system's programs.

    Raises:
        SandboxError: the interpreter does not answer, or is too old.
    """
    standard_library, platform_library, shared, prefix = _interpreter(python)
    wanted = [standard_library, platform_library, shared, *_SYSTEM, *packages]
    if allow_processes:
        wanted += [*_PROGRAMS, os.path.join(prefix, "bin"), os.path.dirname(os.path.abspath(python))]
    return _without_nested(path for path in wanted if path and os.path.exists(path))


@cache
def _interpreter(python: str) -> tuple[str, str, str, str]:
    if python == sys.executable:
        paths = sysconfig.get_paths()
        return paths["stdlib"], paths["platstdlib"], sysconfig.get_config_var("LIBDIR") or "", sys.base_prefix
    try:
        answer = subprocess.run([python, "-I", "-S", "-c", _ASK], capture_output=True, check=True, timeout=60)  # noqa: S603 - the caller's own interpreter
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"the interpreter {python!r} for jailed programs does not run: {error}") from error
    standard_library, platform_library, shared, prefix, version = json.loads(answer.stdout)
    if version < _OLDEST_PYTHON:
        raise SandboxError(f"jailed programs need Python 3.11 or later; {python!r} is {'.'.join(map(str, version))}")
    return standard_library, platform_library, shared, prefix


def _without_nested(paths: Iterable[str]) -> list[str]:
    """Leave out what lies below another path of the list; symbolic links cover nothing."""
    kept: list[str] = []
    for path in sorted(set(paths), key=len):
        if not any(path.startswith(f"{other}/") for other in kept if not os.path.islink(other)):
            kept.append(path)
    return kept
