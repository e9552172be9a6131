"""What `roll plugins new` writes installs, is found, and passes its own tests; for every kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from roll_core.cli.plugins_new import TEMPLATES, new, write_package
from roll_core.errors import ConfigError

ROOT = Path(__file__).parents[3]


def run(*command, cwd, target):
    paths = [str(ROOT), str(target)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    return {kind: write_package(kind, f"demo-{kind}", folder) for kind in TEMPLATES}


@pytest.fixture(scope="module")
def installed(packages, tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    folders = [str(folder) for folder in packages.values()]
    done = run("-m", "pip", "install", *options, "--target", str(target), *folders, cwd=target, target=target)
    assert done.returncode == 0, done.stderr
    return target


def test_the_files_of_a_package(packages):
    folder = packages["verifier"]
    assert folder.name == "roll-verifier-demo-verifier"
    assert sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()) == [
        ".gitignore",
        "CHANGELOG.md",
        "README.md",
        "pyproject.toml",
        "src/roll_verifier_demo_verifier/__init__.py",
        "src/roll_verifier_demo_verifier/conformance.py",
        "src/roll_verifier_demo_verifier/plugin.py",
        "src/roll_verifier_demo_verifier/py.typed",
        "src/roll_verifier_demo_verifier/verifier.py",
        "tests/test_roll_verifier_demo_verifier_conformance.py",
        "tests/test_roll_verifier_demo_verifier_verifier.py",
    ]


@pytest.mark.parametrize("kind", TEMPLATES)
def test_no_placeholder_is_left(packages, kind):
    for path in packages[kind].rglob("*"):
        assert not path.is_file() or "{{" not in path.read_text(), path


def test_generated_code_is_clean(packages):
    folder = packages["verifier"].parent
    for command in (("check", "--no-cache"), ("format", "--no-cache", "--check")):
        done = run("-m", "ruff", *command, str(folder), cwd=folder, target=folder)
        assert done.returncode == 0, done.stdout + done.stderr


def test_installed_packages_pass_their_own_tests(packages, installed):
    folders = [str(folder) for folder in packages.values()]
    options = ["-p", "no:cacheprovider", "-q", "-W", "error", "--import-mode=importlib"]
    done = run("-m", "pytest", *options, *folders, cwd=installed.parent, target=installed)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    passed = int(done.stdout.rsplit(" passed", 1)[0].split()[-1])
    assert passed > 10 * len(folders)


def test_installed_packages_are_listed(installed):
    done = run("-m", "roll_core.cli.main", "plugins", "list", cwd=installed, target=installed)
    assert done.returncode == 0, done.stderr
    for kind, template in TEMPLATES.items():
        line = next(text for text in done.stdout.splitlines() if f"{template.prefix}_demo_{kind}" in text)
        assert "loaded" in line


@pytest.mark.parametrize("name", ["demo_verifier", "verifier_demo_verifier", "roll-verifier-demo-verifier"])
def test_an_installed_package_passes_the_check_command(installed, name):
    done = run("-m", "roll_core.cli.main", "plugins", "check", name, "--strict", cwd=installed, target=installed)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 components, 0 failed checks, 0 failed plugins" in done.stdout


def test_a_broken_package_fails_the_check_command(installed, tmp_path):
    package = tmp_path / "roll_verifier_demo_verifier"
    original = installed / package.name
    package.mkdir()
    for file in original.glob("*.py"):
        package.joinpath(file.name).write_text(file.read_text().replace("_LONGEST = 10_000", "_LONGEST = 1"))
    target = os.pathsep.join([str(tmp_path), str(installed)])
    done = run("-m", "roll_core.cli.main", "plugins", "check", "demo_verifier", cwd=tmp_path, target=target)
    assert done.returncode == 1
    assert "FAILED verifiers/demo_verifier accepts_gold" in done.stdout


@pytest.mark.slow
def test_generated_code_is_typed(packages):
    folder = packages["verifier"].parent
    sources = [str(package / part) for package in packages.values() for part in ("src", "tests")]
    paths = os.pathsep.join([str(ROOT), *(path for path in sources if path.endswith("src"))])
    options = ["--strict", "--no-error-summary", "--cache-dir", str(folder / "cache")]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *sources],
        cwd=folder,
        env={**os.environ, "MYPYPATH": paths},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["Word", "1st", "a--b", "a b", "", "-a", "a/b", "../a", "naïve"])
def test_bad_names_are_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="lower-case letters"):
        write_package("verifier", name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_prefix_is_not_doubled(tmp_path):
    with pytest.raises(ConfigError, match="leave the prefix away"):
        write_package("verifier", "roll-verifier-math", tmp_path)


def test_underscores_become_hyphens(tmp_path):
    assert write_package("reward", "word_count", tmp_path).name == "roll-plugin-word-count"


def test_an_existing_folder_is_not_touched(tmp_path):
    (tmp_path / "roll-mixer-mine").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        write_package("mixer", "mine", tmp_path)
    assert not list((tmp_path / "roll-mixer-mine").iterdir())


def test_an_unknown_kind_names_the_known_ones(tmp_path):
    result = CliRunner().invoke(new, ["verfier", "mine", "--into", str(tmp_path)])
    assert result.exit_code == 2
    assert "'verifier'" in result.output


def test_the_command_says_what_comes_next(tmp_path):
    result = CliRunner().invoke(new, ["source", "mine", "--into", str(tmp_path / "deep")])
    assert result.exit_code == 0
    assert "pip install -e" in result.output
    assert (tmp_path / "deep" / "roll-plugin-mine" / "pyproject.toml").is_file()
