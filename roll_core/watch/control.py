"""Wishes of people to a running run: files in its folder that the engine takes up between two steps."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from roll_core.errors import ConfigError
from roll_core.files import replace_text
from roll_core.watch.liveness import Liveness, assess
from roll_core.watch.status import RunStatus

logger = logging.getLogger(__name__)

CONTROL_FOLDER = "control"
_SCALE_FILE = "scale.json"


@dataclass(frozen=True, slots=True)
class ScaleRequest:
    """How many rollout replicas there should be from the next step on."""

    replicas: int
    asked: float
    """Unix time."""

    def __post_init__(self) -> None:
        if type(self.replicas) is not int or self.replicas < 1:
            raise ConfigError(f"a run needs at least one rollout replica, got {self.replicas!r}")


def ask_scale(folder: Path, status: RunStatus, replicas: int) -> ScaleRequest:
    """Ask a running run for another number of rollout replicas; a newer wish replaces one that was not taken up.

    Args:
        folder: the run's folder.
        status: its status.
        replicas: how many.

    Raises:
        ConfigError: the run is not alive, its backend cannot scale, or the number makes no sense.
    """
    liveness = assess(status)
    if liveness is not Liveness.ALIVE:
        raise ConfigError(f"the run in {folder} is {liveness}, so nobody would take this up; see: roll status {folder}")
    if not status.can_scale:
        raise ConfigError(
            f"the rollout backend of the run in {folder} has a fixed number of replicas; scaling needs one that "
            "takes replicas in and out while it runs (vllm)"
        )
    request = ScaleRequest(replicas, time.time())
    control = folder / CONTROL_FOLDER
    control.mkdir(exist_ok=True)
    replace_text(control / _SCALE_FILE, json.dumps(asdict(request)) + "\n")
    return request


def take_request(folder: Path) -> ScaleRequest | None:
    """The wish that lies in a run's folder; it is gone from there afterwards.

    A wish that makes no sense, or cannot be read, is logged: it must not end the run.

    Args:
        folder: the run's folder.
    """
    path = folder / CONTROL_FOLDER / _SCALE_FILE
    try:
        text = path.read_text(encoding="utf-8")
        path.unlink()
        return ScaleRequest(**json.loads(text))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        logger.warning("%s cannot be taken up: %s", path, error)
        return None
