"""The `swanlab` tracker."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from roll_core.builtin.trackers.samples import COLUMNS, Samples
from roll_core.contracts import RunInfo
from roll_core.errors import ComponentError, unknown_name
from roll_core.types import RolloutGroup

Mode = Literal["online", "offline", "local", "disabled"]

STATES = {"finished": "success", "failed": "crashed", "interrupted": "aborted"}
"""SwanLab's words for how a run ended."""


class SwanLabTracker:
    """Sends config, metrics and sample rollouts to SwanLab, or keeps them for `swanlab sync`.

    A run that goes on from a checkpoint continues the same SwanLab run. SwanLab knows one active run per process, so a
    run has one tracker of this kind. Options are named as in `swanlab.init`.

    Args:
        project: null takes SwanLab's settings (`SWANLAB_PROJECT_NAME` and others), else "roll".
        workspace: user or organisation; null is SwanLab's default.
        name: name of the experiment; null takes the run's name.
        description: a longer description.
        group: group of experiments.
        job_type: kind of run within its group.
        tags: labels.
        mode: "online", "offline" (kept on disk), "local" (own dashboard) or "disabled"; null takes SwanLab's settings
            (`SWANLAB_MODE`), else online.
        log_dir: folder that the files of SwanLab are kept in; null is `swanlog` in the run's folder.
        samples: rollouts in a table of samples; 0 logs none.
        samples_every: steps from one table to the next.
        settings: further fields of `swanlab.Settings`, for instance `{terminal: {proxy_type: all}}` to keep the
            terminal's output.
    """

    def __init__(
        self,
        *,
        project: str | None = None,
        workspace: str | None = None,
        name: str | None = None,
        description: str | None = None,
        group: str | None = None,
        job_type: str | None = None,
        tags: tuple[str, ...] = (),
        mode: Mode | None = None,
        log_dir: str | None = None,
        samples: Annotated[int, Field(ge=0)] = 8,
        samples_every: Annotated[int, Field(ge=1)] = 10,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self._identity = {
            "workspace": workspace,
            "description": description,
            "group": group,
            "job_type": job_type,
            "tags": list(tags),
            "mode": mode,
        }
        self._project = project
        self._name = name
        self._log_dir = log_dir
        self._samples = Samples(samples, samples_every)
        self._settings = {"terminal": {"proxy_type": "none"}, **(settings or {})}
        self._run: Any = None

    def start(self, run: RunInfo) -> None:
        """Begin the SwanLab run, or continue it.

        Raises:
            ComponentError: swanlab is not installed, or SwanLab refused the run.
            UnknownNameError: `settings` holds a name that SwanLab does not know.
        """
        swanlab = _library()
        if swanlab.has_run():
            raise ComponentError(
                "SwanLab knows one active run per process and another one is going on: finish that one first, or "
                "remove the second tracker 'swanlab'"
            )
        for name in self._settings:
            if name not in swanlab.Settings.model_fields:  # SwanLab would ignore it
                raise unknown_name("setting of SwanLab", name, swanlab.Settings.model_fields, "settings")
        try:
            with _hooks_kept():
                self._run = self._init(swanlab, run)
        except Exception as error:
            with _hooks_kept():
                if swanlab.has_run():
                    swanlab.finish(state="crashed", error=str(error))
            raise ComponentError(
                f"SwanLab could not start run '{run.run_id}': {error}. Log in with `swanlab login`, or set "
                "`mode: offline` for the tracker 'swanlab' and send the run later with `swanlab sync`"
            ) from error

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log one point of each metric; a second point of a metric at the same step is ignored by SwanLab."""
        if self._run is not None and metrics:
            self._run.log(dict(metrics), step=step)

    def log_rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Log a table of samples every n-th step."""
        rows = self._samples.rows(step, groups) if self._run is not None else []
        if rows:
            table = _library().echarts.Table().add(list(COLUMNS), [list(row) for row in rows])
            self._run.log({"rollouts": table}, step=step)

    def finish(self, status: str) -> None:
        """Mark how the run ended, and wait until everything is kept or sent."""
        run, self._run = self._run, None
        if run is None:
            return
        state = STATES.get(status, "crashed")
        with _hooks_kept():
            run.finish(state=state, error=None if state == "success" else f"run {status}")

    def _init(self, swanlab: Any, run: RunInfo) -> Any:
        folder = (Path(self._log_dir).expanduser() if self._log_dir else run.folder / "swanlog").absolute()
        folder.mkdir(parents=True, exist_ok=True)
        settings = swanlab.Settings(**self._settings)
        known = {key: value for key, value in run.config.items() if value is not None}  # SwanLab shows null as {}
        return swanlab.init(
            **self._identity,
            project=self._project or settings.project.name or "roll",
            name=self._name or run.name,
            id=run.run_id,
            resume="allow",
            log_dir=str(folder),
            config={**known, "versions": dict(run.plugins)},
            settings=settings,
        )


@contextmanager
def _hooks_kept() -> Iterator[None]:
    """Put back what SwanLab replaces to learn how a program ends: the engine tells it.

    Its handler would end the SwanLab run at the first Ctrl-C, while the engine still finishes its step.
    """
    in_main_thread = threading.current_thread() is threading.main_thread()
    handler, excepthook = signal.getsignal(signal.SIGINT), sys.excepthook
    try:
        yield
    finally:
        sys.excepthook = excepthook
        if in_main_thread and handler is not None:
            signal.signal(signal.SIGINT, handler)


def _library() -> Any:
    try:
        import swanlab
    except ImportError as error:
        raise ComponentError(f"tracker 'swanlab' needs the package swanlab ({error}): pip install swanlab") from error
    return swanlab
