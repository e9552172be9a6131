"""What the kit supplies in the engine's place to the factories of a kind (`contracts.CONTEXT`)."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

from roll_core.contracts import CONTEXT, OptimSettings, TrainSetup

DOMAINS = ("easy", "middle", "hard")
SIZES = {"easy": 600, "middle": 300, "hard": 100}


def context_for(kind: str, folder: Path) -> dict[str, Any]:
    """Context values for one build.

    Args:
        kind: kind of component ("mixers").
        folder: scratch folder of the running check.
    """
    if kind not in CONTEXT:
        return {}
    if kind == "mixers":
        return {"domains": DOMAINS, "sizes": dict(SIZES), "seed": 0, "total_steps": 100}
    if kind == "rollout_backends":
        return {"model": tiny_model(0), "seed": 0, "executor": None}
    if kind == "train_strategies":
        setup = TrainSetup(model=tiny_model(0), optim=OptimSettings(lr=1e-2, betas=(0.9, 0.99)), total_steps=100)
        return {"setup": setup, "executor": None}
    return {"cache": folder / "cache"}


@functools.cache
def _models() -> Path:
    folder = tempfile.mkdtemp(prefix="roll-tiny-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def tiny_model(seed: int) -> Path:
    """A tiny random model in Hugging Face format, made once per process. Needs torch and transformers.

    Its attention heads are 32 wide, since fast kernels take few widths.
    """
    from roll_core.testing.tiny import make_tiny_model

    folder = _models() / str(seed)
    folder.mkdir()
    return make_tiny_model(folder, seed=seed, hidden=128)
