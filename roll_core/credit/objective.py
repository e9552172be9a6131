"""The objective of one optimiser mini-batch, as terms with a weight per token. The package docstring has the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from roll_core.config.schema import CriticConfig
from roll_core.contracts import Term, column, requirements_of
from roll_core.credit.algorithm import MODEL_OUTPUTS, DomainAlgorithm, partition
from roll_core.credit.estimate import domain_index, domain_values, known_domains, tokens_of
from roll_core.credit.terms import EntropyTerm, KLTerm, MismatchProbe, PolicyTerm, ValueTerm
from roll_core.numerics import aggregation_weights
from roll_core.types import AnyArray, Batch, BoolArray, FloatArray


@dataclass(frozen=True)
class Objective:
    """Builds the terms of mini-batches out of one batch."""

    batch: Batch
    algorithms: Mapping[str, DomainAlgorithm]
    kl_coefs: Mapping[str, float]
    critic: CriticConfig | None

    @cached_property
    def names(self) -> list[str]:
        """Domains that have rollouts in the batch."""
        return known_domains(self.batch, self.algorithms)

    def terms(self, segments: BoolArray) -> tuple[Term, ...]:
        """The terms of the mini-batch made of the `segments` [S] that are True; none when no token counts."""
        base = self._base(segments)
        if not base.any():
            return ()
        return (
            *self._policy(base),
            *self._kl(base),
            *self._entropy(base),
            *self._value(segments),
            *self._probes(segments),
        )

    def _base(self, segments: BoolArray) -> AnyArray:
        """Share of each token in the objective [N] float64: denominator, pool share and domain weight."""
        batch = self.batch
        base = np.zeros(batch.n_tokens)
        segment_domain = batch.rollout_domain[batch.segment_rollout]
        rollouts = len(np.unique(batch.segment_rollout[segments]))
        for members in partition(self.names, lambda n: (self.algorithms[n].config.agg, self.algorithms[n].agg_length)):
            algorithm = self.algorithms[members[0]]
            chosen = segments & np.isin(segment_domain, domain_index(batch, members))
            share = len(np.unique(batch.segment_rollout[chosen])) / max(rollouts, 1)
            base += share * aggregation_weights(
                algorithm.config.agg, batch.loss_mask, batch.offsets, chosen, algorithm.agg_length
            )
        return base * domain_values(batch, {n: self.algorithms[n].weight for n in self.names})

    def _policy(self, base: AnyArray) -> list[Term]:
        weighted = base * column(self.batch, "correction")
        measure = "old_logprobs" not in self.batch.columns
        terms = []
        for members in partition(self.names, lambda n: self.algorithms[n].config.loss):
            if not (base * tokens_of(self.batch, members)).any():
                continue
            algorithm = self.algorithms[members[0]]
            needs = frozenset({"logprobs"}) | (requirements_of(algorithm.loss) & MODEL_OUTPUTS)
            fn = PolicyTerm(algorithm.loss, algorithm.config.loss.label, measure)
            terms.append(self._term("policy", fn, weighted, members, needs))
        return terms

    def _kl(self, base: AnyArray) -> list[Term]:
        active = [n for n in self.names if self.kl_coefs[n] > 0 and self.algorithms[n].config.kl.where == "loss"]
        weighted = base * domain_values(self.batch, {n: self.kl_coefs[n] for n in active})
        terms = []
        for members in partition(active, self._kl_key):
            if not (base * tokens_of(self.batch, members)).any():
                continue
            config = self.algorithms[members[0]].config.kl
            full = any(n in self.batch.sampling and self.batch.sampling[n].is_truncated for n in members)
            fn = KLTerm(config.estimator, full, members[0] if len(members) == 1 else None)
            needs = frozenset({"full_logprobs" if full else "logprobs"})
            terms.append(self._term("kl", fn, weighted, members, needs))
        return terms

    def _kl_key(self, name: str) -> tuple[str, str | None]:
        """Domains share a KL term unless their own divergence steers their coefficient."""
        config = self.algorithms[name].config.kl
        return config.estimator, name if config.adaptive is not None else None

    def _entropy(self, base: AnyArray) -> list[Term]:
        coefs = {n: self.algorithms[n].config.entropy_coef for n in self.names}
        active = [n for n in self.names if coefs[n] != 0]
        weighted = base * domain_values(self.batch, coefs)
        if not weighted.any():
            return []
        return [self._term("entropy", EntropyTerm(), weighted, active, frozenset({"entropy"}))]

    def _value(self, segments: BoolArray) -> list[Term]:
        members = [n for n in self.names if self.algorithms[n].has_critic]
        if self.critic is None or not members or "returns" not in self.batch.columns:
            return []
        mask = self.batch.loss_mask & tokens_of(self.batch, members)
        weights = aggregation_weights("token-mean", mask, self.batch.offsets, segments)
        if not weights.any():
            return []
        return [self._term("value", ValueTerm(self.critic.value_clip), weights, members, frozenset({"values"}))]

    def _probes(self, segments: BoolArray) -> list[Term]:
        """Terms of weight 0 that report each domain's mismatch where no column allowed to measure it before."""
        if len(self.names) < 2 or "old_logprobs" in self.batch.columns:
            return []
        here = segments[self.batch.token_segment] & self.batch.loss_mask
        zeros = np.zeros(self.batch.n_tokens)
        present = [n for n in self.names if (here & tokens_of(self.batch, [n])).any()]
        needs = frozenset({"logprobs"})
        return [self._term("mismatch", MismatchProbe(n), zeros, [n], needs) for n in present]

    def _term(
        self,
        kind: str,
        fn: PolicyTerm | KLTerm | EntropyTerm | ValueTerm | MismatchProbe,
        weights: AnyArray,
        members: Sequence[str],
        needs: frozenset[str],
    ) -> Term:
        """A term of the domains `members`; only where these are not all it has a name and a mask of its own."""
        if len(members) == len(self.names):
            return Term(kind, fn, weights.astype(np.float32), needs)
        here = tokens_of(self.batch, members)
        masked: FloatArray = np.where(here, weights, 0.0).astype(np.float32)
        return Term(f"{kind}/{'+'.join(members)}", fn, masked, needs, mask=here & self.batch.loss_mask)
