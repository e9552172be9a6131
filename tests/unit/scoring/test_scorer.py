from __future__ import annotations

import asyncio

import pytest
from fake_verifiers import Spec

from roll_core.errors import ConfigError, UnknownNameError
from roll_core.scoring import DomainScoring, RewardComponent, Scorer, VerifierPool
from roll_core.scoring.compose import compose_group, numbered
from roll_core.scoring.statistics import reward_statistics, unscored_alarms
from roll_core.types import Prompt, Rollout, RolloutGroup, Status, Ticket, Verdict


def rollout(verdict: Verdict | None, index: int = 0, domain: str = "d", response: str = "") -> Rollout:
    return Rollout(Ticket(0, domain, "p"), index, Prompt("p", domain), [], response, "stop", verdict=verdict)


def group(*verdicts: Verdict | None, domain: str = "d", greedy: Verdict | None = None) -> RolloutGroup:
    rollouts = [rollout(verdict, i, domain) for i, verdict in enumerate(verdicts)]
    baseline = rollout(greedy, -1, domain) if greedy is not None else None
    return RolloutGroup(rollouts[0].ticket, rollouts[0].prompt, rollouts, baseline)


RIGHT, WRONG, DOWN = Verdict.correct(), Verdict.incorrect(score=0.25), Verdict.error("judge is down", detail="raised")


def score(g: RolloutGroup) -> list[float | None]:
    return [r.score for r in g.rollouts]


def rank(g: RolloutGroup) -> list[float | None]:
    """Depends on the whole group; has nothing to say about its first rollout."""
    return [None if i == 0 else float(i) / len(g.rollouts) for i in range(len(g.rollouts))]


def components(*fns, weights=None) -> list[RewardComponent]:
    return [RewardComponent(fn.__name__, fn, (weights or [1.0] * 9)[i]) for i, fn in enumerate(fns)]


def test_rewards_are_records_over_the_scored_rollouts():
    g = group(RIGHT, DOWN, WRONG)
    compose_group(g, components(score, rank, weights=[1.0, 0.1]))
    assert [[(r.component, r.value, r.weight) for r in x.rewards] for x in g.rollouts] == [
        [("score", 1.0, 1.0)],
        [],
        [("score", 0.25, 1.0), ("rank", 0.5, 0.1)],
    ]
    assert g.rollouts[2].reward == pytest.approx(0.3)


def test_composing_twice_changes_nothing_and_the_greedy_baseline_is_rewarded_alone():
    g = group(WRONG, WRONG, greedy=RIGHT)
    for _ in range(2):
        compose_group(g, components(score, rank))
    assert [r.reward for r in g.rollouts] == [0.25, 0.75]
    assert (g.greedy.reward, len(g.rollouts)) == (1.0, 2)


def raises(g: RolloutGroup) -> list[float | None]:
    raise KeyError("length")


def nan(g: RolloutGroup) -> list[float | None]:
    return [float("nan")] * len(g.rollouts)


def short(g: RolloutGroup) -> list[float | None]:
    return [1.0]


def text(g: RolloutGroup) -> list:
    return ["good"] * len(g.rollouts)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (raises, "'raises' raised KeyError: 'length'"),
        (nan, "'nan' gave nan"),
        (short, "'short' gave 1 values for 2"),
        (text, "'text' raised ValueError"),
    ],
)
def test_a_reward_that_fails_takes_the_group_out_and_punishes_nobody(bad, reason, caplog):
    stamped = RIGHT.stamped(verifier="math", version="1", seconds=0.5)
    g = group(stamped, WRONG, DOWN, greedy=RIGHT)
    compose_group(g, components(score, bad))
    assert [r.verdict.status for r in g.rollouts] == [Status.ERROR] * 3
    assert [r.verdict.detail for r in g.rollouts] == ["reward_failed", "reward_failed", "raised"]
    assert reason in g.rollouts[0].verdict.reason
    assert (g.rollouts[0].verdict.verifier, g.rollouts[0].verdict.seconds) == ("math", 0.5)
    assert g.scored == []
    assert [r.rewards for r in (*g.rollouts, g.greedy)] == [[]] * 4
    assert not g.greedy.is_scored
    assert reason in caplog.text


def test_a_group_without_scores_is_left_alone():
    g = group(DOWN, None)
    compose_group(g, components(raises))
    assert [r.verdict for r in g.rollouts] == [DOWN, None]


def test_component_names_are_made_unique():
    names = [c.name for c in numbered(components(score, rank, score, score))]
    assert names == ["score", "rank", "score_2", "score_3"]


def test_statistics():
    fast, slow = (
        RIGHT.stamped(verifier="v", version="1", seconds=1),
        WRONG.stamped(verifier="v", version="1", seconds=3),
    )
    groups = [group(fast, slow, domain="a"), group(RIGHT, DOWN, None, Verdict.invalid(), domain="b")]
    for g in groups:
        compose_group(g, [RewardComponent("verdict", score), RewardComponent("rank", rank, 2.0)])
    found = reward_statistics(groups)
    assert found["reward/score/a"] == pytest.approx(0.625)
    assert found["reward/score/b"] == pytest.approx(0.5)
    assert found["reward/score"] == pytest.approx(2.25 / 4)
    assert found["reward/total/a"] == pytest.approx((1 + 0.25 + 2 * 0.5) / 2)
    assert found["reward/verdict/a"] == pytest.approx(0.625)
    assert found["reward/rank/a"] == pytest.approx(0.5)
    assert found["scoring/unscored_rate/b"] == 0.5
    assert found["scoring/unscored_rate"] == pytest.approx(2 / 6)
    assert [found[f"scoring/status/{s}/b"] for s in ("correct", "invalid", "error", "abstain")] == [1, 1, 1, 0]
    assert found["time/verdict_s/a"] == 2.0
    assert reward_statistics([]) == {}
    assert "reward/score/d" not in reward_statistics([group(DOWN)])


def test_the_alarm_names_domain_share_and_causes():
    groups = [
        group(*[RIGHT] * 17, DOWN, DOWN, Verdict.undecided("odd reference"), domain="a"),
        group(RIGHT, domain="b"),
    ]
    (alarm,) = unscored_alarms(groups, 0.1)
    for part in ("domain 'a'", "3 of 20", "15.0%", "10.0%", "error/raised 2", "undecided 1", "judge is down"):
        assert part in alarm
    assert unscored_alarms(groups, 0.15) == []


def test_scorer_routes_by_domain():
    domains = {
        "a": DomainScoring("k", [RewardComponent("verdict", score)]),
        "b": DomainScoring("j", [RewardComponent("verdict", score, 2.0)], {"mode": "x"}),
    }

    async def body() -> tuple[RolloutGroup, RolloutGroup, Scorer]:
        async with VerifierPool({"k": Spec(), "j": Spec("Slow", "judge")}, workers=1, timeout_s=5) as pool:
            scorer = Scorer(domains, pool, alarm_rate=0.0)
            groups = group(None, None, domain="a"), group(None, domain="b")
            groups[0].rollouts[0].response = "right"
            groups[0].rollouts[1].response = "raise"
            await asyncio.gather(*(scorer.score(r) for g in groups for r in g.rollouts))
            for g in groups:
                scorer.compose(g)
            with pytest.raises(UnknownNameError, match="no domain named 'd'"):
                await scorer.score(rollout(None))
            return *groups, scorer

    a, b, scorer = asyncio.run(body())
    assert [r.verdict.status for r in a.rollouts] == [Status.CORRECT, Status.ERROR]
    assert (a.rollouts[0].verdict.verifier, b.rollouts[0].verdict.verifier) == ("faulty", "judge")
    assert (a.rollouts[0].reward, a.rollouts[1].reward, b.rollouts[0].reward) == (1.0, 0.0, 2.0)
    assert a.rollouts[0].timing["score_s"] > 0
    assert scorer.statistics([a, b])["scoring/workers_replaced"] == 0
    assert len(scorer.alarms([a, b])) == 1


def test_reserved_component_names_are_refused():
    with pytest.raises(ConfigError, match=r"domains\.d\.rewards.*'total'"):
        Scorer({"d": DomainScoring("k", [RewardComponent("total", score)])}, VerifierPool({}, workers=0, timeout_s=1))
