"""What a checkpoint holds of the driver: everything between two steps, out of the parts and back into them."""

from __future__ import annotations

from typing import Any

from roll_core.checkpoint import Checkpoint
from roll_core.engine.parts import Parts, RunResult
from roll_core.errors import CheckpointError, ConfigError
from roll_core.evaluation import DomainResult

STATE_VERSION = 1


def snapshot(parts: Parts, step: int) -> dict[str, Any]:
    """State between two steps; a step that is broken off is redone whole from it."""
    return {
        "version": STATE_VERSION,
        "step": step,
        "seed": parts.config.seed,
        "run_id": parts.run.run_id,
        "plugins": dict(parts.manifest),
        "draw": parts.draw.state_dict(),
        "ledger": parts.ledger.state_dict(),
        "credit": parts.credit.state_dict(),
        "components": {place: component.state_dict() for place, component in parts.components.items()},
    }


def with_result(state: dict[str, Any], result: RunResult) -> dict[str, Any]:
    """A snapshot, and what the run has come to so far."""
    evaluations = {s: {d: r.as_dict() for d, r in e.items()} for s, e in result.evaluations.items()}
    return {**state, "train_seconds": result.train_seconds, "evaluations": evaluations}


def restore(parts: Parts, result: RunResult, checkpoint: Checkpoint) -> int:
    """Put a checkpoint back into fresh parts.

    Args:
        parts: of a run with the same config.
        result: is given what the run had come to.
        checkpoint: where to go on from.

    Returns:
        The number of committed steps.

    Raises:
        CheckpointError: it is damaged, or of another version.
        ConfigError: it does not belong to this config.
    """
    state = checkpoint.read_state()
    if state.get("version") != STATE_VERSION:
        raise CheckpointError(f"{checkpoint.folder} has state version {state.get('version')}, need {STATE_VERSION}")
    if state["seed"] != parts.config.seed:
        raise ConfigError(f"the checkpoint was made with seed {state['seed']}, the config says {parts.config.seed}")
    step = int(state["step"])
    if step > parts.config.steps:
        raise ConfigError(
            f"the checkpoint is at step {step}, but the run ends at steps={parts.config.steps}; raise steps, or choose "
            "an older checkpoint"
        )
    parts.draw.load_state_dict(state["draw"])
    parts.ledger.load_state_dict(state["ledger"])
    parts.feed.read(checkpoint.pending_folder)
    parts.credit.load_state_dict(state["credit"])
    for place, component in parts.components.items():
        if place in state["components"]:
            component.load_state_dict(state["components"][place])
    parts.strategy.load(checkpoint.strategy_folder)
    result.steps = step
    result.train_seconds = float(state["train_seconds"])
    result.evaluations = {
        int(s): {d: DomainResult.from_dict(r) for d, r in e.items()} for s, e in state["evaluations"].items()
    }
    return step
