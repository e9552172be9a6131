"""The event files of one run, written with TensorBoard's own protobufs. Imports tensorboard."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import metadata
from tensorboard.plugins.hparams.api_pb2 import Status
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData, SessionEndInfo
from tensorboard.plugins.hparams.summary_v2 import hparams_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from roll_core.builtin.trackers.samples import COLUMNS, Cell

STATUSES = {"finished": Status.STATUS_SUCCESS, "failed": Status.STATUS_FAILURE, "interrupted": Status.STATUS_UNKNOWN}
_ENDING = ".ending"
"""Suffix of the file that says how a run ended. TensorBoard believes the first such word it finds, so a run that goes
on removes that of its earlier part.
"""
_LARGEST = float(np.finfo(np.float32).max)


class RunWriter:
    """Writes one event file, and a small second one at the end.

    Args:
        folder: where the files lie; made when missing.
        flush_secs: seconds after which what was written is on disk at the latest.
        resumed_from: step of the checkpoint the run goes on from; points of later steps that an earlier file holds
            are dropped by TensorBoard.
    """

    def __init__(self, folder: Path, *, flush_secs: int, resumed_from: int | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._flush_secs = flush_secs
        self._last_step = 0
        self._events = self._open()
        for file in folder.glob(f"events.out.tfevents.*{_ENDING}"):
            file.unlink()
        first_step = 0 if resumed_from is None else resumed_from + 1
        # from the second START on, TensorBoard drops earlier points of that step and later ones
        start = SessionLog(status=SessionLog.START)
        self._events.add_event(Event(wall_time=time.time(), step=first_step, session_log=start))

    def config(self, step: int, run_id: str, config: Mapping[str, Any]) -> None:
        """Write the config as text and for the HParams page, where nested keys are joined by dots."""
        text = json.dumps(config, indent=2, default=str, ensure_ascii=False)
        self._add(step, text_pb("run/config", _verbatim(text)))
        self._add(step, hparams_pb(flat(config), trial_id=run_id))

    def scalars(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write one point of each metric."""
        values = [Summary.Value(tag=name, simple_value=_single(value)) for name, value in metrics.items()]
        self._add(step, Summary(value=values))

    def samples(self, step: int, rows: Sequence[Sequence[Cell]]) -> None:
        """Write a table of samples; what the policy wrote is shown as it is, not as Markdown."""
        cells = [[_shown(name, cell) for name, cell in zip(COLUMNS, row, strict=True)] for row in rows]
        self._add(step, text_pb("rollouts", np.array([list(COLUMNS), *cells], dtype=np.object_)))

    def close(self, status: str) -> None:
        """Write how the run ended, and close the files."""
        self._events.close()
        end = SessionEndInfo(status=STATUSES.get(status, Status.STATUS_UNKNOWN), end_time_secs=time.time())
        about = metadata.create_summary_metadata(HParamsPluginData(session_end_info=end))
        value = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=about, tensor=metadata.NULL_TENSOR)
        self._events = self._open(_ENDING)
        self._add(self._last_step, Summary(value=[value]))
        self._add(self._last_step, text_pb("run/status", status))
        self._events.close()

    def _open(self, suffix: str = "") -> Any:
        return EventFileWriter(str(self._folder), flush_secs=self._flush_secs, filename_suffix=suffix)

    def _add(self, step: int, summary: Any) -> None:
        self._last_step = max(self._last_step, step)
        self._events.add_event(Event(wall_time=time.time(), step=step, summary=summary))


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    """A nested config as one level of dotted keys; lists become JSON, nulls are left out."""
    found: dict[str, bool | int | float | str] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        elif isinstance(value, bool | int | float | str):
            found[name] = value
        elif value is not None:
            found[name] = json.dumps(value, default=str, ensure_ascii=False)
    return found


def _single(value: float) -> float:
    """Scalars are single precision: a larger number is infinite there, as numpy would say."""
    return value if not abs(value) > _LARGEST else float(np.copysign(np.inf, value))


def _shown(column: str, cell: Cell) -> str:
    if cell is None:
        return "-"
    if column in ("prompt", "response"):
        return _verbatim(str(cell))
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def _verbatim(text: str) -> str:
    """A Markdown code block."""
    return textwrap.indent(text, "    ", lambda line: True)
