"""Programs in other languages than Python, run by an external sandbox; compilers run inside it too."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, get_args

from roll_core.sandbox.external import ExternalSandbox
from roll_core.sandbox.types import Limits, RunResult, SandboxUnavailableError
from roll_verifier_code.judges import Program

Language = Literal["python", "cpp", "javascript", "bash"]
LANGUAGES: tuple[Language, ...] = get_args(Language)

COMPILE_LIMITS = Limits(cpu_s=30.0, memory_mb=2048, output_kb=256, disk_mb=128)
"""Of a compiler."""
_SYSTEM = (Path("/usr"), Path("/bin"), Path("/lib"), Path("/lib64"))


@dataclass(frozen=True, slots=True)
class Toolchain:
    """How programs of one language are run."""

    source: str
    """Name of the source file."""
    tool: str
    """The interpreter or compiler."""
    arguments: tuple[str, ...]
    compiled: str = ""
    """Name of the file that the compiler makes; empty for an interpreter."""


TOOLCHAINS = {
    "cpp": Toolchain("main.cpp", "g++", ("-O2", "-std=c++17", "-o", "main", "main.cpp"), "main"),
    "javascript": Toolchain("main.js", "node", ("main.js",)),
    "bash": Toolchain("main.sh", "bash", ("main.sh",)),
}


def foreign_program(language: Language, code: str) -> Program:
    """A program of one of `TOOLCHAINS`; what has to be compiled is compiled at its first run.

    A program that does not compile ends every run as its compiler did.

    Raises:
        SandboxUnavailableError: the language's tool is not installed, or there is no external sandbox.
    """
    chain = TOOLCHAINS[language]
    binary, sandbox = _find(chain.tool)
    files = {chain.source: code.encode("utf-8")}
    command = [binary, *chain.arguments]
    if not chain.compiled:
        return lambda stdin, limits: sandbox.run(command, files=files, stdin=stdin, limits=limits, writable=True)
    made: list[RunResult] = []

    def run(stdin: bytes, limits: Limits) -> RunResult:
        if not made:
            built = sandbox.run(command, files=files, limits=COMPILE_LIMITS, writable=True, keep=chain.compiled)
            made.append(built)
        if not made[0].is_clean:
            return made[0]
        program = {chain.compiled: made[0].result}
        return sandbox.run([f"./{chain.compiled}"], files=program, stdin=stdin, limits=limits, writable=True)

    return run


@lru_cache(maxsize=8)
def _find(tool: str) -> tuple[str, ExternalSandbox]:
    """Path of a tool, and a sandbox that shows it to programs."""
    found = shutil.which(tool)
    if found is None:
        raise SandboxUnavailableError(f"'{tool}' is not installed, which programs of this language need")
    binary = Path(found).resolve()
    is_system = any(binary.is_relative_to(folder) for folder in _SYSTEM)
    return str(binary), ExternalSandbox(read_only=() if is_system else (binary.parent.parent,))
