"""From scored groups to the objective a train strategy optimises.

`Credit` shapes rewards, turns a batch's columns into advantages, returns and correction weights, and writes the
objective of each optimiser step as a sum of terms, each with its weight per token. Nothing here knows an algorithm by
name: what is computed follows from what the built components require under their config.

The objective of one mini-batch
-------------------------------
Every counted token carries the loss, KL and entropy settings of its domain. Tokens are averaged as `agg` says:

* Domains that aggregate alike (same `agg`, and same constant length for dr_grpo) form one *pool*: one denominator over
  all of them, so with one pool the objective is the plain aggregate over the mini-batch, as if there were one domain.
  A domain may override its loss, clip range, KL or entropy without changing anybody's denominator.
* A pool that aggregates differently has a denominator of its own, and its aggregate counts with its share of the
  mini-batch's rollouts.
* `weight` of a domain multiplies its tokens after the denominators are fixed.

Denominators are counted once per optimiser mini-batch, before any split into micro-batches, from the loss mask:
overlong answers that are masked out leave the denominator; tokens that a trainer/sampler correction rejects stay in it
with weight 0, so rejection never inflates what is left. The correction multiplies policy losses only, not KL, entropy
or value terms. A sequence is a segment.

Policy and KL terms are merged over domains wherever the function is the same, so that the loss runs once. The critic's
term is the token mean over all tokens whose domain uses a critic.

Estimators that use statistics of the whole batch see the rollouts of all domains that share the estimator.
"""

from __future__ import annotations

from roll_core.credit.algorithm import DomainAlgorithm, required_columns
from roll_core.credit.credit import Credit
from roll_core.credit.shaping import greedy_rewards

__all__ = ["Credit", "DomainAlgorithm", "greedy_rewards", "required_columns"]
