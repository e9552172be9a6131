"""Which token columns a train strategy computes, and the frozen models that some of them need."""

from __future__ import annotations

from pathlib import Path

from roll_core.contracts import TrainSetup
from roll_core.errors import BackendError

OWN = frozenset({"old_logprobs", "entropy"})
"""Columns that the policy computes."""
REFERENCE, VALUES, TEACHER = "ref_logprobs", "values", "logprobs@"
"""Columns of the reference and the critic; and what the columns of teachers begin with, before the teacher's name."""


def is_base_reference(setup: TrainSetup) -> bool:
    """Whether the reference is the policy without its adapters, so that it needs no model of its own."""
    return setup.lora is not None and setup.reference == setup.model


def frozen_folders(setup: TrainSetup) -> dict[str, Path]:
    """Folders of the frozen models (teachers, reference) by the column they compute."""
    folders = {f"{TEACHER}{name}": path for name, path in setup.teachers.items()}
    if setup.reference is not None and not is_base_reference(setup):
        folders[REFERENCE] = setup.reference
    return folders


def check_columns(setup: TrainSetup, columns: frozenset[str]) -> None:
    """Refuse columns that nothing here can compute.

    Raises:
        BackendError: a column is unknown, or no model for it was set up; names the first.
    """
    present = OWN | {f"{TEACHER}{name}" for name in setup.teachers}
    present |= {REFERENCE} if setup.reference is not None else set()
    present |= {VALUES} if setup.critic is not None else set()
    for name in sorted(columns - present):
        if name in {REFERENCE, VALUES} or name.startswith(TEACHER):
            raise BackendError(f"column '{name}' was asked for, but no model for it was set up")
        raise BackendError(f"column '{name}' cannot be computed; there are {', '.join(sorted(present))}")
