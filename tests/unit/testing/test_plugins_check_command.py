import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from roll_core.cli import plugins_check
from roll_core.errors import UnknownNameError
from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl
from roll_core.plugin.host import Host


class Offers:
    """A plugin object that offers the named fakes of one kind."""

    def __init__(self, kind, **components):
        def register():
            return [Component(name, f"roll_kit_faults:{attribute}") for name, attribute in components.items()]

        setattr(self, f"roll_register_{kind}", hookimpl(register, specname=f"roll_register_{kind}"))


@pytest.fixture
def check(monkeypatch):
    def run(*args, plugins):
        host = Host.discover(select="none", enforce=False)
        for name, plugin in plugins.items():
            host.register(plugin, name)
        monkeypatch.setattr(plugins_check, "host_of", lambda context, enforce: host)
        return CliRunner().invoke(plugins_check.check, args, env={"COLUMNS": "200"})

    return run


RIGHT = Offers("rewards", right_one="Reward")
WRONG = Offers("rewards", wrong_one="OneShort")
UNTESTED = Offers("verifiers", untested="Verifier")
FAILED = SimpleNamespace(roll_register_reward=hookimpl(lambda: []))
"""A misspelt hook."""


def test_a_right_component_exits_with_0(check):
    result = check("mine", plugins={"mine": RIGHT})
    assert result.exit_code == 0, result.output
    assert "1 components, 0 failed checks, 0 failed plugins" in result.output


def test_a_wrong_component_exits_with_1_and_says_why(check):
    result = check("mine", "other", plugins={"mine": RIGHT, "other": WRONG})
    assert result.exit_code == 1
    assert "FAILED rewards/wrong_one gives_one_value_per_rollout" in result.output
    assert "return one per rollout" in result.output


def test_a_failed_plugin_exits_with_1(check):
    result = check("broken", plugins={"broken": FAILED})
    assert result.exit_code == 1
    assert "plugin broken failed to load" in result.output


def test_a_failed_plugin_counts_only_when_meant(check):
    assert check("mine", plugins={"mine": RIGHT, "broken": FAILED}).exit_code == 0


def test_strict_minds_missing_cases(check):
    assert check("untested", plugins={"mine": UNTESTED}).exit_code == 0
    assert check("untested", "--strict", plugins={"mine": UNTESTED}).exit_code == 1


def test_json_holds_every_result(check):
    result = check(
        "mine/right_one",
        "mine/wrong_one",
        "--json",
        plugins={"mine": Offers("rewards", right_one="Reward", wrong_one="ByPlace")},
    )
    document = json.loads(result.output)
    assert result.exit_code == 1
    assert [c["component"] for c in document["components"]] == ["right_one", "wrong_one"]
    failed = [r["check"] for c in document["components"] for r in c["results"] if r["outcome"] == "failed"]
    assert failed == ["follows_a_permutation"]


def test_a_kind_narrows_the_choice(check):
    result = check("--kind", "mixers", plugins={"mine": WRONG})
    assert result.exit_code == 0
    assert "0 components" in result.output


def test_an_unknown_name_is_an_error_with_a_near_match(check):
    result = check("right_on", plugins={"mine": RIGHT})
    assert isinstance(result.exception, UnknownNameError)
    assert "did you mean 'right_one'" in str(result.exception)
