"""The prompts of a run: sources, held-out sets, mixer and draw."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property

from roll_core.assembly.building import Builder
from roll_core.assembly.policy import Policy
from roll_core.config.resolve import resolve_eval_data, resolve_sampling
from roll_core.config.schema import DataConfig, RunConfig
from roll_core.contracts import Mixer, Source
from roll_core.data import DomainStream, Draw, HeldOut, Ledger, PromptBuilder
from roll_core.errors import ConfigError
from roll_core.types import Prompt

logger = logging.getLogger(__name__)


class RunData:
    """Where prompts come from.

    Args:
        config: of the run.
        builder: builds sources and mixer.
        policy: its tokenizer and context length bound prompts.
    """

    def __init__(self, config: RunConfig, builder: Builder, policy: Policy) -> None:
        self._config = config
        self._builder = builder
        self._policy = policy

    @cached_property
    def builders(self) -> dict[str, PromptBuilder]:
        """Training prompts by domain."""
        domains = self._config.domains.items()
        return {name: self._prompts(name, domain.data, f"domains.{name}.data") for name, domain in domains}

    @cached_property
    def held_out(self) -> dict[str, Sequence[Prompt]]:
        """Held-out prompts of the domains that have some; warns about those that are trained on too."""
        found: dict[str, Sequence[Prompt]] = {}
        for name, domain in self._config.domains.items():
            data = resolve_eval_data(domain)
            if data is None:
                continue
            held_out = HeldOut(
                name,
                data,
                self._builder.build("sources", data, f"domains.{name}.eval_data"),
                self._policy.tokenizer,
                max_prompt_tokens=self._max_prompt_tokens(name),
                limit=self._config.eval.limit,
            )
            overlap = held_out.overlap(self.builders[name])
            if overlap.shared:
                logger.warning(
                    "domain '%s': %d of %d held-out prompts are training prompts too, so its held-out accuracy "
                    "says little", name, overlap.shared, overlap.held_out,
                )  # fmt: skip
            found[name] = held_out.prompts
        return found

    @cached_property
    def mixer(self) -> Mixer:
        """Chooses the domain of each prompt."""
        mixer: Mixer = self._builder.build(
            "mixers",
            self._config.mixer,
            "mixer",
            domains=tuple(self._config.domains),
            sizes={name: len(b) for name, b in self.builders.items()},
            seed=self._config.seed,
            total_steps=self._config.steps,
        )
        return mixer

    @cached_property
    def draw(self) -> Draw:
        """The next prompts."""
        streams = {name: DomainStream(b, seed=self._config.seed) for name, b in self.builders.items()}
        return Draw(streams, self.mixer)

    @cached_property
    def ledger(self) -> Ledger:
        """The books over every ticket."""
        return Ledger(tuple(self._config.domains))

    def _prompts(self, domain: str, data: DataConfig, place: str) -> PromptBuilder:
        source: Source = self._builder.build("sources", data, place)
        return PromptBuilder(
            domain, data, source, self._policy.tokenizer, max_prompt_tokens=self._max_prompt_tokens(domain)
        )

    def _max_prompt_tokens(self, domain: str) -> int:
        """What the config allows, and the model's context leaves beside the response."""
        response = resolve_sampling(self._config, domain).max_new_tokens
        context = self._policy.context_length
        room = context - response
        if room < 1:
            raise ConfigError(
                f"domains.{domain}: {response} new tokens leave no room for a prompt in the context of "
                f"{context} tokens of {self._policy.folder.name}; lower rollout.sampling.max_new_tokens"
            )
        return min(self._config.batch.max_prompt_tokens, room)
