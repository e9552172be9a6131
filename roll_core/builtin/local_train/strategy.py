"""The built-in train strategy: forward, backward and optimiser in one process, on a CPU or one GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from roll_core.builtin.device import Precision, resolve_device, resolve_dtype
from roll_core.builtin.local_train.allocator import keep_freed_memory
from roll_core.builtin.local_train.columns import OWN, REFERENCE, check_columns, frozen_folders
from roll_core.builtin.local_train.critic import Critic, enable_checkpointing
from roll_core.builtin.local_train.layout import Layout
from roll_core.builtin.local_train.loading import add_lora, load_causal_lm
from roll_core.builtin.local_train.logprob import Workspace
from roll_core.builtin.local_train.masters import MasterWeights
from roll_core.builtin.local_train.model import ScoringModel, empty_column, spread
from roll_core.builtin.local_train.objective import Meter, evaluate, loss_inputs, needs_of
from roll_core.builtin.local_train.optimizer import Optimizer
from roll_core.builtin.local_train.persistence import export_model, load_state, save_state
from roll_core.builtin.local_train.randomness import TrainingRandomness
from roll_core.builtin.local_train.weights import ModelWeights
from roll_core.contracts import MiniBatch, TrainSetup, WeightSource
from roll_core.errors import BackendError
from roll_core.types import Batch, FloatArray, IndexArray


class LocalTrainStrategy:
    """Trains a causal language model in this process (`contracts.TrainStrategy`).

    Args:
        setup: model, optimiser, and which further models are needed.
        micro_tokens: most tokens computed at once, prompts counted once where they are shared.
        precision: format the model computes in; masters and optimiser are float32 always. "auto" takes bfloat16
            where the device multiplies in it natively.
        layout: "shared_prompt" computes the prompt of a group once, on one row without padding; "padded" lays one
            segment on a row; "auto" shares where the model allows it.
        gradient_checkpointing: keep only layer inputs for the backward pass; slower, and needs less memory.
        logprob_chunk: most rows of logits that exist at once.
        device: "auto", "cpu", "cuda", "cuda:1" …

    Raises:
        BackendError: a model cannot be loaded, or not be used as asked.
    """

    def __init__(
        self,
        *,
        setup: TrainSetup,
        micro_tokens: Annotated[int, Field(ge=1)] = 4096,
        precision: Precision = "auto",
        layout: Literal["auto", "shared_prompt", "padded"] = "auto",
        gradient_checkpointing: bool = False,
        logprob_chunk: Annotated[int, Field(ge=1)] = 2048,
        device: str = "auto",
    ) -> None:
        self._setup = setup
        self._micro_tokens = micro_tokens
        self._device = resolve_device(device, "train.strategy.device")
        if self._device.type == "cpu":
            keep_freed_memory()
        self._dtype = resolve_dtype(precision, self._device)
        self._randomness = TrainingRandomness(setup.seed, self._device)
        self._workspace = Workspace(logprob_chunk)
        self._layout = layout
        self._peft: Any | None = None
        self._policy, self._weights = self._load_policy(gradient_checkpointing)
        self._optimizer = Optimizer(self._weights, setup.optim, setup.total_steps)
        self._frozen = self._load_frozen()
        self._critic: Critic | None = None
        self._critic_optimizer: Optimizer | None = None
        if setup.critic is not None:
            self._critic = Critic(setup.critic, self._dtype, self._device, layout, gradient_checkpointing)
            settings = setup.critic_optim or setup.optim
            self._critic_optimizer = Optimizer(self._critic.weights, settings, setup.total_steps)

    # --- TrainStrategy ------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def compute(self, batch: Batch, columns: frozenset[str]) -> dict[str, FloatArray]:
        """Token columns [N] without gradient; 0 where the policy sampled nothing.

        `old_logprobs` are of the sampled distribution; `ref_logprobs`, `logprobs@<teacher>` and `entropy` of the full
        one at the sampling temperature; `values` come from the critic.

        Raises:
            BackendError: a column this strategy cannot compute, or a model it needs was not set up.
        """
        check_columns(self._setup, columns)
        out: dict[str, FloatArray] = {}
        own = columns & OWN
        if own:
            out.update(self._score(self._policy, batch, own))
        for name in sorted(columns - own):
            if name == "values":
                out[name] = self._values(batch)
                continue
            model, context = self._scorer(name)
            with context:
                out[name] = self._score(model, batch, frozenset({"full_logprobs"}))["full_logprobs"]
        return out

    def update(self, batch: Batch, mini_batches: Sequence[MiniBatch]) -> dict[str, float]:
        """One optimiser step per mini-batch; returns means over what was counted.

        A gradient that is not finite leaves the weights as they were and is counted in `train/skipped_steps`.

        Raises:
            BackendError: a mini-batch is empty, a segment too long, or a term needs what no model here gives.
        """
        if not mini_batches:
            raise BackendError("there is no mini-batch to train on")
        meter = Meter()
        self._train_mode(True)
        try:
            with self._randomness.drawing():
                for mini in mini_batches:
                    self._update_one(batch, mini, meter)
        finally:
            self._train_mode(False)
        return meter.summary(len(mini_batches))

    def weight_source(self) -> WeightSource:
        """The policy's weights as they are now, in the format it computes with."""
        return ModelWeights(self._peft if self._peft is not None else self._policy.model)

    def save(self, folder: Path) -> None:
        """Write weights (or adapters), optimisers, schedules and random states into an existing, empty folder."""
        save_state(folder, self._trained(), self._facts(), self._randomness)

    def load(self, folder: Path) -> None:
        """Go on from what `save` wrote, bit for bit."""
        load_state(folder, self._trained(), self._facts(), self._randomness)

    def export(self, folder: Path) -> None:
        """Write a Hugging Face model folder: adapters merged, tokenizer included."""
        model = self._peft if self._peft is not None else self._policy.model
        export_model(folder, model, self._setup.model, self._weights.masters)

    def close(self) -> None:
        """Free the logits buffer."""
        self._workspace.buffer = None

    # --- building -----------------------------------------------------------------------------------------------------

    def _load_policy(self, gradient_checkpointing: bool) -> tuple[ScoringModel, MasterWeights]:
        setup = self._setup
        lora = setup.lora
        model = load_causal_lm(setup.model, self._dtype if lora is not None else torch.float32, self._device)
        root = model
        if lora is not None:
            root = self._peft = add_lora(model, lora, setup.seed)
        trained = {name: p for name, p in root.named_parameters() if p.requires_grad}
        if not trained:
            raise BackendError(f"the model in '{setup.model}' has nothing to train")
        weights = MasterWeights(trained, self._dtype)
        if gradient_checkpointing:
            enable_checkpointing(model)
        return ScoringModel(model, setup.model, self._layout, self._workspace, weights), weights

    def _load_frozen(self) -> dict[str, ScoringModel]:
        """Reference and teachers, by the column they compute."""
        frozen: dict[str, ScoringModel] = {}
        for column, folder in frozen_folders(self._setup).items():
            model = load_causal_lm(folder, self._dtype, self._device)
            model.requires_grad_(False)
            frozen[column] = ScoringModel(model, folder, self._layout, self._workspace)
        return frozen

    def _trained(self) -> dict[str, tuple[MasterWeights, Optimizer]]:
        trained = {"policy": (self._weights, self._optimizer)}
        if self._critic is not None and self._critic_optimizer is not None:
            trained["critic"] = (self._critic.weights, self._critic_optimizer)
        return trained

    def _facts(self) -> dict[str, Any]:
        return {"precision": str(self._dtype).removeprefix("torch."), "lora": self._setup.lora is not None}

    # --- forward passes -----------------------------------------------------------------------------------------------

    def _scorer(self, column: str) -> tuple[ScoringModel, AbstractContextManager[Any]]:
        """The frozen model that computes `column`, and the context to run it in."""
        if column == REFERENCE and self._peft is not None and column not in self._frozen:
            return self._policy, self._peft.disable_adapter()
        return self._frozen[column], nullcontext()

    def _micro_batches(self, model: Any, batch: Batch, segments: IndexArray) -> Iterator[Layout]:
        for members in model.plan(batch, segments, self._micro_tokens):
            yield model.layout(batch, members)

    def _score(self, model: ScoringModel, batch: Batch, names: frozenset[str]) -> dict[str, FloatArray]:
        out = {name: empty_column(batch) for name in names}
        for layout in self._micro_batches(model, batch, np.arange(batch.n_segments)):
            scores = model.scores(batch, layout, entropy="entropy" in names, sampled="old_logprobs" in names)
            found = {"old_logprobs": scores.logprobs, "full_logprobs": scores.full_logprobs, "entropy": scores.entropy}
            for name, column in out.items():
                values = found[name]
                if values is not None:
                    spread(batch, layout, values, column)
        return out

    def _values(self, batch: Batch) -> FloatArray:
        critic = self._critic_or_raise()
        out = empty_column(batch)
        for layout in self._micro_batches(critic.backbone, batch, np.arange(batch.n_segments)):
            spread(batch, layout, critic.values(layout), out)
        return out

    def _critic_or_raise(self) -> Critic:
        if self._critic is None:
            raise BackendError("values were asked for, but no critic was set up")
        return self._critic

    # --- update -------------------------------------------------------------------------------------------------------

    def _train_mode(self, on: bool) -> None:
        """Layers only differ in training mode by checkpointing and by the dropout of adapters."""
        for model in (self._policy.model, self._critic.backbone.model if self._critic is not None else None):
            if model is not None:
                model.train(on)

    def _update_one(self, batch: Batch, mini: MiniBatch, meter: Meter) -> None:
        needs = needs_of(mini.terms)
        wants_policy, wants_values = bool(needs - {"values"}), "values" in needs
        critic = self._critic_or_raise() if wants_values else None
        optimizers = self._optimizers(wants_policy, wants_values)
        for _, (weights, _) in optimizers.items():
            weights.begin()
        leader = self._policy if wants_policy or critic is None else critic.backbone
        for members in leader.plan(batch, mini.segments, self._micro_tokens):
            layout = leader.layout(batch, members)
            scores = self._policy.scores(batch, layout, entropy="entropy" in needs) if wants_policy else None
            values = None
            if critic is not None:
                own = layout if leader is critic.backbone else critic.backbone.layout(batch, members)
                values = critic.values(own)
            inputs = loss_inputs(batch, layout, scores, values, self._device)
            loss = evaluate(mini.terms, inputs, layout, meter)
            if loss.requires_grad:
                loss.backward()  # type: ignore[no-untyped-call]  # torch's stub
            meter.add_micro_batch(batch, layout, loss)
        for role, (_, optimizer) in optimizers.items():
            optimizer.step().add_to(meter, role)

    def _optimizers(self, policy: bool, critic: bool) -> dict[str, tuple[MasterWeights, Optimizer]]:
        wanted = {"policy": policy, "critic": critic}
        return {role: pair for role, pair in self._trained().items() if wanted[role]}
