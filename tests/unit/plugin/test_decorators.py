"""Functions as components: decorators, and what a lifted function does."""

from __future__ import annotations

import asyncio
import functools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roll_core import advantage, policy_loss, reward, verifier
from roll_core import filter as group_filter
from roll_core.contracts import requirements_of
from roll_core.errors import PluginError
from roll_core.plugin.decorators import component_name, declared
from roll_core.plugin.lift import FunctionFactory, as_verdict
from roll_core.types import Prompt, Rollout, RolloutGroup, Status, Ticket, Verdict


def group_of(*responses: str, verdicts: tuple[Verdict | None, ...] = ()) -> RolloutGroup:
    ticket, prompt = Ticket(0, "d", "p"), Prompt("p", "d")
    rollouts = [Rollout(ticket, i, prompt, [], text, "stop") for i, text in enumerate(responses)]
    for rollout, verdict in zip(rollouts, verdicts, strict=False):
        rollout.verdict = verdict
    return RolloutGroup(ticket, prompt, rollouts)


@verifier
def near(response: str, reference: str, *, tolerance: float = 0.1) -> bool:
    """Numbers that nearly agree.

    More text.
    """
    return abs(float(response) - float(reference)) <= tolerance


def test_a_decorated_function_stays_a_function() -> None:
    assert near("1.05", "1")
    assert not near("1.05", "1", tolerance=0.01)
    assert pickle.loads(pickle.dumps(near)) is near
    mark = declared(near)
    assert (mark.kind, mark.component.name, mark.component.summary) == (
        "verifiers",
        "near",
        "Numbers that nearly agree.",
    )


def test_arguments_of_the_decorator() -> None:
    @verifier(name="x", summary="s", source="arXiv:1", permissions=["network"])
    def other(response, reference):
        return True

    component = declared(other).component
    assert (component.name, component.summary, component.source) == ("x", "s", "arXiv:1")
    assert component.permissions == {"network"}


def test_options_are_the_keyword_only_parameters() -> None:
    component = declared(near).component
    assert list(component.config_model().model_fields) == ["tolerance"]
    built = component.build({"tolerance": 1})
    assert built.verify("2", "1").status is Status.CORRECT
    assert built.verify("2", "1", tolerance=0.5).status is Status.INCORRECT
    assert pickle.loads(pickle.dumps(built)).verify("2", "1").status is Status.CORRECT


def test_classes_can_be_decorated() -> None:
    @advantage
    class MyBaseline2:
        """Own."""

        def __init__(self, *, eps: float = 0.5) -> None:
            self.eps = eps

    class Child(MyBaseline2):
        pass

    component = declared(MyBaseline2).component
    assert component.name == "my_baseline2"
    assert component.build({"eps": 2}).eps == 2.0
    assert declared(Child) is None


def test_a_wrapper_does_not_carry_the_declaration_on() -> None:
    @functools.wraps(near)
    def wrapper(*args, **kwargs):
        return near(*args, **kwargs)

    assert declared(wrapper) is None


@pytest.mark.parametrize(
    ("decorator", "function", "message"),
    [
        (verifier, lambda response: True, "must take \\(response, reference\\)"),
        (verifier, lambda response, reference, extra: True, "'extra' would never be given"),
        (reward, lambda x: 1.0, "name its first parameter 'rollout'.*or 'group'.*not 'x'"),
        (group_filter, lambda: True, "must take one argument"),
    ],
)
def test_functions_that_do_not_fit_are_refused(decorator, function, message) -> None:
    with pytest.raises(PluginError, match=message):
        decorator(name="f")(function)


def test_decorating_something_else_is_refused() -> None:
    with pytest.raises(PluginError, match=r"name goes in name="):
        verifier("near")


@pytest.mark.parametrize("name", ["Bad", "has space", "_a", "a/b"])
def test_bad_component_names(name: str) -> None:
    with pytest.raises(PluginError, match=r"not lower snake case"):
        verifier(name=name)(lambda response, reference: True)


def test_component_names() -> None:
    class HTTPJudge:
        pass

    assert component_name(HTTPJudge) == "httpjudge"
    assert component_name(lambda: 0) == "lambda"
    assert component_name(functools.partial(near, tolerance=2)) == "near"


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("result", "status", "score"),
    [
        (True, Status.CORRECT, 1.0),
        (False, Status.INCORRECT, 0.0),
        (np.True_, Status.CORRECT, 1.0),
        (1, Status.CORRECT, 1.0),
        (0.25, Status.INCORRECT, 0.25),
        (np.float32(0.5), Status.INCORRECT, 0.5),
        (Verdict.undecided("?"), Status.UNDECIDED, None),
        (math.nan, Status.ERROR, None),
        (math.inf, Status.ERROR, None),
        (1.5, Status.ERROR, None),
        (-0.1, Status.ERROR, None),
        (None, Status.ERROR, None),
        ("yes", Status.ERROR, None),
    ],
)
def test_results_become_verdicts(result, status, score) -> None:
    verdict = as_verdict(result)
    assert (verdict.status, verdict.score) == (status, score)


@given(st.floats())
def test_no_number_is_scored_outside_its_range(value: float) -> None:
    verdict = as_verdict(value)
    assert verdict.score == value if 0 <= value <= 1 else verdict.status is Status.ERROR


def test_prompt_and_rollout_are_passed_where_named() -> None:
    seen = {}

    def judge(response, reference, *, prompt, strict: bool = False, **others):
        seen.update(others, prompt=prompt, strict=strict)
        return True

    factory = FunctionFactory("verifiers", judge)
    assert list(factory.config_model("judge").model_fields) == ["strict"]
    factory(strict=True).verify("a", "b", prompt="P", rollout="R", extra=1)
    assert seen == {"prompt": "P", "rollout": "R", "strict": True, "extra": 1}


def test_async_verifiers() -> None:
    async def judge(response, reference):
        await asyncio.sleep(0)
        return math.nan

    assert asyncio.run(FunctionFactory("verifiers", judge)().verify("a", "b")).status is Status.ERROR


# --- rewards, filters, tensors ----------------------------------------------------------------------------------------


def test_rewards_of_a_rollout_or_a_group() -> None:
    by_name = FunctionFactory("rewards", lambda rollout: float(len(rollout.response)))()
    assert by_name(group_of("a", "bbb")) == [1.0, 3.0]

    def by_annotation(sample: Rollout, *, scale: float) -> float:
        return scale * len(sample.response)

    assert FunctionFactory("rewards", by_annotation)(scale=2.0)(group_of("a", "bbb")) == [2.0, 6.0]
    of_group = FunctionFactory("rewards", lambda group: [float(r.index) for r in group.rollouts])()
    assert of_group(group_of("a", "b")) == [0.0, 1.0]


def test_rollouts_without_a_score_get_no_reward() -> None:
    group = group_of("a", "b", verdicts=(Verdict.correct(), Verdict.error("broken")))
    assert FunctionFactory("rewards", lambda rollout: rollout.score + 1)()(group) == [2.0, None]


@pytest.mark.parametrize(
    ("result", "reason"), [(True, None), (None, None), ("too easy", "too easy"), (False, "judge"), (np.False_, "judge")]
)
def test_filters(result, reason) -> None:
    def judge(group):
        return result

    assert FunctionFactory("filters", judge)().reject(group_of("a")) == reason


def test_a_filter_that_returns_nonsense() -> None:
    with pytest.raises(TypeError, match=r"return True or None to admit"):
        FunctionFactory("filters", lambda group: 3)().reject(group_of("a"))


def test_tensor_functions_are_used_as_they_are() -> None:
    def loss(inputs):
        return inputs

    assert FunctionFactory("policy_losses", loss)() is loss

    @policy_loss(requires=["entropy"])
    def scaled(inputs, *, by: float = 2.0):
        return inputs * by

    built = declared(scaled).component.build({})
    assert built(3) == 6.0
    assert requirements_of(built) == {"entropy"}
    assert declared(scaled).component.scope == "rank"
