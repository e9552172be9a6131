"""Rules of the host: isolation, blocking, names, required plugins, hooks, manifests."""

from __future__ import annotations

import json
import logging
import re
from types import SimpleNamespace

import pytest

from roll_core import contracts
from roll_core.errors import ComponentError, ConfigError, PluginError, UnknownNameError
from roll_core.plugin.component import Component
from roll_core.plugin.discovery import Candidate, entry_point_candidates
from roll_core.plugin.hookspecs import DECLARING, OBSERVING, SINGULAR, hookimpl
from roll_core.plugin.host import Host


def test_every_kind_has_its_hook() -> None:
    assert tuple(DECLARING) == contracts.KINDS
    assert set(SINGULAR) == set(contracts.KINDS)
    assert OBSERVING[0] == "roll_configure"


def test_builtins_are_one_plugin_among_others(install) -> None:
    host = Host.discover(select="none")
    record = host.records["builtin"]
    assert (record.state, record.distribution, record.essential) == ("loaded", "roll-core", True)
    assert record.origin.endswith("roll_core/builtin/plugin.py")
    assert ("advantages", "grpo") in record.components
    assert record.seconds > 0


def test_entry_points_load_in_the_order_of_their_names(install, offers) -> None:
    install("zeta", offers("z"))
    install("alpha", offers("a"), version="2.5")
    host = Host.discover()
    assert list(host.records) == ["builtin", "alpha", "zeta"]
    assert host.records["alpha"].version == "2.5"
    assert host.records["alpha"].distribution == "roll-alpha"
    assert [(kind, owner, c.name) for kind, owner, c in host.components("verifiers")] == [
        ("verifiers", "alpha", "a"),
        ("verifiers", "zeta", "z"),
    ]


def test_a_failed_import_hides_nothing_and_is_quoted_on_use(install, offers) -> None:
    module = install("verifier_broken", "\nimport a_module_that_is_not_there\n")
    install("verifier_good", offers("good"))
    host = Host.discover()
    record = host.records["verifier_broken"]
    assert record.state == "failed"
    assert "ModuleNotFoundError: No module named 'a_module_that_is_not_there'" in record.error
    assert f"{module}.py:6" in record.error
    assert host.component("verifiers", "good").name == "good"
    with pytest.raises(PluginError, match=r"verifier 'broken'.*'verifier_broken' failed to load.*not_there") as caught:
        host.component("verifiers", "broken", "domains.x.verifier")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)
    with pytest.raises(UnknownNameError, match=r"no verifier named 'other'.*'verifier_broken' failed.*not_there"):
        host.component("verifiers", "other")


def test_a_failing_hook_fails_the_plugin_whole_and_remembers_what_it_offered(install, offers) -> None:
    code = offers("fine") + "\n@hookimpl\ndef roll_register_rewards():\n    raise RuntimeError('no licence')\n"
    install("half", code)
    install("other", offers("kept"))
    host = Host.discover()
    record = host.records["half"]
    assert record.state == "failed"
    assert "RuntimeError: no licence" in record.error
    assert record.components == (("verifiers", "fine"),)
    assert {c.name for _, _, c in host.components("verifiers")} == {"kept"}
    with pytest.raises(PluginError, match=r"'half' failed to load: RuntimeError: no licence"):
        host.component("verifiers", "fine")


def test_a_failed_plugin_observes_nothing(install) -> None:
    install(
        "bad",
        """
        seen = []

        @hookimpl
        def roll_on_run_end(status):
            raise AssertionError("must not be called")

        @hookimpl
        def roll_register_rewards():
            return 7
        """,
    )
    host = Host.discover(strict=True)
    assert host.records["bad"].error.startswith("roll_register_rewards returned int, not a list of Component")
    host.notify("roll_on_run_end", status="finished")
    assert host.observer_errors == {}


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("@hookimpl\ndef roll_register_verifier(): return []", "unknown hook.*did you mean 'roll_register_verifiers'"),
        ("@hookimpl\ndef roll_on_stepend(step, metrics): ...", "unknown hook.*did you mean 'roll_on_step_end'"),
        ("@hookimpl\ndef register(): return []", "unknown hook 'register'"),
        ("def roll_register_rewards(): return []", "not marked with @hookimpl"),
        ("def roll_on_end(): ...", "not marked with @hookimpl"),
        ("@hookimpl\ndef roll_on_step_end(step, metrics, loss): ...", "roll_on_step_end"),
        ("@hookimpl\nasync def roll_on_run_end(status): ...", "is async"),
        ("@hookimpl(wrapper=True)\ndef roll_on_run_end(status): yield", "wrapper"),
        ("@hookimpl\ndef roll_register_rewards(): ...", "returned NoneType, not a list"),
        ("@hookimpl\ndef roll_register_rewards(): return [len]", "is no Component"),
        (
            "@hookimpl\ndef roll_register_rewards(): return [Component('a', 'm:a'), Component('a', 'm:b')]",
            "two rewards are called 'a'",
        ),
        ("@hookimpl\ndef roll_register_rewards(): return [Component('A', 'm:a')]", "'A' is not lower snake case"),
        ("@hookimpl\ndef roll_register_rewards(): return [Component('a-b', 'm:a')]", "'a-b' is not lower snake case"),
        ("@hookimpl\ndef roll_register_rewards(): return [Component('a', 'm:a', api=99)]", "written for api 99"),
        ("import sys\nsys.exit(3)", "SystemExit: 3"),
        ("def broken(:\n", "SyntaxError"),
    ],
)
def test_what_breaks_a_rule_fails_its_plugin(install, offers, code: str, message: str) -> None:
    install("bad", "\n" + code + "\n")
    install("good", offers("good"))
    host = Host.discover()
    assert host.records["bad"].state == "failed"
    assert re.search(message, host.records["bad"].error), host.records["bad"].error
    assert host.records["good"].state == "loaded"


def test_a_hook_of_another_host_may_be_optional(install) -> None:
    install("guest", "\n@hookimpl(optionalhook=True)\ndef elsewhere_hook(): ...\n")
    assert Host.discover().records["guest"].state == "loaded"


def test_model_names_may_hold_dashes_and_dots(install) -> None:
    install("m", "\n@hookimpl\ndef roll_register_models(): return [Component('smollm2-135m.v1', 'm:a')]\n")
    assert Host.discover().component("models", "smollm2-135m.v1").name == "smollm2-135m.v1"


def test_one_name_by_two_plugins_needs_an_owner(install, offers) -> None:
    install("first", offers("same"))
    install("second", offers("same"), distribution="roll-verifier-second")
    host = Host.discover()
    with pytest.raises(ConfigError, match=r"'same' \(domains.x\) is offered by 2 plugins: first/same, second/same"):
        host.component("verifiers", "same", "domains.x")
    one = host.component("verifiers", "first/same")
    by_distribution = host.component("verifiers", "roll_verifier.second/same")
    assert one is not by_distribution
    assert by_distribution is host.component("verifiers", "second/same")
    with pytest.raises(UnknownNameError, match=r"no plugin named 'frist'.*did you mean 'first'"):
        host.component("verifiers", "frist/same")
    with pytest.raises(UnknownNameError, match=r"no verifier named 'first/sane'.*did you mean 'first/same'"):
        host.component("verifiers", "first/sane")


def test_unknown_names_get_near_matches_and_other_kinds(install, offers) -> None:
    install("v", offers("math"))
    host = Host.discover()
    with pytest.raises(UnknownNameError, match=r"'mth' \(domains.a.verifier\); did you mean 'math'\? known: math"):
        host.component("verifiers", "mth", "domains.a.verifier")
    with pytest.raises(UnknownNameError, match=r"'grpo' is an advantage"):
        host.component("verifiers", "grpo")
    with pytest.raises(UnknownNameError, match=r"no kind of component named 'verifer'; did you mean 'verifiers'"):
        host.components("verifer")


# --- selection --------------------------------------------------------------------------------------------------------


def test_roll_plugins_selects(install, offers, monkeypatch) -> None:
    install("a", offers("one"))
    install("b", offers("two"))
    states = {name: r.state for name, r in Host.discover(select="a").records.items()}
    assert states == {"builtin": "loaded", "a": "loaded", "b": "blocked"}
    monkeypatch.setenv("ROLL_PLUGINS", "roll-b")
    states = {name: r.state for name, r in Host.discover().records.items()}
    assert states == {"builtin": "loaded", "a": "blocked", "b": "loaded"}
    monkeypatch.setenv("ROLL_PLUGINS", "none")
    assert Host.discover().records["b"].state == "blocked"
    assert Host.discover(select="auto").records["b"].state == "loaded"
    with pytest.raises(PluginError, match=r"is blocked"):
        Host.discover(select="b").component("verifiers", "a", "x")
    with pytest.raises(PluginError, match=r"lists plugin 'aa', which is not installed"):
        Host.discover(select="aa")
    with pytest.raises(PluginError, match=r"not a mixture"):
        Host.discover(select="auto,a")


def test_blocked_plugins_are_not_even_imported(install) -> None:
    install("loud", "\nraise RuntimeError('imported')\n")
    record = Host.discover(blocked=["loud"]).records["loud"]
    assert (record.state, record.error) == ("blocked", "")


def test_essential_plugins_cannot_be_blocked(install) -> None:
    with pytest.raises(PluginError, match=r"'builtin' is essential"):
        Host.discover(blocked=["builtin"])
    with pytest.raises(PluginError, match=r"'builtin' is essential"):
        Host.discover(blocked=["roll-core"])


def test_a_slip_in_blocked_is_reported(install, offers, caplog) -> None:
    install("verifier_math", offers("math"))
    with caplog.at_level(logging.WARNING, "roll_core"):
        Host.discover(blocked=["verifier_mth"])
    assert "'verifier_mth' is not installed; did you mean 'verifier_math'?" in caplog.text


def test_required_plugins(install, offers) -> None:
    install("here", offers("x"))
    install("broken", "\n1 / 0\n")
    assert Host.discover(required=["here", "roll-here"]).records["here"].state == "loaded"
    with pytest.raises(PluginError, match=r"required plugin 'hre' is not installed; did you mean 'here'"):
        Host.discover(required=["hre"])
    with pytest.raises(PluginError, match=r"'broken' failed to load: ZeroDivisionError") as caught:
        Host.discover(required=["broken"])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(PluginError, match=r"required plugin 'here' is blocked"):
        Host.discover(required=["here"], blocked=["here"])
    assert Host.discover(required=["broken"], enforce=False).records["broken"].state == "failed"


def test_two_distributions_with_one_plugin_name(install, offers) -> None:
    install("twin", offers("left"), distribution="a-dist")
    install("twin", offers("right"), distribution="b-dist")
    host = Host.discover()
    assert host.records["twin"].distribution == "a-dist"
    assert "the name 'twin' is taken by a-dist" in host.records["twin@b-dist"].error
    only = Host.discover(blocked=["a-dist"])
    assert only.records["twin"].distribution == "b-dist"
    assert only.records["twin@a-dist"].state == "blocked"


def test_damaged_metadata_does_not_stop_discovery(install, offers, monkeypatch) -> None:
    install("bare", offers("bare"), distribution="bare-dist", version=None)
    record = Host.discover().records["bare"]
    assert (record.state, record.distribution, record.version) == ("loaded", "", "unknown")

    point = SimpleNamespace(name="lost", value="json", dist=None, load=lambda: json)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    assert entry_point_candidates() == [Candidate("lost", "", "unknown", "json", point.load, installed=True)]


# --- objects, observing hooks -----------------------------------------------------------------------------------------


class Recorder:
    roll_plugin_name = "recorder"

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[object] = []
        self.error = error

    @hookimpl
    def roll_configure(self, config) -> None:
        self.calls.append(config)
        if self.error is not None:
            raise self.error

    @hookimpl
    def roll_on_step_end(self, metrics) -> None:
        self.calls.append(metrics)
        if self.error is not None:
            raise self.error

    @hookimpl
    def roll_register_rewards(self) -> list[Component]:
        return [Component("given", dict)]


def test_objects_are_plugins_too(install) -> None:
    host = Host.discover(select="none", extra=[Recorder()])
    assert host.records["recorder"].observes == ("roll_configure", "roll_on_step_end")
    assert host.component("rewards", "recorder/given").name == "given"


def test_an_observer_that_raises_is_counted_and_hides_no_other(install, caplog) -> None:
    good, bad = Recorder(), Recorder(ValueError("boom"))
    host = Host.discover(select="none")
    host.register(good, "good")
    host.register(bad, "bad")
    host.notify("roll_on_step_end", step=1, metrics={"a": 1.0})
    host.notify("roll_on_step_end", step=2, metrics={"a": 2.0})
    assert good.calls == [{"a": 1.0}, {"a": 2.0}]
    assert host.observer_errors == {"bad": 2}
    assert "hook roll_on_step_end of plugin 'bad' failed" in caplog.text
    host.strict = True
    with pytest.raises(ComponentError, match=r"hook 'roll_on_step_end' of plugin 'bad' failed: ValueError: boom"):
        host.notify("roll_on_step_end", step=3, metrics={})
    assert len(good.calls) == 3


def test_configure_is_historic(install) -> None:
    host = Host.discover(select="none")
    host.notify("roll_configure", config={"seed": 1})
    late = Recorder()
    host.register(late, "late")
    assert late.calls == [{"seed": 1}]
    host.notify("roll_configure", config={"seed": 2})
    assert late.calls == [{"seed": 1}, {"seed": 2}]
    broken = Recorder(ValueError("late"))
    assert host.register(broken, "broken").state == "loaded"
    assert host.observer_errors == {"broken": 2}


def test_notify_refuses_what_is_no_hook(install) -> None:
    host = Host.discover(select="none")
    with pytest.raises(PluginError, match=r"no observing hook named 'roll_on_stepend'; did you mean"):
        host.notify("roll_on_stepend", step=1)
    with pytest.raises(PluginError, match=r"takes .*'metrics', 'step'"):
        host.notify("roll_on_step_end", step=1)


def test_the_same_module_twice_is_refused_once(install, offers) -> None:
    host = Host.discover(select="none")
    plugin = Recorder()
    assert host.register(plugin, "one").state == "loaded"
    assert host.register(plugin, "two").state == "failed"
    assert host.component("rewards", "given").name == "given"


# --- proof ------------------------------------------------------------------------------------------------------------


def test_manifests_name_what_is_loaded_and_differences(install, offers) -> None:
    install("a", offers("one"), version="1.2")
    install("b", "\n1 / 0\n")
    host = Host.discover()
    manifest = host.manifest()
    assert manifest["a"] == "roll-a 1.2"
    assert set(manifest) == {"a", "builtin"}
    host.verify_manifest(dict(manifest))
    with pytest.raises(
        PluginError, match=r"'a' is roll-a 1.2 here and roll-a 1.1 there; 'c' is not loaded here and c 3"
    ):
        host.verify_manifest({**manifest, "a": "roll-a 1.1", "c": "c 3"})
