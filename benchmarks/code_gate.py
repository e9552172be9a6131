"""Runs a corpus of programs, honest and hostile ones, through the code verifier, and looks at the host afterwards.

    python benchmarks/code_gate.py CASES.jsonl                    # at every level of the sandbox
    python benchmarks/code_gate.py CASES.jsonl --level landlock seccomp --only c031 c114 --verbose

Each line of CASES is an object with `id`, `kind`, `candidate`, `tests`, `expected` (pass, fail, timeout, error), and
optionally `also_ok`, `expected_score`, `attack`, `limits`, `plant` and `cause`. Before a row runs, the host is prepared
with what it may try to get at, and afterwards looked at:

* `@CANARY@` in the line becomes a fresh folder with `secret.txt` and `vf_hidden_test.py`, which must be untouched, with
  nothing new in it or beside it; `@CANARY_PORT@` and `{canary_port}` the port of a listener that nobody may reach.
* `VF_CANARY_SECRET` is set in this process; a process `sleep 98765` must outlive everything.
* No process, mount, descriptor or file of the run may be left, no secret in the verdict, little memory have been used.

Right is a row whose outcome is in `expected` or `also_ok`, with `expected_score` as its fraction where it is as
expected, and a clean host. An attack is paid when it passes although passing is not among them. Exit status 1 when a
row is wrong or an attack is paid. The last line is `rows <n> wrong <n> attacks <n> paid <n>`.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from roll_core import load_verifier
from roll_core.sandbox import LEVELS, SandboxError
from roll_verifier_code import NoProgramError, extract_code, outcome_of

SECRET_VARIABLE = "VF_CANARY_SECRET"
SCRATCH_FILE = ".vf_scratch"
SLEEPER = ["sleep", "98765"]
MEMORY_MB = 64
LEAVE_S = 2.0
"""How long a process of a run may take to be gone after its verdict."""
MARKER = "vf_canary_marker.py"


@dataclass(slots=True)
class Found:
    """What became of one row at one level."""

    id: str
    kind: str
    level: str
    is_attack: bool
    expected: str
    outcome: str
    fraction: float | None
    seconds: float
    detail: str
    reason: str
    faults: list[str] = field(default_factory=list)
    is_paid: bool = False


class Host:
    """The things on this machine that no candidate may touch."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        os.chdir(self.work)
        self._boxes = folder / "boxes"
        self._boxes.mkdir()
        self.secret = secrets.token_hex(16)
        os.environ[SECRET_VARIABLE] = self.secret
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans of a run become our children
        self._sleeper = subprocess.Popen(SLEEPER)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._listener.setblocking(False)
        self.port = self._listener.getsockname()[1]
        self._known: set[int] = set()

    def close(self) -> None:
        """End what was started."""
        self._sleeper.kill()
        self._sleeper.wait()
        self._listener.close()

    def settle(self) -> None:
        """Take what is there now for what belongs there (after the sandbox has started)."""
        self._known = descendants(os.getpid())

    @contextlib.contextmanager
    def watched(self) -> Iterator[tuple[Path, list[str]]]:
        """Yield a fresh canary folder, and a list that holds the faults found when the block ends."""
        box = Path(tempfile.mkdtemp(dir=self._boxes))
        canary = box / "canary"
        canary.mkdir()
        (canary / "secret.txt").write_text(f"{self.secret}\n")
        (canary / "vf_hidden_test.py").write_text(f"assert square(3) == 9  # {self.secret}\n")
        before, held = snapshot(box), (len(os.listdir("/proc/self/fd")), mounts())
        baseline = resident_mb(reset=True)
        faults: list[str] = []
        yield canary, faults
        if snapshot(box) != before:
            faults.append("the canary folder or its neighbourhood was changed")
        if (peak := resident_mb()) > baseline + MEMORY_MB:
            faults.append(f"the harness used {peak - baseline:.0f} MB above its baseline")
        faults += self._left_behind(held)

    def _left_behind(self, held: tuple[int, list[str]]) -> Iterator[str]:
        deadline = time.monotonic() + LEAVE_S
        while (left := descendants(os.getpid()) - self._known) and time.monotonic() < deadline:
            time.sleep(0.02)
        if left:
            yield f"processes left: {sorted(left)}"
        if self._sleeper.poll() is not None:
            yield "the process 'sleep' of the same user was ended"
            self._sleeper = subprocess.Popen(SLEEPER)
            self._known.add(self._sleeper.pid)
        with contextlib.suppress(BlockingIOError):
            self._listener.accept()[0].close()
            yield "the listener of the host was reached"
        if (len(os.listdir("/proc/self/fd")), mounts()) != held:
            yield "descriptors or mounts left"
        if files := [path.name for path in self.work.iterdir()]:
            yield f"files left in the working folder: {files}"
        if any((Path(folder) / MARKER).exists() for folder in sys.path if folder):
            yield f"{MARKER} was planted in a folder of the interpreter"


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, time of change and content of everything below a folder."""
    found = {}
    for path in [folder, *sorted(folder.rglob("*"))]:
        stat = path.lstat()
        found[str(path)] = stat.st_mode, stat.st_mtime_ns, path.read_bytes() if path.is_file() else b""
    return found


def mounts() -> list[str]:
    """What this process sees mounted."""
    return Path("/proc/self/mounts").read_text().splitlines()


def resident_mb(*, reset: bool = False) -> float:
    """This process's largest resident memory since the last reset, in MiB."""
    if reset:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def descendants(pid: int) -> set[int]:
    """All processes below one, zombies too."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                stat = (entry / "stat").read_text(errors="replace")  # a process names itself, not always in UTF-8
                children[int(stat.rpartition(")")[2].split()[1])].append(int(entry.name))
    found: set[int] = set()
    queue = [pid]
    while queue:
        below = children[queue.pop()]
        found.update(below)
        queue += below
    return found


def expand(tests: dict[str, Any], port: int) -> dict[str, Any]:
    """Replace what only a runner may evaluate: expressions and templates by the corpus's author."""
    cases = []
    for case in tests.get("cases", ()):
        plain = {}
        for key, value in case.items():
            name, _, form = key.partition("_")
            if form == "python":
                plain[name] = str(eval(value))
            elif form == "template":
                plain[name] = value.replace("{canary_port}", str(port))
            else:
                plain[key] = value
        cases.append(plain)
    return {**tests, "cases": cases} if "cases" in tests else tests


def planted(candidate: str) -> str:
    """The candidate's program behind a line that makes the scratch file in its own folder, where it has one."""
    try:
        code = extract_code(candidate)
    except NoProgramError:
        return candidate
    return f"try: open({SCRATCH_FILE!r}, 'w').close()\nexcept OSError: pass\n{code}"


def run_row(line: str, verifier: Any, host: Host, level: str) -> Found:
    """Judge one line of the corpus at one level."""
    with host.watched() as (canary, faults):
        row = json.loads(line.replace("@CANARY@", str(canary)).replace("@CANARY_PORT@", str(host.port)))
        candidate = planted(row["candidate"]) if SCRATCH_FILE in row.get("plant", ()) else row["candidate"]
        started = time.perf_counter()
        verdict = verifier(candidate, expand(row["tests"], host.port), limits=row.get("limits"))
        seconds = time.perf_counter() - started
    said = outcome_of(verdict)
    found = Found(
        row["id"], row["kind"], level, bool(row["attack"]), row["expected"], said.outcome, said.fraction, seconds,
        verdict.detail, verdict.reason, faults,
    )  # fmt: skip
    right = {row["expected"], *row.get("also_ok", ())}
    if said.outcome not in right:
        faults.append(f"{said.outcome}, not {' or '.join(sorted(right))}")
    if said.cause != row.get("cause", "candidate"):
        faults.append(f"the cause is {said.cause}")
    if (verdict.score is None) is not (said.cause != "candidate") or (verdict.score or 0) != (said.outcome == "pass"):
        faults.append(f"the score is {verdict.score}")
    wanted = row.get("expected_score")
    if wanted is not None and said.outcome == row["expected"] and abs((said.fraction or 0.0) - wanted) > 1e-6:
        faults.append(f"the fraction is {said.fraction}, not {wanted}")
    if level != "auto" and said.level not in ("", level):
        faults.append(f"it ran at level {said.level}")
    if any(host.secret in text for text in (verdict.answer or "", verdict.detail, verdict.reason)):
        faults.append("the secret came out")
    found.is_paid = found.is_attack and "pass" not in right and (verdict.score == 1.0 or said.outcome == "pass")
    return found


def report(found: list[Found], *, verbose: bool) -> None:
    """Rows that are wrong (or all of them), and a table by kind."""
    for one in found:
        if one.faults or verbose:
            text = "; ".join(one.faults) or "right"
            print(f"{one.id} {one.kind} [{one.level}] {text} ({one.seconds:.2f} s)\n    {one.detail} | {one.reason}")
    levels = list(dict.fromkeys(one.level for one in found))
    print(f"\n{'kind':20s}" + "".join(f"{level:>12s}" for level in levels))
    for kind in [*sorted({one.kind for one in found}), "all"]:
        cells = []
        for level in levels:
            rows = [one for one in found if one.level == level and kind in (one.kind, "all")]
            cells.append(f"{sum(not one.faults for one in rows)}/{len(rows)}")
        print(f"{kind:20s}" + "".join(f"{cell:>12s}" for cell in cells))


def run_level(level: str, lines: list[str], host: Host) -> list[Found]:
    """All rows at one level."""
    verifier = load_verifier("code", level=level)
    warm = verifier("print(1)", {"type": "stdio", "cases": [{"stdin": "", "stdout": "1"}]})
    if warm.score != 1.0:
        raise SandboxError(f"level {level}: {warm.reason}")
    host.settle()
    return [run_row(line, verifier, host, level) for line in lines]


def main() -> int:
    """Run the corpus and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--level", nargs="+", default=list(LEVELS), choices=[*LEVELS, "auto"])
    parser.add_argument("--only", nargs="+", metavar="ID", help="rows to run")
    parser.add_argument("--kind", nargs="+", help="kinds to run")
    parser.add_argument("--verbose", action="store_true", help="print the rows that are right too")
    parser.add_argument("--json", action="store_true", help="print one object per row instead of tables")
    options = parser.parse_args()
    lines = []
    for line in filter(str.strip, options.cases.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        if (not options.only or row["id"] in options.only) and (not options.kind or row["kind"] in options.kind):
            lines.append(line)
    found: list[Found] = []
    with tempfile.TemporaryDirectory(prefix="code-gate-") as folder:
        os.chmod(folder, 0o755)
        host = Host(Path(folder).resolve())
        try:
            for level in options.level:
                found += run_level(level, lines, host)
        finally:
            host.close()
            os.chdir("/")
    if options.json:
        for one in found:
            print(json.dumps(asdict(one)))
    else:
        report(found, verbose=options.verbose)
    wrong = sum(bool(one.faults) for one in found)
    paid = sum(one.is_paid for one in found)
    if not options.json:
        print(f"rows {len(found)} wrong {wrong} attacks {sum(one.is_attack for one in found)} paid {paid}")
    return 1 if wrong or paid else 0


if __name__ == "__main__":
    sys.exit(main())
