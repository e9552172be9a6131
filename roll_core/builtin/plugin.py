"""Declares the built-in components. Imports nothing heavy."""

from __future__ import annotations

from roll_core.plugin.component import Component, Permission
from roll_core.plugin.hookspecs import hookimpl

_ADVANTAGES = "roll_core.builtin.advantages"
_LOSSES = "roll_core.builtin.policy_losses"


def _advantage(name: str, attribute: str, summary: str, source: str) -> Component:
    return Component(name, f"{_ADVANTAGES}.{name}:{attribute}", summary=summary, source=source)


def _loss(name: str, attribute: str, summary: str, source: str) -> Component:
    return Component(name, f"{_LOSSES}.{name}:{attribute}", summary=summary, source=source, scope="rank")


@hookimpl
def roll_register_advantages() -> list[Component]:
    """Advantage estimators, one file each."""
    return [
        _advantage("grpo", "Grpo", "reward centred and scaled within its group", "arXiv:2402.03300"),
        _advantage("dr_grpo", "DrGrpo", "reward centred within its group", "arXiv:2503.20783"),
        _advantage("rloo", "Rloo", "reward against the mean of the other samples", "arXiv:2402.14740"),
        _advantage("reinforce", "Reinforce", "discounted return, optionally against the batch mean", "Williams 1992"),
        _advantage("reinforce_pp", "ReinforcePP", "discounted return whitened over the batch", "arXiv:2501.03262"),
        _advantage("reinforce_pp_baseline", "ReinforcePPBaseline", "group-centred, batch-whitened", "arXiv:2501.03262"),
        _advantage("opo", "Opo", "length-weighted optimal baseline", "arXiv:2505.23585"),
        _advantage("max_rl", "MaxRl", "reward centred and divided by the group mean", "arXiv:2602.02710"),
        _advantage("remax", "Remax", "reward against the greedy answer's", "arXiv:2310.10505"),
        _advantage("gae", "Gae", "generalised advantage estimation with a critic", "arXiv:1506.02438"),
    ]


@hookimpl
def roll_register_policy_losses() -> list[Component]:
    """Policy losses, one file each."""
    return [
        _loss("reinforce", "ReinforceLoss", "-A log pi", "Williams 1992"),
        _loss("ppo_clip", "PpoClip", "clipped ratio; asymmetric, dual and two-sided clips", "arXiv:1707.06347"),
        _loss("gspo", "Gspo", "clipped sequence-level ratio", "arXiv:2507.18071"),
        _loss("cispo", "Cispo", "clipped, detached importance weight on log pi", "arXiv:2506.13585"),
        _loss("topr", "Topr", "tapered off-policy REINFORCE", "arXiv:2503.14286"),
        _loss("gmpo", "Gmpo", "geometric mean of clipped ratios", "arXiv:2507.20673"),
        _loss("sapo", "Sapo", "soft sigmoid gate in place of the clip", "arXiv:2511.20347"),
        _loss("dppo", "Dppo", "divergence-based trust region mask", "arXiv:2602.04879"),
        _loss("decoupled_ppo", "DecoupledPpo", "proximal policy apart from the behaviour policy", "arXiv:2110.00641"),
    ]


@hookimpl
def roll_register_rewards() -> list[Component]:
    """Reward components."""
    module = "roll_core.builtin.rewards"
    return [
        Component("verdict", f"{module}.verdict:VerdictReward", summary="the verifier's score"),
        Component("format_boxed", f"{module}.format_boxed:FormatBoxed", summary="1 when the answer is in \\boxed{}"),
        Component("format_regex", f"{module}.format_regex:FormatRegex", summary="1 when the response matches a regex"),
        Component("length", f"{module}.length:LengthPenalty", summary="minus the share of the length budget used"),
    ]


@hookimpl
def roll_register_filters() -> list[Component]:
    """Dynamic sampling."""
    module = "roll_core.builtin.filters"
    return [
        Component(
            "informative_groups",
            f"{module}.informative_groups:InformativeGroups",
            summary="drop groups whose raw scores are all equal",
            source="arXiv:2503.14476",
        ),
        Component("pass_rate", f"{module}.pass_rate:PassRate", summary="keep groups with a pass rate in a band"),
    ]


@hookimpl
def roll_register_sources() -> list[Component]:
    """Rows of data."""
    module = "roll_core.builtin.sources"
    return [
        Component("dataset", f"{module}.dataset:DatasetSource", summary="jsonl, parquet, arrow, csv or a hub name"),
        Component("rows", f"{module}.rows:RowsSource", summary="rows given in the config or from Python"),
    ]


@hookimpl
def roll_register_rollout_backends() -> list[Component]:
    """Generation."""
    return [
        Component(
            "local",
            "roll_core.builtin.local_rollout.choice:make_backend",
            summary="continuous batching on transformers, in the driver or in replicas of its own, CPU or GPU",
        )
    ]


@hookimpl
def roll_register_train_strategies() -> list[Component]:
    """Training."""
    return [
        Component(
            "local",
            "roll_core.builtin.local_train.strategy:LocalTrainStrategy",
            summary="one process, CPU or one GPU; full or LoRA, shared prompts, chunked log-probs",
            scope="rank",
        )
    ]


@hookimpl
def roll_register_trackers() -> list[Component]:
    """Trackers that need nothing installed."""
    module = "roll_core.builtin.trackers"
    files: frozenset[Permission] = frozenset({"files"})
    return [
        Component("console", f"{module}.console:ConsoleTracker", summary="live progress in the terminal"),
        Component(
            "jsonl", f"{module}.jsonl:JsonlTracker", summary="one JSON object a step", permissions=frozenset({"files"})
        ),
        Component("parquet", f"{module}.parquet:ParquetTracker", summary="every rollout", permissions=files),
    ]
