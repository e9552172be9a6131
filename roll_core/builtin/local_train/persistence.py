"""Writes and reads the strategy's state, and exports Hugging Face folders."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError  # only the error; loading is weights_only
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from roll_core.builtin.local_train.loading import no_progress_bars
from roll_core.builtin.local_train.masters import MasterWeights
from roll_core.builtin.local_train.optimizer import Optimizer
from roll_core.builtin.local_train.randomness import TrainingRandomness
from roll_core.builtin.local_train.weights import ModelWeights
from roll_core.errors import CheckpointError

_FORMAT = 1
_STATE = "strategy.pt"
_WEIGHT_SUFFIXES = frozenset({".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx"})

Trained = Mapping[str, tuple[MasterWeights, Optimizer]]
"""What is trained, by role ("policy", "critic")."""


def save_state(folder: Path, trained: Trained, facts: Mapping[str, Any], randomness: TrainingRandomness) -> None:
    """Write masters, moments, schedules and random states into `folder`.

    Args:
        folder: exists and is empty.
        trained: what to save.
        facts: what must be the same when the state is loaded.
        randomness: the stream of training.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    state: dict[str, Any] = {"format": _FORMAT, "facts": dict(facts), "random": randomness.state_dict()}
    state["optimizers"] = {role: optimizer.state_dict() for role, (_, optimizer) in trained.items()}
    try:
        for role, (weights, _) in trained.items():
            tensors = {name: master.detach().contiguous() for name, master in weights.masters.items()}
            save_file(tensors, folder / f"{role}.safetensors")
        torch.save(state, folder / _STATE)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"cannot write the training state to '{folder}': {error}") from error


def load_state(folder: Path, trained: Trained, facts: Mapping[str, Any], randomness: TrainingRandomness) -> None:
    """Read what `save_state` wrote into the given objects.

    Raises:
        CheckpointError: the state is missing, damaged, or of a run with other settings.
    """
    try:
        state = torch.load(folder / _STATE, weights_only=True, map_location="cpu")
        weights = {role: load_file(folder / f"{role}.safetensors") for role in trained}
    except (OSError, RuntimeError, SafetensorError, EOFError, UnpicklingError) as error:
        raise CheckpointError(f"cannot read the training state in '{folder}': {error}") from error
    check_record(folder, state, _FORMAT, facts)
    try:
        for role, (masters, optimizer) in trained.items():
            masters.load(weights[role])
            optimizer.load_state_dict(state["optimizers"][role])
    except (KeyError, ValueError) as error:
        raise CheckpointError(f"the state in '{folder}' does not fit this model: {error}") from error
    randomness.load_state_dict(state["random"])


def check_record(folder: Path, record: Mapping[str, Any], version: int, facts: Mapping[str, Any]) -> None:
    """Compare what a saved state says of itself ("format", "facts") with this run.

    Raises:
        CheckpointError: it was written in another format, or by a run with other settings.
    """
    if record.get("format") != version:
        raise CheckpointError(f"'{folder}' has format {record.get('format')}, this version reads {version}")
    for name, value in facts.items():
        if record["facts"].get(name) != value:
            raise CheckpointError(
                f"the state in '{folder}' was trained with {name} {record['facts'].get(name)!r}, this run has "
                f"{value!r}; set the options of train.strategy and model as they were"
            )


def export_model(folder: Path, model: Any, source: Path, masters: Mapping[str, Tensor]) -> None:
    """Write a Hugging Face folder that loads as the trained model, in the format its source had.

    Args:
        folder: written to; made where missing.
        model: the causal language model, or the peft model around it.
        source: folder the model came from; its tokenizer and other small files are copied.
        masters: weights by their names in `model`, exported in place of its own.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    dtype = export_dtype(source)
    tensors = {name: t.contiguous() for name, t in ModelWeights(model, dtype, masters.get).tensors()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with no_progress_bars():
            inner.save_pretrained(folder, state_dict=tensors)
        _write_dtype(folder / "config.json", dtype)
        for path in sorted(source.iterdir()):
            weight_file = path.suffix in _WEIGHT_SUFFIXES or path.name.endswith(".index.json")
            if path.is_file() and not weight_file and not (folder / path.name).exists():
                shutil.copyfile(path, folder / path.name)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"cannot export the model to '{folder}': {error}") from error


def export_dtype(source: Path) -> torch.dtype:
    """The format that the model in `source` was published in, in which it is exported too."""
    from transformers import AutoConfig

    found: torch.dtype | None = getattr(AutoConfig.from_pretrained(source), "dtype", None)
    return found or torch.float32


def _write_dtype(path: Path, dtype: torch.dtype) -> None:
    """Name the format of the exported weights, where transformers wrote that of the model in memory."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
