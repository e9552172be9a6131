"""Who is at what, since when; and what happens when it takes too long.

The engine names each stage of a step (`Watch.stage`). A thread of its own writes the run's live state to
`status.json`, notices a stage that is over its bound, says who waits for whom with all stacks, and ends the stage, or
the process where a stage cannot be ended from outside.

Limits: a thread that never gives the interpreter lock back stops this thread too. The heartbeat in `status.json` then
stands still, and whoever supervises the process has to end it.
"""

from __future__ import annotations

from roll_core.watch.control import ScaleRequest, ask_scale, take_request
from roll_core.watch.live import Probes
from roll_core.watch.liveness import Liveness, assess
from roll_core.watch.stages import BETWEEN
from roll_core.watch.status import Facts, RunStatus, State, read_status
from roll_core.watch.watchdog import EXIT_HUNG, Watch

__all__ = [
    "BETWEEN",
    "EXIT_HUNG",
    "Facts",
    "Liveness",
    "Probes",
    "RunStatus",
    "ScaleRequest",
    "State",
    "Watch",
    "ask_scale",
    "assess",
    "read_status",
    "take_request",
]
