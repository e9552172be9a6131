"""Shared by the end-to-end tests: a tiny model and a task it can learn from nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roll_core.api import TrainedRun, find_checkpoint, run_to_end
from roll_core.assembly import Assembly
from roll_core.config.load import load_config
from roll_core.plugin.host import Host
from roll_core.testing.tiny import make_tiny_model

HERE = str(Path(__file__).parent)
if HERE not in sys.path:
    sys.path.insert(0, HERE)

LETTERS = "abcdefgh"


@pytest.fixture(scope="session")
def tiny_model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), seed=0)


@pytest.fixture
def base_config(tiny_model_folder: Path, tmp_path: Path) -> dict[str, Any]:
    """A GRPO run of a few steps; tests change what they are about."""
    return {
        "name": "tiny",
        "folder": str(tmp_path / "run"),
        "seed": 3,
        "steps": 4,
        "model": {"path": str(tiny_model_folder)},
        "domains": {"letters": domain(), "more": domain(start=4)},
        "mixer": {"use": "ratio", "weights": {"letters": 0.5, "more": 0.5}},
        "batch": {"prompts": 4, "group_size": 4, "max_prompt_tokens": 32},
        "rollout": {"backend": {"use": "local", "precision": "float32"}, "sampling": {"max_new_tokens": 6}},
        "train": {"strategy": {"use": "local", "precision": "float32"}, "optim": {"lr": 3e-3}},
        "scoring": {"workers": 1},
        "trackers": ["jsonl", "parquet"],
        "plugins": {"rollfile": str(Path(__file__).parent / "digits.py")},
    }


def domain(start: int = 0) -> dict[str, Any]:
    """Prompts "a", "b", …; `tests/e2e/digits.py` judges the share of digits."""
    rows = [{"prompt": letter, "reference": "digits"} for letter in LETTERS[start : start + 4]]
    return {"data": {"use": "rows", "rows": rows}, "eval_data": {"use": "rows", "rows": rows}, "verifier": "digits"}


@pytest.fixture
def resume_run() -> Callable[..., TrainedRun]:
    """Go on with the run in a folder, from its newest checkpoint or that of a step."""

    def resume(folder: Path, step: int | None = None, *overrides: str) -> TrainedRun:
        loaded = load_config(folder / "config.yaml", [f"folder={folder}", *overrides])
        rollfile = loaded.config.plugins.rollfile
        assembly = Assembly(loaded, Host.discover(rollfile=Path(rollfile) if rollfile else None))
        return run_to_end(assembly, find_checkpoint(assembly, step))

    return resume
