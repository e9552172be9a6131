"""The three modes run for real on this machine: generation and training share its cores, so little can be gained."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import roll_core as roll
from roll_core.testing.tiny import make_tiny_model

LIMIT = 400


def real_rates(*, steps: int, staleness: int, prompts: int, group_size: int, seed: int) -> dict[str, float]:
    """Trained tokens a second by mode, of whole training runs with the local engines.

    The model is a small random Llama. It ends an answer with probability 1/62 at every token, so lengths are geometric:
    the 99th percentile is 6.6 times the median.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = make_tiny_model(folder / "model", seed=seed, hidden=192, layers=6)
        rates = {}
        for mode in ("sync", "one_step", "async"):
            config = _config(model, folder / mode, mode, steps, seed)
            config["batch"] = {"prompts": prompts, "group_size": group_size, "max_prompt_tokens": 32}
            if mode == "async":
                config["rollout"]["max_staleness"] = staleness
            result = roll.train(**config).result
            mean = sum(row["rollout/response_tokens_mean"] for row in result.metrics) / len(result.metrics)
            rates[mode] = mean * prompts * group_size * len(result.metrics) / result.train_seconds
    return rates


def _config(model: Path, folder: Path, mode: str, steps: int, seed: int) -> dict[str, Any]:
    rows = [{"prompt": letter, "reference": letter} for letter in "abcdefgh"]
    return {
        "name": mode,
        "folder": str(folder),
        "seed": seed,
        "steps": steps,
        "model": {"path": str(model)},
        "domains": {"letters": {"data": {"use": "rows", "rows": rows}, "verifier": "exact"}},
        "rollout": {"mode": mode, "sampling": {"max_new_tokens": LIMIT}},
        "train": {"optim": {"lr": 1e-9}},
        "scoring": {"workers": 1},
        "checkpoint": {"every": 0, "at_end": False},
        "trackers": ["jsonl"],
    }
