"""The command line: exit codes, messages, global options, lazy sub-commands, commands of plugins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from roll_core import Component, ConfigError, hookimpl
from roll_core.cli.context import GlobalOptions, host_for, options_of
from roll_core.cli.lazy import LazyCommand, LazyGroup
from roll_core.cli.main import _COMMANDS, RollGroup, cli
from roll_core.errors import PluginError
from roll_core.plugin.discovery import object_candidate

ROOT = Path(__file__).resolve().parents[3]


def command(**callbacks: object) -> click.Group:
    """The real main group with sub-commands that do what a test wants."""
    group = RollGroup("roll", params=cli.params, callback=cli.callback)
    for name, callback in callbacks.items():
        group.add_command(click.Command(name, callback=callback))
    return group


def raise_(error: BaseException) -> None:
    raise error


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLL_PLUGINS", "none")


def test_an_error_is_one_message_on_stderr() -> None:
    error = ConfigError("no verifier named 'mth'; did you mean 'math'?")
    error.add_note("in run.yaml")
    group = command(fail=lambda: raise_(error))
    result = CliRunner().invoke(group, ["fail"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == "error: no verifier named 'mth'; did you mean 'math'?\nin run.yaml\n"


def test_debug_shows_the_traceback() -> None:
    result = CliRunner().invoke(command(fail=lambda: raise_(ConfigError("wrong"))), ["--debug", "fail"])
    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr
    assert result.stderr.endswith("error: wrong\n")


def test_a_missing_library_names_its_extra() -> None:
    group = command(fail=lambda: raise_(ModuleNotFoundError("No module named 'torch'", name="torch.cuda")))
    result = CliRunner().invoke(group, ["fail"])
    assert result.exit_code == 1
    assert "pip install 'roll-core[train]'" in result.stderr
    group = command(fail=lambda: raise_(ModuleNotFoundError("No module named 'x'", name="x")))
    assert isinstance(CliRunner().invoke(group, ["fail"]).exception, ModuleNotFoundError)


def test_an_interrupt_exits_with_130() -> None:
    result = CliRunner().invoke(command(stop=lambda: raise_(KeyboardInterrupt())), ["stop"])
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"


def test_control_c_in_a_real_process(tmp_path: Path) -> None:
    (tmp_path / "rollfile.py").write_text(
        "import click, time\nfrom roll_core import Component, hookimpl\n\n"
        "def make():\n    def wait():\n        click.echo('started')\n        time.sleep(60)\n"
        "    return click.Command('wait', callback=wait)\n\n"
        "@hookimpl\ndef roll_register_commands():\n    return [Component('wait', make, summary='waits')]\n"
    )
    args = [sys.executable, "-m", "roll_core.cli.main", "--rollfile", str(tmp_path / "rollfile.py"), "wait"]
    process = subprocess.Popen(
        args,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    start = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (130, b"interrupted\n")
    assert time.monotonic() - start < 20


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["--plugin", "math", "plugins", "list"], "'math' is not of the form no:NAME"),
        (["--plugin", "no:", "plugins", "list"], "is not of the form no:NAME"),
        (["plugins", "list", "--colour"], "No such option"),
        (["plugins", "show"], "Missing argument"),
    ],
)
def test_wrong_usage_exits_with_2(args: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, args)
    assert result.exit_code == 2
    assert message in result.stderr


def test_help_and_version_import_no_sub_command() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    for name, line in _COMMANDS.items():
        assert name in result.stdout
        assert line.help in result.stdout
    assert CliRunner().invoke(cli, ["--version"]).stdout.strip()


def test_help_survives_plugins_that_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLL_PLUGINS", "not_installed")
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert "doctor" in result.stdout
    assert "not_installed" in result.stdout


def test_global_options_reach_the_sub_command() -> None:
    seen: list[GlobalOptions] = []
    group = command(look=lambda: seen.append(options_of(click.get_current_context())))
    args = ["--plugin", "no:a", "--plugin", "no:b", "--rollfile", "r.py", "--debug", "look"]
    assert CliRunner().invoke(group, args).exit_code == 0
    assert seen == [GlobalOptions(("a", "b"), Path("r.py"), debug=True)]
    with click.Context(click.Command("alone")) as context:
        assert options_of(context) == GlobalOptions()


def test_a_blocked_essential_plugin_is_an_error() -> None:
    result = CliRunner().invoke(cli, ["--plugin", "no:builtin", "plugins", "list"])
    assert result.exit_code == 1
    assert result.stderr == "error: plugin 'builtin' is essential and cannot be blocked\n"


def test_a_configs_plugin_section_is_heeded(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(
        "model: {path: m}\ndomains: {d: {data: [{prompt: a}], verifier: v}}\nplugins: {required: [absent]}\n"
    )
    with click.Context(click.Command("x")) as context, pytest.raises(PluginError, match=r"required plugin 'absent'"):
        host_for(context, config)
    with click.Context(click.Command("x")) as context:
        assert "builtin" in host_for(context, config, ["plugins.required=[]"]).records


# --- commands of plugins ----------------------------------------------------------------------------------------------


class Greeter:
    roll_plugin_name = "greeter"

    @hookimpl
    def roll_register_commands(self) -> list[Component]:
        def make() -> click.Command:
            return click.Command("greet", callback=lambda: click.echo("hello"))

        return [
            Component("greet_all", make, summary="say hello"),
            Component("doctor", make, summary="not core's"),
            Component("broken", lambda: 3, summary="no command"),
        ]


@pytest.fixture
def _greeter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roll_core.plugin.discovery.entry_point_candidates", lambda: [object_candidate(Greeter())])


@pytest.mark.usefixtures("_greeter")
def test_plugins_bring_commands() -> None:
    assert CliRunner().invoke(cli, ["greet-all"]).stdout == "hello\n"
    listed = CliRunner().invoke(cli, ["--help"]).stdout
    assert "greet-all" in listed
    assert "say hello [greeter]" in listed
    assert CliRunner().invoke(cli, ["greeter/doctor"]).stdout == "hello\n"
    assert CliRunner().invoke(cli, ["doctor", "--help"]).stdout.startswith("Usage: cli doctor")
    broken = CliRunner().invoke(cli, ["broken"])
    assert (broken.exit_code, "'broken' is not a click command: 3" in broken.stderr) == (1, True)


# --- LazyGroup --------------------------------------------------------------------------------------------------------


def test_lazy_groups_import_on_use_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lazy_probe.py").write_text(
        "import click\nrun = click.Command('run', callback=lambda: None)\nother = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    group = LazyGroup(
        "g",
        lazy={
            "run": LazyCommand("lazy_probe:run", "runs"),
            "bad": LazyCommand("lazy_probe:other", "no command"),
            "gone": LazyCommand("lazy_probe:gone", "not there"),
        },
    )
    group.add_command(click.Command("eager", help="there at once", callback=lambda: None))
    shown = CliRunner().invoke(group, ["--help"]).stdout
    assert all(line in shown for line in ("runs", "no command", "there at once"))
    assert "lazy_probe" not in sys.modules
    assert CliRunner().invoke(group, ["run"]).exit_code == 0
    assert isinstance(CliRunner().invoke(group, ["bad"]).exception, PluginError)
    assert isinstance(CliRunner().invoke(group, ["gone"]).exception, PluginError)


# --- roll plugins, roll doctor ----------------------------------------------------------------------------------------


def test_plugins_list_shows_failures_with_their_reason(tmp_path: Path) -> None:
    rollfile = tmp_path / "rollfile.py"
    rollfile.write_text("\n1 / 0\n")
    result = CliRunner().invoke(cli, ["--rollfile", str(rollfile), "plugins", "list"], env={"COLUMNS": "200"})
    assert result.exit_code == 0
    assert "builtin" in result.stdout
    assert f"rollfile failed: rollfile: ZeroDivisionError: division by zero ({rollfile}:2)" in result.stdout
    listed = json.loads(CliRunner().invoke(cli, ["--rollfile", str(rollfile), "plugins", "list", "--json"]).stdout)
    by_name = {entry["name"]: entry for entry in listed}
    assert by_name["rollfile"]["state"] == "failed"
    assert by_name["builtin"]["state"] == "loaded"
    assert {"kind": "advantages", "name": "grpo"} in by_name["builtin"]["components"]
    assert set(by_name["builtin"]) >= {"distribution", "version", "seconds", "error", "origin", "essential"}


def test_plugins_list_by_kind() -> None:
    listed = json.loads(CliRunner().invoke(cli, ["plugins", "list", "--json", "--kind", "environments"]).stdout)
    assert listed == []
    result = CliRunner().invoke(cli, ["plugins", "list", "--kind", "verifer"])
    assert (result.exit_code, "did you mean 'verifiers'" in result.stderr) == (1, True)


def test_plugins_show(tmp_path: Path) -> None:
    rollfile = tmp_path / "rollfile.py"
    rollfile.write_text(
        "from roll_core import Component, hookimpl, verifier\n\n@verifier(permissions=['network'])\n"
        "def twin(response, reference, *, tolerance: float = 0.5):\n    'Judges.'\n    return True\n\n"
        "@hookimpl\ndef roll_register_rewards():\n    return [Component('twin', 'not_there:x')]\n"
    )
    args = ["--rollfile", str(rollfile), "plugins", "show"]
    entries = json.loads(CliRunner().invoke(cli, [*args, "twin", "--json"]).stdout)
    verifier, reward = (entry["component"] for entry in entries)
    assert (verifier["summary"], verifier["permissions"]) == ("Judges.", ["network"])
    assert verifier["options"] == [{"name": "tolerance", "type": "float = 0.5", "required": False, "help": ""}]
    assert "not_there" in reward["error"]
    text = CliRunner().invoke(cli, [*args, "rollfile/twin"]).stdout
    assert "  tolerance: float = 0.5" in text
    shown = json.loads(CliRunner().invoke(cli, [*args, "builtin", "--json"]).stdout)
    assert shown[0]["plugin"]["essential"] is True
    missing = CliRunner().invoke(cli, [*args, "twim"])
    assert (missing.exit_code, "did you mean 'twin'" in missing.stderr) == (1, True)


def test_doctor_fails_on_a_failed_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roll_core.cli.doctor._devices", lambda probe: iter(()))
    rollfile = tmp_path / "rollfile.py"
    rollfile.write_text("1 / 0\n")
    folder = str(tmp_path / "not" / "made" / "yet")
    result = CliRunner().invoke(cli, ["doctor", "--json", "--folder", folder])
    assert result.exit_code == 0
    areas = {finding["area"]: finding for finding in json.loads(result.stdout)}
    assert set(areas) == {"version", "plugins", "disk", "sandbox"}
    assert areas["disk"]["text"].endswith(str(tmp_path))
    result = CliRunner().invoke(cli, ["--rollfile", str(rollfile), "doctor", "--folder", folder])
    assert result.exit_code == 1
    assert "fail  plugins   rollfile failed to load" in result.stdout
