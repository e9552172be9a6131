"""The parts of one run, and the engine made of them."""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from roll_core.assembly.building import Builder
from roll_core.assembly.data import RunData
from roll_core.assembly.policy import Policy
from roll_core.assembly.processes import Processes
from roll_core.checkpoint import Checkpoint, CheckpointStore
from roll_core.config.load import check_config, plain
from roll_core.config.plan import BatchPlan, size_warnings
from roll_core.config.resolve import resolve_algorithm, resolve_sampling
from roll_core.config.schema import RunConfig
from roll_core.contracts import Filter, RunInfo, Tracker, requirements_of
from roll_core.credit import Credit, DomainAlgorithm, required_columns
from roll_core.data import keyed_seed
from roll_core.dataflow import Dataflow
from roll_core.engine import Engine, Parts
from roll_core.evaluation import Evaluator
from roll_core.rollout.feed import Feed
from roll_core.rollout.groups import GroupRunner
from roll_core.rollout.modes import make_feed
from roll_core.rooms import SeedOf
from roll_core.scoring import DomainScoring, RewardComponent, Scorer
from roll_core.types import SamplingParams, Ticket
from roll_core.watch import Watch

if TYPE_CHECKING:
    from roll_core.config.load import LoadedConfig
    from roll_core.plugin.host import Host

logger = logging.getLogger(__name__)

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
        self.plan: BatchPlan = check_config(loaded, host)
        """The batch arithmetic."""
        for warning in size_warnings(loaded.config):
            logger.warning("%s", warning)
        self._builder = Builder(host)
        self.policy = Policy(self.config, self._builder)
        self.data = RunData(self.config, self._builder, self.policy)

    @property
    def config(self) -> RunConfig:
        """The run's configuration."""
        return self.loaded.config

    def again(self) -> Assembly:
        """The same run with nothing built yet, for going on after a loss."""
        return Assembly(self.loaded, self.host)

    def close(self) -> None:
        """End what was built, where no engine has done it."""
        if "processes" in self.__dict__:
            self.processes.close()

    def engine(self, watch: Watch, resume: Checkpoint | None = None) -> Engine:
        """Build everything and wire it; with `resume`, go on from that checkpoint.

        Models are loaded last, when nothing else can be wrong any more.
        """
        run = self._run_info(resume)
        filters, trackers = self._filters(), self._trackers()
        draw, scorer, credit, _held_out = self.data.draw, self.scorer, self.credit, self.data.held_out
        self.host.notify("roll_configure", config=run.config)
        processes = self.processes
        parts = Parts(
            config=self.config,
            run=run,
            flow=self.flow,
            draw=draw,
            mixer=self.data.mixer,
            ledger=self.data.ledger,
            feed=self._feed(filters),
            sampling=self.sampling,
            scorer=scorer,
            verifiers=processes.verifiers,
            credit=credit,
            components=self._builder.stateful,
            strategy=processes.strategy,
            backend=processes.backend,
            evaluator=self.evaluator,
            trackers=trackers,
            checkpoints=self.checkpoints,
            observers=self.host,
            manifest=self.host.manifest(),
            watch=watch,
            executor=processes.executor,
            takes_turns=processes.takes_turns,
        )
        return Engine(parts, resume)

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
        stops = self.policy.stop_token_ids
        return {name: resolve_sampling(self.config, name).params(stops) for name in self.config.domains}

    @cached_property
    def checkpoints(self) -> CheckpointStore:
        """The run's checkpoints."""
        return CheckpointStore(self.config.run_folder / "checkpoints", self.config.checkpoint.keep)

    @cached_property
    def processes(self) -> Processes:
        """What trains, generates and verifies."""
        return Processes(self.config, self._builder, self.policy, self.flow, self.plan.total_updates)

    @cached_property
    def scorer(self) -> Scorer:
        """Verdicts and rewards."""
        domains = {}
        for name, domain in self.config.domains.items():
            rewards = [
                RewardComponent(
                    ref.label, self._builder.build("rewards", ref, f"domains.{name}.rewards.{i}"), ref.weight
                )
                for i, ref in enumerate(domain.rewards)
            ]
            domains[name] = DomainScoring(name, rewards)
        return Scorer(domains, self.processes.verifiers, alarm_rate=self.config.scoring.alarm_rate)

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

    @cached_property
    def evaluator(self) -> Evaluator | None:
        """Held-out evaluation; None when no domain has held-out data."""
        if not self.data.held_out:
            return None
        return Evaluator(
            backend=self.processes.backend,
            scoring=self.scorer,
            decode=self.policy.decode,
            prompts=self.data.held_out,
            sampling=self.sampling,
            samples=self.config.eval.samples,
            greedy=self.config.eval.greedy,
            seed_of=self._seed_of("eval"),
        )

    def _filters(self) -> list[Filter]:
        return [self._builder.build("filters", ref, f"filters.{i}") for i, ref in enumerate(self.config.filters)]

    def _trackers(self) -> list[Tracker]:
        return [self._builder.build("trackers", ref, f"trackers.{i}") for i, ref in enumerate(self.config.trackers)]

    def _feed(self, filters: Sequence[Filter]) -> Feed:
        config = self.config
        groups = GroupRunner(
            backend=self.processes.backend,
            scoring=self.scorer,
            books=self.data.ledger,
            decode=self.policy.decode,
            filters=filters,
            sampling=self.sampling,
            group_size=config.batch.group_size,
            seed_of=self._seed_of("rollout"),
            greedy=frozenset(n for n, a in self.algorithms.items() if "greedy_rewards" in requirements_of(a.advantage)),
            early_stop=config.rollout.early_stop,
        )
        return make_feed(config, groups, self.data.draw, max_draws=self.plan.draw_budget)

    def _algorithm(self, domain: str) -> DomainAlgorithm:
        algorithm = resolve_algorithm(self.config, domain)
        place = f"domains.{domain}.algorithm"
        return DomainAlgorithm(
            config=algorithm,
            advantage=self._builder.build("advantages", algorithm.advantage, f"{place}.advantage"),
            loss=self._builder.build("policy_losses", algorithm.loss, f"{place}.loss"),
            weight=self.config.domains[domain].weight,
            max_new_tokens=resolve_sampling(self.config, domain).max_new_tokens,
        )

    def _seed_of(self, purpose: str) -> SeedOf:
        seed = self.config.seed

        def seed_of(ticket: Ticket, index: int, attempt: int) -> int:
            return keyed_seed(seed, purpose, ticket.domain, ticket.id, index, attempt)

        return seed_of

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
