"""`Host.build`: names, objects and functions, and errors that say what to write."""

from __future__ import annotations

import functools

import pytest

from roll_core.errors import ComponentError, ConfigError, DataError, PluginError
from roll_core.plugin.component import Component
from roll_core.plugin.decorators import reward, verifier
from roll_core.plugin.host import Host
from roll_core.types import Status


@pytest.fixture(scope="module")
def host() -> Host:
    return Host.discover(select="none")


class Judge:
    def __init__(self, *, tolerance: float = 0.5, mode: str = "x") -> None:
        if mode == "raise":
            raise OSError("no network")
        if mode == "config":
            raise DataError("bad file")
        self.tolerance = tolerance

    def verify(self, response, reference, *, prompt=None, rollout=None, **options):
        return response == reference


class NoJudge:
    pass


def test_a_class_is_built_with_its_options(host: Host) -> None:
    assert host.build("verifiers", Judge, {"tolerance": 2}, place="").tolerance == 2.0


def test_a_component_object_and_a_decorated_function(host: Host) -> None:
    assert host.build("verifiers", Component("j", Judge), {}, place="").tolerance == 0.5

    @verifier
    def same(response, reference, *, upper: bool = False):
        return (response.upper() if upper else response) == reference

    assert host.build("verifiers", same, {"upper": True}, place="").verify("a", "A").status is Status.CORRECT
    with pytest.raises(ConfigError, match=r"'same' is decorated as verifier, not as reward"):
        host.build("rewards", same, {}, place="")


def test_plain_functions_are_lifted(host: Host) -> None:
    def near(response, reference, *, tolerance: float = 0.0):
        return abs(float(response) - reference) <= tolerance

    assert host.build("verifiers", near, {"tolerance": 1}, place="").verify("2", 1).status is Status.CORRECT
    part = functools.partial(near, tolerance=3)
    assert host.build("verifiers", part, {}, place="").verify("2", 5).status is Status.CORRECT
    assert host.build("rewards", lambda group: [0.0], {}, place="")(None) == [0.0]
    assert host.build("filters", lambda group: "no", {}, place="").reject(None) == "no"
    loss = lambda inputs: inputs  # noqa: E731
    assert host.build("policy_losses", loss, {}, place="") is loss
    assert host.build("advantages", loss, {}, place="") is loss
    with pytest.raises(PluginError, match=r"name its first parameter"):
        host.build("rewards", lambda x: 0.0, {}, place="")


def test_a_function_of_another_kind_is_a_factory(host: Host) -> None:
    class Rows:
        def __init__(self, rows: list[int]) -> None:
            self.rows = rows

        def __len__(self) -> int:
            return len(self.rows)

        def __getitem__(self, index: int) -> dict[str, int]:
            return {"n": self.rows[index]}

    def make(*, count: int) -> Rows:
        return Rows(list(range(count)))

    assert len(host.build("sources", make, {"count": 3}, place="")) == 3


def test_ready_objects_are_taken_as_they_are(host: Host) -> None:
    judge = Judge()
    assert host.build("verifiers", judge, {}, place="") is judge
    with pytest.raises(ConfigError, match=r"verifier given as Judge \(d.v\) is an object already.*tolerance"):
        host.build("verifiers", judge, {"tolerance": 1}, place="d.v")
    with pytest.raises(ConfigError, match=r"verifier given as NoJudge lacks verify"):
        host.build("verifiers", NoJudge(), {}, place="")
    with pytest.raises(ConfigError, match=r"tracker given as int lacks start, log, log_rollouts, finish"):
        host.build("trackers", 3, {}, place="")


def test_a_callable_object_may_be_a_verifier(host: Host) -> None:
    class Callable:
        def __call__(self, response, reference):
            return 0.5

    assert host.build("verifiers", Callable(), {}, place="").verify("a", "b").score == 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"tolerence": 1},
            r"verifier 'judge' \(d.v\): unknown option 'tolerence'; did you mean 'tolerance'\?; "
            r"known options: tolerance \(float = 0.5\), mode \(str = 'x'\)",
        ),
        ({"tolerance": "much"}, r"option 'tolerance': input should be a valid number.*, got 'much'"),
        ({"zzz": 1, "mode": 3}, r"option 'mode': input should be a valid string, got 3; unknown option 'zzz'; known"),
    ],
)
def test_wrong_options(host: Host, options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        host.build("verifiers", Judge, options, place="d.v")


def test_missing_options_and_none_to_give(host: Host) -> None:
    def needs(response, reference, *, size: int):
        return True

    with pytest.raises(ConfigError, match=r"option 'size' is missing; known options: size .int."):
        host.build("verifiers", needs, {}, place="")
    with pytest.raises(ConfigError, match=r"unknown option 'a'; it takes no options"):
        host.build("verifiers", lambda response, reference: True, {"a": 1}, place="")


def test_a_factory_that_raises_is_named(host: Host) -> None:
    with pytest.raises(
        ComponentError, match=r"verifier 'judge' \(d.v\) could not be built: OSError: no network"
    ) as caught:
        host.build("verifiers", Judge, {"mode": "raise"}, place="d.v")
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(DataError, match=r"bad file") as own:
        host.build("verifiers", Judge, {"mode": "config"}, place="d.v")
    assert own.value.__notes__ == ["in verifier 'judge' (d.v)"]
    with pytest.raises(ComponentError, match=r"could not be built: ModuleNotFoundError: No module named 'not_there'"):
        host.build("verifiers", Component("gone", "not_there:Judge"), {}, place="")
    with pytest.raises(ComponentError, match=r"verifier 'no' lacks verify"):
        host.build("verifiers", Component("no", NoJudge), {}, place="")


def test_only_asked_for_context_is_passed(host: Host) -> None:
    class Mixer:
        def __init__(self, *, domains: list[str], seed: int = 0, power: float = 1.0) -> None:
            self.domains, self.power = domains, power

        weights = draw = observe = state_dict = load_state_dict = None

    context = {"domains": ["a"], "sizes": {"a": 1}, "seed": 1, "total_steps": 2}
    built = host.build("mixers", Mixer, {"power": 2}, place="mixer", **context)
    assert (built.domains, built.power) == (["a"], 2.0)
    with pytest.raises(ConfigError, match=r"unknown option 'seed'"):
        host.build("mixers", Mixer, {"seed": 1}, place="mixer", **context)


def test_config_models_by_name(host: Host) -> None:
    assert "pattern" in str(host.config_model("rewards", "format_regex").model_fields)


def test_reward_decorator_through_the_host(host: Host) -> None:
    @reward
    def constant(rollout, *, value: float = 1.0):
        return value

    assert host.build("rewards", constant, {"value": 3}, place="").options == {"value": 3.0}
