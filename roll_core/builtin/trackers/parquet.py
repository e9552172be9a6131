"""Every rollout in `<run>/rollouts/step-00000001.parquet`, readable by `datasets`, DuckDB, pandas and polars."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roll_core.builtin.trackers.samples import prompt_text, storable
from roll_core.contracts import RunInfo
from roll_core.types import Rollout, RolloutGroup


class ParquetTracker:
    """Writes one file a step, one row a rollout, dropped groups included.

    Args:
        tokens: also keep token ids and the sampler's log-probs.
        every: write every n-th step only.
    """

    def __init__(self, *, tokens: bool = True, every: int = 1) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        self._tokens = tokens
        self._every = every
        self._folder: Path | None = None

    def start(self, run: RunInfo) -> None:
        """Make the folder; files of steps that this run has yet to make are removed, and files left half written."""
        self._folder = run.folder / "rollouts"
        self._folder.mkdir(parents=True, exist_ok=True)
        last = run.resumed_from if run.resumed_from is not None else -1
        stale = [file for file in self._folder.glob("step-*.parquet") if step_of(file) > last]
        for file in (*stale, *self._folder.glob("step-*.partial")):
            file.unlink()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Metrics are other trackers'."""

    def log_rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Write the step's file under its name once it is complete."""
        if self._folder is None or step % self._every:
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [rollout_row(step, r, tokens=self._tokens) for g in groups for r in g.rollouts]
        final = self._folder / f"step-{step:08d}.parquet"
        partial = final.with_suffix(".partial")
        pq.write_table(pa.Table.from_pylist(rows, schema=_schema(pa, tokens=self._tokens)), partial, compression="zstd")
        partial.rename(final)

    def finish(self, status: str) -> None:
        """Nothing is open between steps; further calls do nothing."""
        self._folder = None


def step_of(file: Path) -> int:
    """The step whose rollouts a file holds."""
    return int(file.stem.removeprefix("step-"))


def rollout_row(step: int, rollout: Rollout, *, tokens: bool) -> dict[str, Any]:
    """A rollout as plain data, as the parquet files hold it."""
    verdict = rollout.verdict
    row: dict[str, Any] = {
        "step": step,
        "domain": rollout.ticket.domain,
        "ticket": rollout.ticket.id,
        "sample": rollout.index,
        "prompt_id": rollout.prompt.id,
        "prompt": prompt_text(rollout.prompt),
        "reference": json.dumps(rollout.prompt.reference, default=str),
        "response": storable(rollout.response),
        "finish_reason": rollout.finish_reason,
        "status": str(verdict.status) if verdict else None,
        "score": verdict.score if verdict else None,
        "answer": storable(verdict.answer) if verdict and verdict.answer is not None else None,
        "detail": storable(verdict.detail) if verdict else None,
        "reason": storable(verdict.reason) if verdict else None,
        "verifier": f"{verdict.verifier} {verdict.version}".strip() if verdict else None,
        "reward": rollout.reward if rollout.is_scored else None,
        "rewards": [{"component": r.component, "value": r.value, "weight": r.weight} for r in rollout.rewards],
        "response_tokens": rollout.response_length,
        "policy_version": max((v.policy.version for s in rollout.segments for v in s.versions), default=None),
        "seconds": json.dumps({k: float(v) for k, v in rollout.timing.items()}),
    }
    if tokens:
        row["token_ids"] = [t for s in rollout.segments for t in s.token_ids.tolist()]
        row["response_mask"] = [m for s in rollout.segments for m in s.response_mask.tolist()]
        row["rollout_logprobs"] = [p for s in rollout.segments for p in s.rollout_logprobs.tolist()]
    return row


def _schema(pa: Any, *, tokens: bool) -> Any:
    text, number, whole = pa.string(), pa.float64(), pa.int64()
    reward = pa.struct([("component", text), ("value", number), ("weight", number)])
    fields = [
        ("step", whole), ("domain", text), ("ticket", whole), ("sample", whole), ("prompt_id", text),
        ("prompt", text), ("reference", text), ("response", text), ("finish_reason", text), ("status", text),
        ("score", number), ("answer", text), ("detail", text), ("reason", text), ("verifier", text),
        ("reward", number), ("rewards", pa.list_(reward)), ("response_tokens", whole), ("policy_version", whole),
        ("seconds", text),
    ]  # fmt: skip
    if tokens:
        fields += [
            ("token_ids", pa.list_(pa.int32())),
            ("response_mask", pa.list_(pa.bool_())),
            ("rollout_logprobs", pa.list_(pa.float32())),
        ]
    return pa.schema(fields)
