"""A project's own plugin file."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from roll_core.errors import PluginError
from roll_core.plugin.host import Host
from roll_core.plugin.rollfile import load_rollfile, rollfile_version

CODE = '''
from roll_core import Component, advantage, filter, hookimpl, policy_loss, reward, verifier

@verifier
def same(response, reference, *, strip: bool = False):
    """Accepts equal text."""
    return response.strip() == reference if strip else response == reference

@reward(name="short", summary="at most `limit` characters")
def short_answer(rollout, *, limit: int = 3):
    return float(len(rollout.response) <= limit)

@advantage
def signed(inputs):
    return inputs

@policy_loss(requires=("entropy",))
def plain(inputs, *, scale: float = 1.0):
    return scale * inputs

@filter
def any_group(group):
    return True

alias = same

@hookimpl
def roll_register_mixers():
    return [Component("own", dict)]
'''


@pytest.fixture
def rollfile(tmp_path: Path) -> Path:
    path = tmp_path / "rollfile.py"
    path.write_text(CODE)
    return path


def test_decorated_functions_and_hooks_are_registered(rollfile: Path) -> None:
    host = Host.discover(select="none", rollfile=rollfile)
    record = host.records["rollfile"]
    assert record.state == "loaded"
    assert record.origin == str(rollfile)
    assert record.components == (
        ("verifiers", "same"),
        ("rewards", "short"),
        ("filters", "any_group"),
        ("mixers", "own"),
        ("advantages", "signed"),
        ("policy_losses", "plain"),
    )
    assert host.component("verifiers", "same").summary == "Accepts equal text."
    assert host.component("rewards", "rollfile/short").summary == "at most `limit` characters"
    assert host.build("verifiers", "same", {"strip": True}, place="").verify(" a ", "a").score == 1.0
    loss = host.build("policy_losses", "plain", {"scale": 2.0}, place="")
    assert loss(3.0) == 6.0
    assert loss.requirements() == {"entropy"}
    assert host.manifest()["rollfile"] == f"rollfile {rollfile_version(rollfile)}"


@pytest.mark.parametrize(
    ("code", "error", "line"),
    [
        ("import roll_core\n\nundefined_name\n", "NameError: name 'undefined_name' is not defined", 3),
        ("x = (\n", "SyntaxError", 1),
        ("def f():\n    raise ValueError('deep')\n\nf()\n", "ValueError: deep", 2),
        ("from roll_core import reward\n\n@reward\ndef f(x):\n    return 1\n", "name its first parameter 'rollout'", 3),
        ("import json\njson.loads('{')\n", "JSONDecodeError", 2),
    ],
)
def test_an_error_names_file_and_line(tmp_path: Path, code: str, error: str, line: int) -> None:
    path = tmp_path / "rollfile.py"
    path.write_text(code)
    with pytest.raises(PluginError, match=r"'rollfile' failed to load") as caught:
        Host.discover(select="none", rollfile=path)
    assert error in str(caught.value)
    assert f"{path}:{line}" in str(caught.value)
    listed = Host.discover(select="none", rollfile=path, enforce=False).records["rollfile"]
    assert listed.state == "failed"
    assert not [name for name in sys.modules if name.startswith("roll_rollfile") and "broken" in name]


def test_a_missing_rollfile(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"rollfile '.*nowhere.py' cannot be read: No such file"):
        Host.discover(select="none", rollfile=tmp_path / "nowhere.py")


def test_a_rollfile_loads_once_and_anew_when_edited(rollfile: Path) -> None:
    first = load_rollfile(rollfile)
    assert load_rollfile(rollfile) is first
    rollfile.write_text(CODE.replace("limit: int = 3", "limit: int = 9"))
    second = load_rollfile(rollfile)
    assert second is not first
    assert second.short_answer.__kwdefaults__ == {"limit": 9}


def test_modules_beside_the_rollfile_can_be_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_the_rollfile.py").write_text("VALUE = 5\n")
    (tmp_path / "rollfile.py").write_text("from beside_the_rollfile import VALUE\n")
    assert load_rollfile(tmp_path / "rollfile.py").VALUE == 5
