"""Rollouts on disk: finished groups that wait to be trained, and the tokens of those that were under way.

A folder holds `pending.json` and `pending.npz`. Prompts are not written: they are read from the data again, by ticket.
Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from roll_core.errors import CheckpointError
from roll_core.files import naming
from roll_core.rollout.collected import StepRollouts
from roll_core.rooms import PromptOf
from roll_core.types import (
    AnyArray,
    Completion,
    PolicyRef,
    RewardRecord,
    Rollout,
    RolloutGroup,
    Segment,
    Status,
    Ticket,
    Verdict,
    VersionRun,
)

_META, _ARRAYS = "pending.json", "pending.npz"
_SEGMENT_ARRAYS = ("token_ids", "response_mask", "loss_mask", "rollout_logprobs")


@dataclass(slots=True)
class UnderWay:
    """A group whose rollouts had not all ended."""

    ticket: Ticket
    attempt: int
    version: int
    """Policy version when it was started."""


@dataclass(slots=True)
class Pending:
    """What was rolled out, or begun, and not yet trained."""

    collected: StepRollouts = field(default_factory=StepRollouts)
    versions: dict[int, int] = field(default_factory=dict)
    """Policy version at the start of each collected group, by ticket."""
    under_way: list[UnderWay] = field(default_factory=list)
    made: dict[str, Completion] = field(default_factory=dict)
    """Completions of the groups under way, by request id; finish reason "abort" where unfinished."""


def write_pending(folder: Path, pending: Pending) -> None:
    """Write everything into an existing, empty folder.

    Raises:
        OSError: it cannot be written; names the file.
    """
    writer = _Writer()
    meta = {
        "admitted": [writer.group(group) for group in pending.collected.admitted],
        "dropped": [[writer.group(group), reason] for group, reason in pending.collected.dropped],
        "drawn": pending.collected.drawn,
        "rounds": pending.collected.rounds,
        "versions": {str(ticket): version for ticket, version in pending.versions.items()},
        "under_way": [[asdict(one.ticket), one.attempt, one.version] for one in pending.under_way],
        "made": {key: writer.completion(completion) for key, completion in pending.made.items()},
    }
    with naming(folder / _META):
        (folder / _META).write_text(json.dumps(meta), encoding="utf-8")
    with naming(folder / _ARRAYS), (folder / _ARRAYS).open("wb") as file:
        np.savez(file, **writer.arrays)  # type: ignore[arg-type]  # numpy's stub takes the names for its own arguments


def read_pending(folder: Path, prompt_of: PromptOf) -> Pending:
    """The inverse of `write_pending`.

    Args:
        folder: where it lies.
        prompt_of: the prompt of a ticket.

    Raises:
        CheckpointError: a file is missing or cannot be understood.
        ConfigError: a prompt is not the one that was drawn.
    """
    meta = _read(folder / _META, lambda path: json.loads(path.read_text(encoding="utf-8")))
    reader = _Reader(_read(folder / _ARRAYS, _load_arrays), prompt_of)
    try:
        return _pending(meta, reader)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise CheckpointError(
            f"the rollouts in {folder} are not of a kind that this version reads ({type(error).__name__}: {error}); "
            "resume with the version that wrote them, or from another checkpoint with --checkpoint"
        ) from error


def _read(path: Path, read: Callable[[Path], Any]) -> Any:
    try:
        return read(path)
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise CheckpointError(
            f"the rollouts in {path} cannot be read: {type(error).__name__}: {error}; resume from another checkpoint "
            "with --checkpoint"
        ) from error


def _load_arrays(path: Path) -> dict[str, AnyArray]:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def _pending(meta: Mapping[str, Any], reader: _Reader) -> Pending:
    return Pending(
        collected=StepRollouts(
            admitted=[reader.group(group) for group in meta["admitted"]],
            dropped=[(reader.group(group), reason) for group, reason in meta["dropped"]],
            drawn=meta["drawn"],
            rounds=meta["rounds"],
        ),
        versions={int(ticket): version for ticket, version in meta["versions"].items()},
        under_way=[UnderWay(Ticket(**ticket), attempt, version) for ticket, attempt, version in meta["under_way"]],
        made={key: reader.completion(completion) for key, completion in meta["made"].items()},
    )


class _Writer:
    """Turns rollouts into JSON, with their arrays set aside under numbered names."""

    def __init__(self) -> None:
        self.arrays: dict[str, AnyArray] = {}

    def group(self, group: RolloutGroup) -> dict[str, Any]:
        return {
            "ticket": asdict(group.ticket),
            "rollouts": [self._rollout(rollout) for rollout in group.rollouts],
            "greedy": None if group.greedy is None else self._rollout(group.greedy),
        }

    def completion(self, completion: Completion) -> dict[str, Any]:
        return {
            "request_id": completion.request_id,
            "token_ids": self._array(completion.token_ids),
            "logprobs": self._array(completion.logprobs),
            "versions": [asdict(run) for run in completion.versions],
            "finish_reason": completion.finish_reason,
            "columns": {name: self._array(values) for name, values in completion.columns.items()},
        }

    def _rollout(self, rollout: Rollout) -> dict[str, Any]:
        return {
            "index": rollout.index,
            "segments": [self._segment(segment) for segment in rollout.segments],
            "response": rollout.response,
            "finish_reason": rollout.finish_reason,
            "attempt": rollout.attempt,
            "turns": rollout.turns,
            "verdict": None if rollout.verdict is None else asdict(rollout.verdict),
            "rewards": [asdict(record) for record in rollout.rewards],
            "timing": rollout.timing,
        }

    def _segment(self, segment: Segment) -> dict[str, Any]:
        return {
            **{name: self._array(getattr(segment, name)) for name in _SEGMENT_ARRAYS},
            "versions": [asdict(run) for run in segment.versions],
            "columns": {name: self._array(values) for name, values in segment.columns.items()},
            "parent": segment.parent,
        }

    def _array(self, values: AnyArray) -> str:
        name = str(len(self.arrays))
        self.arrays[name] = values
        return name


class _Reader:
    """Turns what `_Writer` made into rollouts again."""

    def __init__(self, arrays: Mapping[str, AnyArray], prompt_of: PromptOf) -> None:
        self._arrays = arrays
        self._prompt_of = prompt_of

    def group(self, meta: Mapping[str, Any]) -> RolloutGroup:
        ticket = Ticket(**meta["ticket"])
        group = RolloutGroup(ticket, self._prompt_of(ticket), [])
        group.rollouts = [self._rollout(group, rollout) for rollout in meta["rollouts"]]
        group.greedy = None if meta["greedy"] is None else self._rollout(group, meta["greedy"])
        return group

    def completion(self, meta: Mapping[str, Any]) -> Completion:
        return Completion(
            request_id=meta["request_id"],
            token_ids=self._arrays[meta["token_ids"]],
            logprobs=self._arrays[meta["logprobs"]],
            versions=_versions(meta["versions"]),
            finish_reason=meta["finish_reason"],
            columns={name: self._arrays[key] for name, key in meta["columns"].items()},
        )

    def _rollout(self, group: RolloutGroup, meta: Mapping[str, Any]) -> Rollout:
        verdict = meta["verdict"]
        return Rollout(
            ticket=group.ticket,
            index=meta["index"],
            prompt=group.prompt,
            segments=[self._segment(segment) for segment in meta["segments"]],
            response=meta["response"],
            finish_reason=meta["finish_reason"],
            attempt=meta["attempt"],
            turns=meta["turns"],
            verdict=None if verdict is None else Verdict(**{**verdict, "status": Status(verdict["status"])}),
            rewards=[_reward(record) for record in meta["rewards"]],
            timing=dict(meta["timing"]),
        )

    def _segment(self, meta: Mapping[str, Any]) -> Segment:
        return Segment(
            **{name: self._arrays[meta[name]] for name in _SEGMENT_ARRAYS},
            versions=_versions(meta["versions"]),
            columns={name: self._arrays[key] for name, key in meta["columns"].items()},
            parent=None if meta["parent"] is None else (meta["parent"][0], meta["parent"][1]),
        )


def _versions(runs: list[dict[str, Any]]) -> tuple[VersionRun, ...]:
    return tuple(VersionRun(run["start"], run["stop"], PolicyRef(**run["policy"])) for run in runs)


def _reward(record: dict[str, Any]) -> RewardRecord:
    span = record["span"]
    return RewardRecord(**{**record, "span": None if span is None else (span[0], span[1])})
