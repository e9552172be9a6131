"""A process that watches over a run and resumes it when the driver is killed.

The driver is a child. It ends by itself (finished, failed with a message, interrupted): so does the watcher, with its
exit code. It is killed (a signal, the machine's out-of-memory killer) or gives itself up because it stands still (exit
code 75): the watcher resumes it from the newest checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from roll_core.cli.context import GlobalOptions
from roll_core.files import replace_text
from roll_core.recovery import Patience
from roll_core.watch import EXIT_HUNG, read_status
from roll_core.watch.status import STATUS_FILE

if TYPE_CHECKING:
    from roll_core.assembly import Assembly

LOOK_S = 5.0
"""How often a driver's heartbeat is looked at."""
SUPERVISED = "ROLL_SUPERVISED"
"""Environment variable that tells a driver it is watched over."""


def is_wanted(assembly: Assembly) -> bool:
    """Whether this process should watch over the run instead of training."""
    return assembly.config.faults.supervise and SUPERVISED not in os.environ


def command_line(options: GlobalOptions, *arguments: str) -> list[str]:
    """`roll ARGUMENTS` under the same global options."""
    blocked = (part for name in options.blocked for part in ("--plugin", f"no:{name}"))
    rollfile = ("--rollfile", str(options.rollfile)) if options.rollfile is not None else ()
    debug = ("--debug",) if options.debug else ()
    return [sys.executable, "-m", "roll_core.cli.main", *blocked, *rollfile, *debug, *arguments]


def supervise(assembly: Assembly, first: Sequence[str], again: Sequence[str], afresh: Sequence[str]) -> int:
    """Run the driver, and again as often as it is killed.

    Args:
        assembly: the run; nothing of it is built here.
        first: command line of the driver.
        again: that which goes on from the newest checkpoint.
        afresh: that which starts over, for a run that is killed before its first checkpoint.

    Returns:
        The exit code of the last driver; 128 + the signal's number for one that was killed.
    """
    patience, command = Patience(assembly.config.faults), first
    while True:
        code, was_asked = _drive(command, assembly.config.run_folder, assembly.config.faults.stage_timeout_s)
        status = code if code >= 0 else 128 - code
        if was_asked or (code >= 0 and code != EXIT_HUNG):
            return status
        newest = assembly.checkpoints.latest()
        wait_s = patience.after_loss(newest.step if newest is not None else 0)
        how = "stood still" if code == EXIT_HUNG else f"was killed by {signal.Signals(-code).name}"
        if wait_s is None:
            click.echo(f"error: the driver {how}; {patience.verdict}", err=True)
            return status
        where = f"checkpoint {newest.step}" if newest is not None else "the beginning, for want of a checkpoint"
        click.echo(f"warning: the driver {how}; going on from {where} in {wait_s:.0f} s", err=True)
        time.sleep(wait_s)
        command = again if newest is not None else afresh


def _drive(command: Sequence[str], folder: Path, limit_s: float) -> tuple[int, bool]:
    """Run one driver; its exit code, and whether it was asked to stop."""
    # A process group of its own: Ctrl-C reaches the watcher alone, which passes it on once.
    environment = {**os.environ, SUPERVISED: str(os.getpid())}
    driver = subprocess.Popen(command, env=environment, process_group=0)  # noqa: S603 - this program itself
    asked: list[int] = []

    def pass_on(number: int) -> None:
        asked.append(number)
        driver.send_signal(number)

    with _passing_on(pass_on):
        while True:
            try:
                return driver.wait(LOOK_S), bool(asked)
            except subprocess.TimeoutExpired:
                if _has_no_pulse(driver.pid, folder, limit_s):
                    driver.kill()
                    driver.wait()
                    return EXIT_HUNG, bool(asked)


def _has_no_pulse(pid: int, folder: Path, limit_s: float) -> bool:
    """Whether a driver cannot even say any more that it lives: a thread that holds the interpreter stops all others."""
    status = read_status(folder) if (folder / STATUS_FILE).is_file() else None
    if status is None or status.pid != pid or status.state != "running" or status.age_s() <= limit_s:
        return False
    try:
        replace_text(folder / ".probe", "is it the disk that takes no heartbeat?\n")
    except OSError:
        return False
    (folder / ".probe").unlink()
    return True


@contextmanager
def _passing_on(pass_on: Callable[[int], None]) -> Iterator[None]:
    def handle(number: int, _frame: FrameType | None) -> None:
        pass_on(number)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
