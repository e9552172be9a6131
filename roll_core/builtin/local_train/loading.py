"""Loads causal language models and finds out what this strategy may do with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from roll_core.builtin.local_train import attention
from roll_core.builtin.local_train.kernels import install_rms_norm
from roll_core.builtin.local_train.layout import Layout, packed_layout, padded_layout
from roll_core.builtin.local_train.logprob import Head
from roll_core.contracts import LoraSettings
from roll_core.errors import BackendError
from roll_core.types import Batch

_PROBE_TOLERANCE = 0.02
"""Largest relative difference between two routes to the same hidden states or logits."""

_PROBE_ROUNDING = 3.0
"""Or this many times the difference that the model's own eager attention makes, for rounding in deep models."""


def load_causal_lm(folder: Path, dtype: torch.dtype, device: torch.device) -> Any:
    """Load the model in a Hugging Face folder, without dropout.

    Raises:
        BackendError: the folder holds no causal language model, or lacks some of its weights.
    """
    from transformers import AutoModelForCausalLM

    if not (folder / "config.json").is_file():
        raise BackendError(f"no model in '{folder}': config.json is missing")
    try:
        with no_progress_bars():
            model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise BackendError(f"cannot load the model in '{folder}': {error}") from error
    if info["missing_keys"]:
        names = ", ".join(sorted(info["missing_keys"])[:5])
        raise BackendError(f"the model in '{folder}' lacks weights: {names}")
    _disable_dropout(model)
    model.to(device).eval()
    install_rms_norm(model)
    return model


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing progress bars for reading and writing weights."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _disable_dropout(model: nn.Module) -> None:
    """The log-probs of a step must be those of the distribution that was sampled, so nothing is dropped."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0  # type: ignore[assignment]  # a plain attribute of attention layers


def add_lora(model: Any, settings: LoraSettings, seed: int) -> Any:
    """Freeze `model` and put adapters into it; returns the peft model around it.

    Raises:
        BackendError: the targets do not exist, or hold the output layer.
    """
    from peft import LoraConfig, get_peft_model

    targets = settings.targets if isinstance(settings.targets, str) else list(settings.targets)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            wrapped = get_peft_model(model, config, autocast_adapter_dtype=False)
        except ValueError as error:
            raise BackendError(f"cannot put adapters on the targets of model.lora: {error}") from error
    head = model.get_output_embeddings()
    if not isinstance(head, nn.Linear) or not isinstance(model.get_input_embeddings(), nn.Embedding):
        raise BackendError("model.lora.targets holds the embedding or the output layer; leave both out")
    return wrapped


def head_of(model: Any, gradient: Any = None) -> Head:
    """The output layer of `model` as the log-prob function needs it.

    Args:
        model: a causal language model.
        gradient: where the gradient of its weight is summed (see `Head.weight_grad`).

    Raises:
        BackendError: the logits are made in a way that is not known here.
    """
    layer = model.get_output_embeddings()
    if not isinstance(layer, nn.Linear):
        raise BackendError(f"the output layer of {type(model).__name__} is no linear layer: {type(layer).__name__}")
    config = model.config.get_text_config()
    scale = float(getattr(config, "logit_scale", None) or 1.0) / float(getattr(config, "logits_scaling", None) or 1.0)
    cap = getattr(config, "final_logit_softcapping", None)
    head = Head(layer.weight, layer.bias, scale, float(cap) if cap else None, gradient)
    _check_head(model, head)
    return head


@torch.no_grad()
def _check_head(model: Any, head: Head) -> None:
    ids = torch.arange(4, device=head.weight.device)[None]
    hidden = backbone_of(model)(input_ids=ids, use_cache=False).last_hidden_state
    logits = nn.functional.linear(hidden, head.weight, head.bias).float() * head.scale
    if head.softcap is not None:
        logits = head.softcap * torch.tanh(logits / head.softcap)
    if _distance(logits, model(input_ids=ids, use_cache=False).logits.float()) > _PROBE_TOLERANCE:
        raise BackendError(
            f"{type(model).__name__} turns hidden states into logits in a way that is not known here "
            "(beyond logit_scale, logits_scaling and final_logit_softcapping); use another train strategy"
        )


def backbone_of(model: Any) -> Any:
    """The part of a causal language model below its output layer."""
    return model.get_decoder()


def supports_packing(model: Any) -> str | None:
    """Switch `model` to packed attention where that computes the same; else return why not and leave it."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or []) - {"full_attention"}
    if kinds:
        return f"it has layers of kind {', '.join(sorted(kinds))}"
    if getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True):
        return f"it attends within a sliding window of {config.sliding_window} tokens"
    attention.register()
    before = model.config._attn_implementation
    batch = _probe_batch()
    plain = padded_layout(batch, np.arange(3), model.device)
    packed = packed_layout(batch, np.arange(3), model.device, model.dtype)
    try:
        expected = _probe(model, before, plain)
        rounding = _distance(_probe(model, "eager", plain), expected)
        distance = _distance(_probe(model, attention.ATTENTION_NAME, packed), expected)
    except (ValueError, TypeError, KeyError, RuntimeError, ImportError) as error:
        model.set_attn_implementation(before)
        return f"its attention cannot be replaced ({error})"
    if distance > max(_PROBE_TOLERANCE, _PROBE_ROUNDING * rounding):
        model.set_attn_implementation(before)
        return f"its hidden states differ by {distance:.1%} when prompts are shared"
    return None


@torch.no_grad()
def _probe(model: Any, implementation: str, layout: Layout) -> Tensor:
    """Hidden states of the scored tokens of `layout`, with the given attention."""
    model.set_attn_implementation(implementation)
    options = {attention.PLAN_KEY: layout.plan} if layout.plan is not None else {}
    out = backbone_of(model)(
        input_ids=layout.input_ids, position_ids=layout.position_ids, use_cache=False, **options
    ).last_hidden_state
    states: Tensor = out.flatten(0, 1)[layout.predictors].float()
    return states


def _distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm().clamp_min(1e-12))


def _probe_batch() -> Batch:
    """Two responses to one prompt and one to another."""
    tokens = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 6, 5], [3, 1, 2, 2, 1, 0, 4]]
    sampled = [[0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 1, 1, 1, 1, 1]]
    mask = np.concatenate(sampled).astype(np.bool_)
    return Batch(
        token_ids=np.concatenate(tokens).astype(np.int32),
        offsets=np.cumsum([0, *map(len, tokens)]).astype(np.int64),
        response_mask=mask,
        loss_mask=mask,
        rollout_logprobs=np.zeros(len(mask), np.float32),
        segment_rollout=np.arange(3),
        rollout_group=np.array([0, 0, 1]),
        rollout_domain=np.zeros(3, np.int64),
        domains=("probe",),
        rewards=np.zeros(3, np.float32),
        scores=np.zeros(3, np.float32),
    )
