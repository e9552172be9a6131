"""Builds and wires everything a run is made of, from its config and the installed plugins.

Parts are built lazily and once, cheapest first: a wrong config, a missing file or an unknown name stops the run before
a model is loaded.
"""

from __future__ import annotations

import json
import logging
import sys
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roll_core.checkpoint import Checkpoint, CheckpointStore
from roll_core.cluster import Executor
from roll_core.cluster.choice import make_executor
from roll_core.config.load import check_config, plain
from roll_core.config.plan import BatchPlan, size_warnings
from roll_core.config.resolve import resolve_algorithm, resolve_eval_data, resolve_sampling
from roll_core.config.schema import ComponentRef, DataConfig, RunConfig
from roll_core.contracts import (
    Filter,
    Mixer,
    RolloutBackend,
    RunInfo,
    Source,
    Tracker,
    TrainSetup,
    TrainStrategy,
    requirements_of,
)
from roll_core.credit import Credit, DomainAlgorithm, required_columns
from roll_core.data import DomainStream, Draw, HeldOut, Ledger, PromptBuilder, keyed_seed
from roll_core.dataflow import Dataflow
from roll_core.engine import Engine, Parts
from roll_core.errors import ConfigError
from roll_core.evaluation import Evaluator
from roll_core.models import resolve_model
from roll_core.rollout.feed import Feed
from roll_core.rollout.groups import GroupRunner
from roll_core.rollout.modes import make_feed
from roll_core.rooms import SeedOf, Stateful
from roll_core.scoring import DomainScoring, RewardComponent, Scorer, VerifierPool
from roll_core.types import Prompt, SamplingParams, Ticket

if TYPE_CHECKING:
    from roll_core.config.load import LoadedConfig
    from roll_core.plugin.host import Host

logger = logging.getLogger(__name__)

_STATEFUL = frozenset({"filters", "rewards", "advantages", "policy_losses"})
"""Kinds whose components may keep state in the driver; it goes into checkpoints (the mixer's goes with the draw)."""

RUN_FILE = "run.json"
CONFIG_FILE = "config.yaml"


class Assembly:
    """The parts of one run.

    Args:
        loaded: the configuration with the origin of its values.
        host: the installed plugins.
    """

    def __init__(self, loaded: LoadedConfig, host: Host) -> None:
        self.loaded = loaded
        self.host = host
        self._stateful: dict[str, Stateful] = {}
        self.plan: BatchPlan = check_config(loaded, host)
        """The batch arithmetic."""
        for warning in size_warnings(loaded.config):
            logger.warning("%s", warning)

    @property
    def config(self) -> RunConfig:
        """The run's configuration."""
        return self.loaded.config

    def engine(self, resume: Checkpoint | None = None) -> Engine:
        """Build everything and wire it; with `resume`, go on from that checkpoint.

        Models are loaded last, when nothing else can be wrong any more.
        """
        run = self._run_info(resume)
        filters, trackers = self._filters(), self._trackers()
        draw, scorer, credit, _held_out = self.draw, self.scorer, self.credit, self.held_out
        self.host.notify("roll_configure", config=run.config)
        parts = Parts(
            config=self.config,
            run=run,
            flow=self.flow,
            draw=draw,
            mixer=self.mixer,
            ledger=self.ledger,
            feed=self._feed(filters),
            sampling=self.sampling,
            scorer=scorer,
            verifiers=self.verifiers,
            credit=credit,
            components=self._stateful,
            strategy=self.strategy,
            backend=self.backend,
            evaluator=self.evaluator,
            trackers=trackers,
            checkpoints=self.checkpoints,
            observers=self.host,
            manifest=self.host.manifest(),
            executor=self.executor,
        )
        return Engine(parts, resume)

    # --- what was asked for ---

    @cached_property
    def algorithms(self) -> dict[str, DomainAlgorithm]:
        """Advantage, loss and settings by domain."""
        return {name: self._algorithm(name) for name in self.config.domains}

    @cached_property
    def flow(self) -> Dataflow:
        """What a step computes."""
        return Dataflow(required_columns(self.algorithms, updates_per_batch=self.plan.updates_per_step))

    @cached_property
    def sampling(self) -> dict[str, SamplingParams]:
        """Sampling parameters by domain."""
        stops = self._stop_token_ids()
        return {name: resolve_sampling(self.config, name).params(stops) for name in self.config.domains}

    @cached_property
    def checkpoints(self) -> CheckpointStore:
        """The run's checkpoints."""
        return CheckpointStore(self.config.run_folder / "checkpoints", self.config.checkpoint.keep)

    # --- data ---

    @cached_property
    def model_folder(self) -> Path:
        """The policy's Hugging Face folder."""
        return resolve_model(self.config.model.path, self.host)

    @cached_property
    def tokenizer(self) -> Any:
        """The policy's tokenizer."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.model_folder)

    @cached_property
    def builders(self) -> dict[str, PromptBuilder]:
        """Training prompts by domain."""
        return {name: self._builder(name, d.data, f"domains.{name}.data") for name, d in self.config.domains.items()}

    @cached_property
    def held_out(self) -> dict[str, Sequence[Prompt]]:
        """Held-out prompts of the domains that have some; warns about those that are trained on too."""
        found: dict[str, Sequence[Prompt]] = {}
        for name, domain in self.config.domains.items():
            data = resolve_eval_data(domain)
            if data is None:
                continue
            held_out = HeldOut(
                name,
                data,
                self._build("sources", data, f"domains.{name}.eval_data"),
                self.tokenizer,
                max_prompt_tokens=self._max_prompt_tokens(name),
                limit=self.config.eval.limit,
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
        mixer: Mixer = self._build(
            "mixers",
            self.config.mixer,
            "mixer",
            domains=tuple(self.config.domains),
            sizes={name: len(b) for name, b in self.builders.items()},
            seed=self.config.seed,
            total_steps=self.config.steps,
        )
        return mixer

    @cached_property
    def draw(self) -> Draw:
        """The next prompts."""
        streams = {name: DomainStream(b, seed=self.config.seed) for name, b in self.builders.items()}
        return Draw(streams, self.mixer)

    @cached_property
    def ledger(self) -> Ledger:
        """The books over every ticket."""
        return Ledger(tuple(self.config.domains))

    # --- scoring and credit ---

    @cached_property
    def verifiers(self) -> VerifierPool:
        """The pool that runs every domain's verifier."""
        specs = {
            name: self.host.spec("verifiers", d.verifier.use, d.verifier.options, place=f"domains.{name}.verifier")
            for name, d in self.config.domains.items()
        }
        return VerifierPool(specs, workers=self.config.scoring.workers, timeout_s=self.config.scoring.timeout_s)

    @cached_property
    def scorer(self) -> Scorer:
        """Verdicts and rewards."""
        domains = {}
        for name, domain in self.config.domains.items():
            rewards = [
                RewardComponent(ref.label, self._build("rewards", ref, f"domains.{name}.rewards.{i}"), ref.weight)
                for i, ref in enumerate(domain.rewards)
            ]
            domains[name] = DomainScoring(name, rewards)
        return Scorer(domains, self.verifiers, alarm_rate=self.config.scoring.alarm_rate)

    @cached_property
    def credit(self) -> Credit:
        """Rewards to an objective."""
        config = self.config
        return Credit(
            self.algorithms,
            mini_batches=config.batch.mini_batches,
            epochs=config.batch.epochs,
            seed=config.seed,
            critic=config.critic if self.flow.needs_critic else None,
        )

    # --- engines ---

    @cached_property
    def executor(self) -> Executor | None:
        """Starts worker processes; None where the config keeps to one process."""
        return make_executor(self.config.cluster, self.host, self.config.run_folder / "logs")

    @cached_property
    def strategy(self) -> TrainStrategy:
        """Trains the policy."""
        config, flow = self.config, self.flow
        setup = TrainSetup(
            model=self.model_folder,
            optim=config.train.optim,
            total_steps=self.plan.total_updates,
            seed=config.seed,
            lora=config.model.lora,
            reference=self._model(config.model.reference, "model.reference") if flow.needs_reference else None,
            teachers={name: resolve_model(name, self.host, place="teacher") for name in sorted(flow.teachers)},
            critic=self._model(config.critic.path, "critic.path") if flow.needs_critic else None,
            critic_optim=config.critic.optim if flow.needs_critic else None,
        )
        strategy: TrainStrategy = self._build(
            "train_strategies", config.train.strategy, "train.strategy", setup=setup, executor=self.executor
        )
        return strategy

    @cached_property
    def backend(self) -> RolloutBackend:
        """Generates tokens."""
        backend: RolloutBackend = self._build(
            "rollout_backends",
            self.config.rollout.backend,
            "rollout.backend",
            model=self.model_folder,
            seed=self.config.seed,
            executor=self.executor,
        )
        return backend

    @cached_property
    def evaluator(self) -> Evaluator | None:
        """Held-out evaluation; None when no domain has held-out data."""
        if not self.held_out:
            return None
        return Evaluator(
            backend=self.backend,
            scoring=self.scorer,
            decode=self.decode,
            prompts=self.held_out,
            sampling=self.sampling,
            samples=self.config.eval.samples,
            greedy=self.config.eval.greedy,
            seed_of=self._seed_of("eval"),
        )

    def decode(self, token_ids: Sequence[int]) -> str:
        """Token ids to text, special tokens left out."""
        text: str = self.tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text

    def _model(self, name: str | None, place: str) -> Path:
        return resolve_model(name, self.host, place=place) if name else self.model_folder

    def _filters(self) -> list[Filter]:
        return [self._build("filters", ref, f"filters.{i}") for i, ref in enumerate(self.config.filters)]

    def _feed(self, filters: Sequence[Filter]) -> Feed:
        config = self.config
        groups = GroupRunner(
            backend=self.backend,
            scoring=self.scorer,
            books=self.ledger,
            decode=self.decode,
            filters=filters,
            sampling=self.sampling,
            group_size=config.batch.group_size,
            seed_of=self._seed_of("rollout"),
            greedy=frozenset(n for n, a in self.algorithms.items() if "greedy_rewards" in requirements_of(a.advantage)),
            early_stop=config.rollout.early_stop,
        )
        return make_feed(config, groups, self.draw, max_draws=self.plan.draw_budget)

    def _trackers(self) -> list[Tracker]:
        return [self._build("trackers", ref, f"trackers.{i}") for i, ref in enumerate(self.config.trackers)]

    def _algorithm(self, domain: str) -> DomainAlgorithm:
        algorithm = resolve_algorithm(self.config, domain)
        place = f"domains.{domain}.algorithm"
        return DomainAlgorithm(
            config=algorithm,
            advantage=self._build("advantages", algorithm.advantage, f"{place}.advantage"),
            loss=self._build("policy_losses", algorithm.loss, f"{place}.loss"),
            weight=self.config.domains[domain].weight,
            max_new_tokens=resolve_sampling(self.config, domain).max_new_tokens,
        )

    def _builder(self, domain: str, data: DataConfig, place: str) -> PromptBuilder:
        source: Source = self._build("sources", data, place)
        return PromptBuilder(domain, data, source, self.tokenizer, max_prompt_tokens=self._max_prompt_tokens(domain))

    def _max_prompt_tokens(self, domain: str) -> int:
        """What the config allows, and the model's context leaves beside the response."""
        response = resolve_sampling(self.config, domain).max_new_tokens
        room = self._context_length - response
        if room < 1:
            raise ConfigError(
                f"domains.{domain}: {response} new tokens leave no room for a prompt in the context of "
                f"{self._context_length} tokens of {self.model_folder.name}; lower rollout.sampling.max_new_tokens"
            )
        return min(self.config.batch.max_prompt_tokens, room)

    @cached_property
    def _context_length(self) -> int:
        config = json.loads((self.model_folder / "config.json").read_text(encoding="utf-8"))
        text = config.get("text_config", config)
        return int(text.get("max_position_embeddings", sys.maxsize))

    def _build(self, kind: str, ref: ComponentRef, place: str, **context: Any) -> Any:
        built = self.host.build(kind, ref.use, ref.options, place=place, **context)
        if kind in _STATEFUL and hasattr(built, "state_dict") and hasattr(built, "load_state_dict"):
            self._stateful[place] = built
        return built

    def _seed_of(self, purpose: str) -> SeedOf:
        seed = self.config.seed

        def seed_of(ticket: Ticket, index: int, attempt: int) -> int:
            return keyed_seed(seed, purpose, ticket.domain, ticket.id, index, attempt)

        return seed_of

    def _stop_token_ids(self) -> tuple[int, ...]:
        settings = self.model_folder / "generation_config.json"
        found = json.loads(settings.read_text(encoding="utf-8")).get("eos_token_id") if settings.is_file() else None
        ids = set(found if isinstance(found, list) else [] if found is None else [found])
        if self.tokenizer.eos_token_id is not None:
            ids.add(self.tokenizer.eos_token_id)
        return tuple(sorted(ids))

    def _run_info(self, resume: Checkpoint | None) -> RunInfo:
        folder = self.config.run_folder
        known: Mapping[str, Any] = {}
        if (folder / RUN_FILE).is_file():
            known = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
        return RunInfo(
            run_id=known.get("run_id") or uuid.uuid4().hex[:12],
            name=self.config.name,
            folder=folder,
            config=plain(self.config.model_dump()),
            plugins=self.host.manifest(),
            resumed_from=resume.step if resume is not None else None,
            total_steps=self.config.steps,
        )
