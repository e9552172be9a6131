"""Components on their way to another process."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from roll_core.errors import ComponentError, ConfigError, PluginError
from roll_core.plugin import byvalue
from roll_core.plugin.host import Host

ROOT = Path(__file__).resolve().parents[3]
CHILD = """
import pickle, sys
spec = pickle.loads(sys.stdin.buffer.read())
built = spec.build()
print(built.verify("a", "a"), built.verify("a", "b"))
print("discovered:", "roll_core.builtin.plugin" in sys.modules)
"""


def in_fresh_process(spec: object, *paths: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=pickle.dumps(spec),
        capture_output=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": ":".join(str(p) for p in (ROOT, *paths))},
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


class Judge:
    def __init__(self, *, answer: bool = True) -> None:
        self.answer = answer

    def verify(self, response, reference, *, prompt=None, rollout=None, **options):
        return (response == reference) is self.answer


def test_a_declared_component_is_imported_and_nothing_is_discovered(install, offers, tmp_path: Path) -> None:
    install("v", offers("judge"), version="3.1")
    host = Host.discover()
    spec = host.spec("verifiers", "judge", {"tolerance": 1}, place="d.v")
    assert (spec.name, spec.owner, spec.version) == ("judge", "v", "3.1")
    assert in_fresh_process(spec, tmp_path / "site").splitlines() == ["True False", "discovered: False"]
    assert spec.build(host).tolerance == 1.0


def test_options_are_checked_when_the_spec_is_made(install, offers) -> None:
    install("v", offers("judge"))
    with pytest.raises(ConfigError, match=r"unknown option 'tol'"):
        Host.discover().spec("verifiers", "judge", {"tol": 1})


def test_functions_of_a_rollfile_travel_with_it(tmp_path: Path) -> None:
    path = tmp_path / "rollfile.py"
    path.write_text(
        "from roll_core import verifier\nSEEN = 'b'\n\n@verifier\n"
        "def odd(response, reference, *, flip: bool = False):\n"
        "    return (reference != SEEN) is not flip\n"
    )
    host = Host.discover(select="none", rollfile=path)
    spec = host.spec("verifiers", "odd", {"flip": True})
    assert spec.rollfile == path
    first, second = in_fresh_process(spec).splitlines()
    assert first.index("Status.INCORRECT") < first.index("Status.CORRECT")
    assert second == "discovered: False"
    path.write_text(path.read_text() + "# edited\n")
    with pytest.raises(PluginError, match=r"has changed since the run started"):
        spec.build()


def test_closures_and_lambdas_travel_by_value() -> None:
    host = Host.discover(select="none")
    expected = "a"

    def helper(text: str) -> bool:
        return text == expected and Path("x").name == "x"

    def judge(response, reference, *, strict: bool = True):
        return helper(reference) is strict

    out = in_fresh_process(host.spec("verifiers", judge, {"strict": True}))
    assert out.index("Status.CORRECT") < out.index("Status.INCORRECT")
    out = in_fresh_process(host.spec("verifiers", lambda response, reference: response == reference, {}))
    assert "Status.CORRECT" in out


def test_functions_of_a_script_travel_by_value(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import pickle, sys\nfrom roll_core.plugin.host import Host\nLIMIT = 1\n\n"
        "def count(n):\n    return n if n < LIMIT else count(n - 1)\n\n"
        "def judge(response, reference, *, off: int = 0):\n    return response == reference and count(3) == off\n\n"
        "spec = Host.discover(select='none').spec('verifiers', judge, {})\n"
        "sys.stdout.buffer.write(pickle.dumps(spec))\n"
    )
    made = subprocess.run(
        [sys.executable, str(script)], capture_output=True, timeout=60, env={"PYTHONPATH": str(ROOT)}, check=True
    )
    out = in_fresh_process(pickle.loads(made.stdout))
    assert out.index("Status.CORRECT") < out.index("Status.INCORRECT")


def test_ready_objects_travel_pickled() -> None:
    spec = Host.discover(select="none").spec("verifiers", Judge(answer=False), {})
    assert spec.name == "Judge"
    assert spec.build().answer is False
    assert pickle.loads(pickle.dumps(spec)).build().verify("a", "b")


def test_what_cannot_be_pickled_is_said_at_once() -> None:
    judge = Judge()
    judge.lock = threading.Lock()
    with pytest.raises(ComponentError, match=r"verifier 'Judge' cannot be sent to a worker process.*lock"):
        Host.discover(select="none").spec("verifiers", judge, {})


def test_a_worker_with_another_plugin_version_is_refused(install, offers) -> None:
    install("v", offers("judge"))
    spec = Host.discover().spec("verifiers", "judge", {})
    with pytest.raises(PluginError, match=r"plugin 'v' is blocked, version 1.0 here; the driver has version 1.0"):
        spec.build(Host.discover(select="none"))


def test_by_value_keeps_defaults_names_and_recursion() -> None:
    def power(base: int, times: int = 2, *, start: int = 1) -> int:
        """Doc."""
        return start if times == 0 else power(base, times - 1, start=start * base)

    copy = pickle.loads(byvalue.dumps(power))
    assert copy is not power
    assert copy(3) == 9
    assert copy(2, start=5) == 20
    assert (copy.__name__, copy.__doc__, copy.__qualname__) == (power.__name__, "Doc.", power.__qualname__)


def test_importable_functions_travel_by_reference() -> None:
    assert pickle.loads(byvalue.dumps(byvalue.dumps)) is byvalue.dumps
    assert len(byvalue.dumps(byvalue.dumps)) < 100


def test_a_process_with_another_version_of_the_plugin_is_refused():
    spec = Host.discover().spec("rewards", "verdict", {})
    assert spec.distribution == "roll-core"
    spec.build()
    with pytest.raises(PluginError, match="the driver has version 9"):
        replace(spec, version="9").build()
    with pytest.raises(PluginError, match="no-such-package is not installed"):
        replace(spec, distribution="no-such-package").build()
