"""The `wandb` tracker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from roll_core.builtin.trackers.samples import COLUMNS, Samples
from roll_core.contracts import RunInfo
from roll_core.errors import ComponentError
from roll_core.types import RolloutGroup
from roll_plugin_wandb.containment import contained

Mode = Literal["online", "offline", "disabled"]

STEP = "step"
"""The metric that is every chart's x axis. W&B's own step counts calls of `log` and rejects steps that come late."""
EXIT_CODES = {"finished": 0, "failed": 1, "interrupted": 255}
"""What W&B is told about the end of a run; 255 is what it uses itself after Ctrl-C."""


class WandbTracker:
    """Sends config, metrics and sample rollouts to Weights & Biases, or keeps them for `wandb sync`.

    A run that goes on from a checkpoint continues the same W&B run. Options are named as in `wandb.init`.

    Args:
        project: null takes `WANDB_PROJECT`, else "roll".
        entity: user or team; null is W&B's default.
        name: display name; null takes the run's name.
        group: group of runs.
        job_type: kind of run within its group.
        tags: labels.
        notes: a longer description.
        mode: "online", "offline" (kept on disk) or "disabled"; null takes `WANDB_MODE`, else online.
        dir: folder that the files of W&B are kept in; null is the run's folder.
        samples: rollouts in a table of samples; 0 logs none.
        samples_every: steps from one table to the next.
        settings: further fields of `wandb.Settings`, for instance `{console: wrap}` to keep the terminal's output.
    """

    def __init__(
        self,
        *,
        project: str | None = None,
        entity: str | None = None,
        name: str | None = None,
        group: str | None = None,
        job_type: str | None = None,
        tags: tuple[str, ...] = (),
        notes: str | None = None,
        mode: Mode | None = None,
        dir: str | None = None,
        samples: Annotated[int, Field(ge=0)] = 8,
        samples_every: Annotated[int, Field(ge=1)] = 10,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self._identity = {"entity": entity, "group": group, "job_type": job_type, "notes": notes, "tags": list(tags)}
        self._project = project
        self._name = name
        self._mode = mode
        self._dir = dir
        self._samples = Samples(samples, samples_every)
        self._settings = {"console": "off", **(settings or {})}
        self._folder = Path()
        self._run: Any = None

    def start(self, run: RunInfo) -> None:
        """Begin the W&B run, or continue it.

        Raises:
            ComponentError: wandb is not installed, or W&B refused the run.
        """
        wandb = _library()
        self._folder = (Path(self._dir).expanduser() if self._dir else run.folder).absolute()
        with self._contained():
            try:
                settings = wandb.Settings(**self._settings)
            except ValueError as error:
                raise ComponentError(f"W&B refuses `settings` of the tracker 'wandb': {error}") from error
            try:
                self._run = wandb.init(
                    **self._identity,
                    project=self._project or os.environ.get("WANDB_PROJECT") or "roll",
                    name=self._name or run.name,
                    id=run.run_id,
                    resume="allow",
                    reinit="create_new",
                    mode=self._mode,
                    dir=str(self._folder),
                    config={**run.config, "versions": dict(run.plugins)},
                    allow_val_change=True,
                    settings=settings,
                )
            except Exception as error:
                _end_service()
                raise ComponentError(
                    f"W&B could not start run '{run.run_id}': {error}. Log in with `wandb login`, or set "
                    "`mode: offline` for the tracker 'wandb' and send the run later with `wandb sync`"
                ) from error
            self._run.define_metric(STEP, hidden=True)
            self._run.define_metric("*", step_metric=STEP)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log one row of the history."""
        if self._run is not None and metrics:
            self._run.log({STEP: step, **metrics})

    def log_rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Log a table of samples every n-th step."""
        rows = self._samples.rows(step, groups) if self._run is not None else []
        if rows:
            with self._contained():
                table = _library().Table(columns=list(COLUMNS), data=[list(row) for row in rows])
                self._run.log({STEP: step, "rollouts": table})

    def finish(self, status: str) -> None:
        """Mark how the run ended, wait until everything is kept or sent, and end W&B's helper process."""
        run, self._run = self._run, None
        if run is None:
            return
        with self._contained():
            run.summary["status"] = status
            run.finish(exit_code=EXIT_CODES.get(status, 1))
            _end_service()

    def _contained(self) -> Any:
        mode = self._mode or os.environ.get("WANDB_MODE")
        return contained(self._folder / "wandb", is_silent=mode in ("offline", "disabled"))


def _library() -> Any:
    try:
        import wandb
    except ImportError as error:
        raise ComponentError(f"tracker 'wandb' needs the package wandb ({error}): pip install wandb") from error
    return wandb


def _end_service() -> None:
    """End the helper process, unless a run that is not ours still uses it.

    Raises:
        ComponentError: it ended badly.
    """
    wandb = _library()
    if wandb.setup().most_recent_active_run is not None:
        return
    try:
        wandb.teardown()
    except SystemExit as ending:
        raise ComponentError(f"W&B's helper process ended with code {ending.code}") from ending
