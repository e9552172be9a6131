"""`status.json` in a run's folder: what the run is at now, for people and for whoever supervises it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypedDict

from roll_core.errors import DataError
from roll_core.files import replace_text

STATUS_FILE = "status.json"
STATUS_VERSION = 1

State = Literal["running", "finished", "interrupted", "failed", "hung"]
"""What the run says of itself; "hung" was ended by its watch."""


class Facts(TypedDict, total=False):
    """What the engine tells the watch, as far as it has changed."""

    run_id: str
    name: str
    mode: str
    """rollout.mode."""
    step: int
    """Committed steps."""
    total_steps: int
    policy_version: int
    """Of the weights that rollouts are sampled with."""
    staleness_mean: float
    staleness_max: float
    tokens_per_s: float
    """Sampled tokens of the last step over its rollout seconds."""
    saved_step: int | None
    """Step of the newest checkpoint."""
    restarts: int
    """How often the run was taken up again by itself."""
    can_scale: bool
    """Whether the rollout backend takes `roll scale`."""
    replicas: int
    """Rollout replicas that are wanted."""
    devices: dict[str, list[str]]
    """Devices of roles that have no worker processes: "train" -> ["cuda:0"]."""
    outcome: State
    """How the run has ended, told before it ends."""


@dataclass(slots=True)
class RunStatus:
    """Everything in `status.json`. Times are Unix seconds; what is not known is None or empty."""

    state: State
    pid: int
    born: str
    """Start time of the process as the system counts it, since process ids are used again."""
    host: str
    started: float
    heartbeat: float
    """When it was written; the newest at most a few seconds old while the run lives."""
    stage: str
    stage_step: int
    stage_since: float
    stage_limit_s: float
    loop_lag_s: float
    """For how long the event loop has not moved."""
    rss_bytes: int | None
    """Resident memory of the driver."""
    queue: dict[str, int] = field(default_factory=dict)
    """Groups by where they stand: `open` (drawn or rolled out), `finished` (scored, not trained yet), `trained` and
    `dropped` in the whole run; and `requests` that generate now."""
    workers: list[dict[str, Any]] = field(default_factory=list)
    """`WorkerHealth` of every worker process."""
    workers_asked: float | None = None
    """When the workers' state was read."""
    waits: list[dict[str, Any]] = field(default_factory=list)
    """`Wait` of everything the driver waits for, the longest first."""
    hang: str | None = None
    """The newest hang report, relative to the run's folder."""
    error: str = ""
    """What the run failed with."""
    run_id: str = ""
    name: str = ""
    mode: str = ""
    step: int = 0
    total_steps: int = 0
    policy_version: int | None = None
    staleness_mean: float | None = None
    staleness_max: float | None = None
    tokens_per_s: float | None = None
    saved_step: int | None = None
    restarts: int = 0
    can_scale: bool = False
    replicas: int | None = None
    devices: dict[str, list[str]] = field(default_factory=dict)
    version: int = STATUS_VERSION

    def write(self, folder: Path) -> None:
        """Replace `status.json` in a run's folder.

        Raises:
            OSError: it cannot be written.
        """
        replace_text(folder / STATUS_FILE, json.dumps(asdict(self)) + "\n")

    def age_s(self, now: float | None = None) -> float:
        """Seconds since it was written."""
        return max(0.0, (time.time() if now is None else now) - self.heartbeat)


def read_status(folder: Path) -> RunStatus:
    """The live state of a run.

    Args:
        folder: the run's folder.

    Raises:
        DataError: there is none, or another version of roll-core wrote it.
    """
    path = folder / STATUS_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"no {STATUS_FILE} in {folder}: it is no run's folder, or its run has not begun to train yet"
        ) from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not isinstance(found, dict) or found.get("version") != STATUS_VERSION:
        raise DataError(f"{path} was written by another version of roll-core; look at it with that version")
    known = {f.name for f in fields(RunStatus)}
    try:
        return RunStatus(**{key: value for key, value in found.items() if key in known})
    except TypeError as error:
        raise DataError(f"{path} is incomplete: {error}") from error
