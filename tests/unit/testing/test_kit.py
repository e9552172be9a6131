"""The kit around the checks: cases, skips, expected failures, and the pytest form."""

import subprocess
import sys
from pathlib import Path

import pytest

from roll_core.contracts import KINDS
from roll_core.errors import ConfigError, PluginError, UnknownNameError
from roll_core.plugin.component import Component
from roll_core.testing import Cases, VerifierCases, bind_checks, check_component, checks_for, conformance, find_cases
from roll_core.testing.cases import origin_of

NUMBERS = VerifierCases(gold=[("4", "4")], wrong=[("5", "4")])
ROOT = Path(__file__).parents[3]


def fake(attribute, **how):
    return Component("fake", f"roll_kit_faults:{attribute}", **how)


def by_name(results):
    return {r.check: r for r in results}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `roll_kit_sample` with a nested module and cases of its own."""

    def make(conformance_text):
        folder = tmp_path / "roll_kit_sample"
        (folder / "deep").mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "deep" / "__init__.py").write_text("from roll_kit_faults import Verifier\n")
        (folder / "conformance.py").write_text(conformance_text)
        monkeypatch.syspath_prepend(str(tmp_path))
        for name in [n for n in sys.modules if n.startswith("roll_kit_sample")]:
            monkeypatch.delitem(sys.modules, name)
        return Component("sample", "roll_kit_sample.deep:Verifier")

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_named_and_described_checks(kind):
    checks = checks_for(kind)
    own = [c for c in checks if c.kind == kind]
    assert own
    assert len({c.name for c in checks}) == len(checks)
    assert all(len(c.description) > 15 for c in checks)


def test_an_unknown_kind_is_an_error():
    with pytest.raises(UnknownNameError, match="did you mean 'verifiers'"):
        checks_for("verifier")


def test_without_cases_only_what_needs_none_is_run():
    results = by_name(check_component(fake("Verifier"), "verifiers"))
    assert results["is_picklable"].outcome == "passed"
    assert results["accepts_gold"].outcome == "skipped"
    assert results["accepts_gold"].lacks_cases
    assert "CONFORMANCE" in results["accepts_gold"].reason


def test_required_options_without_cases_are_a_skip_and_wrong_ones_a_failure():
    component = Component("length", "roll_core.builtin.rewards.length:LengthPenalty")
    found = by_name(check_component(component, "rewards", cases=Cases()))
    assert found["gives_finite_values"].lacks_cases
    assert "budget" in found["gives_finite_values"].reason
    found = by_name(check_component(component, "rewards", options={"budget": "many"}))
    assert found["gives_finite_values"].outcome == "failed"


def test_a_component_that_needs_the_network_is_not_run_without_cases():
    results = by_name(check_component(fake("Tracker", permissions=frozenset({"network"})), "trackers"))
    assert {r.outcome for n, r in results.items() if n != "rejects_unknown_options"} == {"skipped"}


def test_an_expected_failure_is_reported_with_its_reason():
    cases = VerifierCases(gold=[("4", "4")], expected_failures={"accepts_gold": "it is never content"})
    results = by_name(check_component(fake("NeverRight"), "verifiers", cases=cases))
    assert results["accepts_gold"].outcome == "expected_failure"
    assert results["accepts_gold"].reason == "it is never content"


def test_an_expected_failure_that_passes_is_a_failure():
    results = by_name(
        check_component(fake("Reward"), "rewards", cases=Cases(), expected_failures={"is_deterministic": "flaky"})
    )
    assert results["is_deterministic"].outcome == "failed"
    assert "passes" in results["is_deterministic"].reason


def test_expected_failures_must_name_a_check_and_give_a_reason():
    with pytest.raises(UnknownNameError, match="did you mean 'accepts_gold'"):
        bind_checks(fake("Verifier"), "verifiers", cases=NUMBERS, expected_failures={"accept_gold": "why"})
    with pytest.raises(ConfigError, match="needs a reason"):
        bind_checks(fake("Verifier"), "verifiers", cases=NUMBERS, expected_failures={"accepts_gold": ""})


def test_a_decorated_function_passes():
    from roll_kit_faults import same_text

    from roll_core.plugin.decorators import declared

    component = declared(same_text).component
    assert origin_of(component) == "roll_kit_faults:same_text"
    results = check_component(component, "verifiers", cases=NUMBERS)
    assert {r.outcome for r in results} == {"passed"}, results


def test_an_exception_of_the_component_is_a_failure_with_its_type():
    results = by_name(check_component(Component("fake", "roll_kit_faults:nothing_here"), "rewards", cases=Cases()))
    assert all(r.outcome == "failed" for r in results.values())
    assert "nothing_here" in results["is_deterministic"].reason


def test_cases_are_found_beside_the_plugin(package):
    component = package(
        "from roll_core.testing import VerifierCases\n"
        "CONFORMANCE = {'verifiers/sample': VerifierCases(gold=[('4', '4')])}\n"
    )
    cases = find_cases("verifiers", component)
    assert isinstance(cases, VerifierCases)
    assert by_name(check_component(component, "verifiers"))["accepts_gold"].outcome == "passed"
    assert find_cases("rewards", component) is None


@pytest.mark.parametrize("text", ["CASES = {}\n", "CONFORMANCE = {'verifiers/sample': {}}\n"])
def test_a_malformed_conformance_module_is_an_error(package, text):
    with pytest.raises(PluginError, match="CONFORMANCE"):
        find_cases("verifiers", package(text))


def test_an_error_inside_a_conformance_module_is_not_swallowed(package):
    with pytest.raises(ModuleNotFoundError, match="not_a_module"):
        find_cases("verifiers", package("import not_a_module\n"))


def test_options_may_be_made_in_the_scratch_folder():
    def options(folder):
        path = folder / "rows.jsonl"
        path.write_text('{"prompt": "1"}\n')
        return {"path": str(path)}

    component = Component("dataset", "roll_core.builtin.sources.dataset:DatasetSource")
    results = check_component(component, "sources", cases=Cases(options=options))
    assert {r.outcome for r in results} == {"passed"}


def test_a_plugin_without_components_is_an_error():
    with pytest.raises(PluginError, match="declares no component"):
        conformance("roll_core.errors")


def test_the_pytest_form_gives_one_case_per_check(tmp_path):
    (tmp_path / "test_author.py").write_text(
        "from roll_core.plugin.component import Component\n"
        "from roll_core.testing import VerifierCases, parametrize_checks\n"
        "component = Component('fake', 'roll_kit_faults:NeverRight')\n"
        "cases = VerifierCases(gold=[('4', '4')])\n"
        "@parametrize_checks('verifiers', component, cases=cases, expected_failures={'is_deterministic': 'no'})\n"
        "def test_conformance(check):\n"
        "    check()\n"
        "def test_fixtures(fake_rollout, fake_group, roll_host):\n"
        "    assert fake_rollout(0.5).score == 0.5\n"
        "    assert len(fake_group([1.0, None]).scored) == 1\n"
        "    assert roll_host.records['builtin'].state == 'loaded'\n"
    )
    done = run_pytest(tmp_path, "-rA")
    counts = done.stdout.splitlines()[-1]
    assert "2 failed" in counts, done.stdout  # accepts_gold, and the expected failure that passes
    assert "verifiers/fake/accepts_gold" in done.stdout
    assert "XPASS(strict)" in done.stdout
    assert "PASSED test_author.py::test_fixtures" in done.stdout


def test_the_pytest_plugin_is_light(tmp_path):
    (tmp_path / "test_light.py").write_text(
        "import sys\ndef test_light():\n    assert not {'torch', 'transformers', 'ray'} & set(sys.modules)\n"
    )
    done = run_pytest(tmp_path)
    assert done.returncode == 0, done.stdout


def run_pytest(folder, *options):
    from importlib.metadata import entry_points
    from os import environ, pathsep

    loaded = any(e.value == "roll_core.testing.pytest_plugin" for e in entry_points(group="pytest11"))
    plugin = () if loaded else ("-p", "roll_core.testing.pytest_plugin")
    paths = pathsep.join([str(ROOT), str(Path(__file__).parent)])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *options, "."]
    return subprocess.run(
        command,
        cwd=folder,
        env={**environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
