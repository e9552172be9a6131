"""Loads the model a backend generates with, and picks how to run it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from roll_core.builtin.device import Precision, resolve_device, resolve_dtype
from roll_core.builtin.local_rollout import lean
from roll_core.builtin.local_rollout.cache import DecodeStep, PromptBatch, SlotStore
from roll_core.builtin.local_rollout.runner import GenericRunner, Runner
from roll_core.errors import BackendError

_log = logging.getLogger(__name__)

_LAYER_KINDS = frozenset({"full_attention", "sliding_attention", "chunked_attention"})
_UNLIMITED = 1 << 30
_TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 0.15}
"""Mean difference of logits that passes the check, in standard deviations of the logits."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to generate."""

    model: Any
    runner: Runner
    max_length: int
    """Longest sequence in tokens, prompt and response together."""
    vocabulary: int


def load_model(folder: Path, *, precision: Precision, device: str) -> LoadedModel:
    """Load a Hugging Face folder for generation.

    Raises:
        BackendError: the folder cannot be loaded, or the architecture keeps a state that slots cannot hold.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging as bars

    place = resolve_device(device, "rollout.backend.device")
    dtype = resolve_dtype(precision, place)
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
        model = model.to(place).eval().requires_grad_(False)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise BackendError(f"cannot load the model in {folder} for rollouts: {error}") from error
    finally:
        if shown:
            bars.enable_progress_bar()
    config = model.config.get_text_config()
    max_length = _check_layers(model, config)
    with torch.inference_mode():
        runner = choose_runner(model)
    _log.info("rollout model %s: %s, %s, %s", folder, type(runner).__name__, dtype, place)
    return LoadedModel(model, runner, max_length, int(config.vocab_size))


def choose_runner(model: Any) -> Runner:
    """The fastest runner whose logits agree with the model's own forward on a short sample.

    Raises:
        BackendError: not even the generic one agrees.
    """
    if lean.supports(model):
        runner = lean.LeanRunner(model)
        if _agrees(runner, model):
            return runner
        _log.warning("%s differs from the lean form; it runs through its own forward", type(model).__name__)
    generic = GenericRunner(model)
    try:
        agrees = _agrees(generic, model)
    except (TypeError, AttributeError, ValueError, IndexError, RuntimeError) as error:
        raise _unsupported(model, f"running it with a slot cache fails: {error}") from error
    if not agrees:
        raise _unsupported(model, "with a slot cache its logits differ from those without")
    return generic


def _agrees(runner: Runner, model: Any) -> bool:
    """Compare two prompts, a prefill and two decode steps each, with plain forwards of the model."""
    device, vocabulary = model.device, int(model.config.get_text_config().vocab_size)
    rows = [tuple((7 * i + 3 * row + 1) % vocabulary for i in range(length)) for row, length in enumerate((9, 6))]
    store = SlotStore(2, 16)
    batch = PromptBatch(tuple(row[:-2] for row in rows), ((0,), (1,)))
    made = [runner.prefill(batch, store)]
    for back in (2, 1):
        tokens, positions = [row[-back] for row in rows], [len(row) - back for row in rows]
        made.append(runner.decode(DecodeStep.build(tokens, positions, store.length, device), store))
    expected = [model(input_ids=torch.tensor([row], device=device), use_cache=False).logits[0, -3:] for row in rows]
    return _distance(torch.stack(made, 1), torch.stack(expected)) <= _TOLERANCE[model.dtype]


def _distance(made: Tensor, expected: Tensor) -> float:
    made, expected = made.float(), expected.float()
    return float((made - expected).abs().mean() / expected.std().clamp(min=1e-12))


def _check_layers(model: Any, config: Any) -> int:
    """Refuse layers without keys and values; return the longest sequence for which full attention is exact."""
    kinds = set(getattr(config, "layer_types", None) or ())
    if getattr(model, "_is_stateful", False) or kinds - _LAYER_KINDS:
        strange = ", ".join(sorted(kinds - _LAYER_KINDS)) or "recurrent"
        raise _unsupported(model, f"it has {strange} layers, whose state is not a list of keys and values")
    limits = [getattr(config, "max_position_embeddings", None)]
    if "sliding_attention" in kinds or not kinds:
        limits.append(getattr(config, "sliding_window", None))
    if "chunked_attention" in kinds:
        limits.append(getattr(config, "attention_chunk_size", None))
    return min([int(limit) for limit in limits if limit], default=_UNLIMITED)


def _unsupported(model: Any, why: str) -> BackendError:
    name = type(model).__name__
    return BackendError(f"the local rollout backend cannot run {name}: {why}. Use another backend, for instance vllm")
