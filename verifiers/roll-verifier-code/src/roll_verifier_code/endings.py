"""From the end of a run to the outcome of a case."""

from __future__ import annotations

import signal

from roll_core.sandbox import Ending, Limits, RunResult, SandboxError
from roll_verifier_code.outcome import CaseOutcome, Word


def outcome_of_end(run: RunResult, limits: Limits) -> CaseOutcome | None:
    """The outcome of a run that did not end well; None where it ended by itself, with status 0 and within its limits.

    Raises:
        SandboxError: the run was killed from outside, which says nothing about the program.
    """
    if run.ending is Ending.KILLED:
        raise SandboxError("a run was killed by neither its program nor its limits")
    if run.is_clean:
        return None
    word: Word = "timeout" if run.ending in (Ending.CPU, Ending.WALL) else "error"
    return CaseOutcome(word, _reason(run, limits), cpu_s=run.cpu_s, level=run.level)


def _reason(run: RunResult, limits: Limits) -> str:
    exceeded = {
        Ending.CPU: f"over {limits.cpu_s:g} s of CPU time",
        Ending.WALL: f"over {limits.wall:g} s of wall clock",
        Ending.MEMORY: f"over {limits.memory_mb} MB of memory",
        Ending.OUTPUT: f"over {limits.output_kb} KB of output",
        Ending.DISK: f"over {limits.disk_mb} MB of disk",
    }
    if run.ending in exceeded:
        return exceeded[run.ending]
    if run.signal is not None:
        known = run.signal in {one.value for one in signal.Signals}
        return f"killed by {signal.Signals(run.signal).name if known else f'signal {run.signal}'}"
    lines = run.stderr[-2000:].decode("utf-8", "replace").strip().splitlines()
    return f"exit status {run.exit_code}" + (f": {lines[-1][:200]}" if lines else "")
