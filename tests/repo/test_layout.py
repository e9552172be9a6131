"""The tree, the packages and the sizes of things are what the architecture says."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOPS = ("plugins", "verifiers", "data_mixers")
PREFIX = {"plugins": "roll-plugin-", "verifiers": "roll-verifier-", "data_mixers": "roll-mixer-"}
MEMBERS = sorted(p for top in TOPS for p in (ROOT / top).glob("roll-*"))
SOURCES = sorted([*(ROOT / "roll_core").rglob("*.py"), *(f for m in MEMBERS for f in (m / "src").rglob("*.py"))])
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 60


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_the_three_folders_are_no_packages() -> None:
    for top in TOPS:
        assert not (ROOT / top / "__init__.py").exists()
        for entry in (ROOT / top).iterdir():
            assert not entry.is_dir() or entry.name.startswith(PREFIX[top]), f"{top}/{entry.name} is no member"


@pytest.mark.parametrize("member", MEMBERS, ids=name_of)
def test_member_is_a_distribution_of_its_own(member: Path) -> None:
    project = tomllib.loads((member / "pyproject.toml").read_text())
    package = member.name.replace("-", "_")
    assert project["project"]["name"] == member.name
    assert project["project"]["license"] == "Apache-2.0"
    assert any(d.startswith("roll-core") and ">=" in d and "<" in d for d in project["project"]["dependencies"])
    for value in project["project"]["entry-points"]["roll"].values():
        assert value == f"{package}.plugin"
    for file in ("README.md", "CHANGELOG.md", f"src/{package}/__init__.py", f"src/{package}/py.typed"):
        assert (member / file).is_file(), file
    assert list((member / "tests").glob(f"test_{package}*.py")), "tests are named after the package"


@pytest.mark.parametrize("member", MEMBERS, ids=name_of)
def test_members_import_neither_each_other_nor_private_names(member: Path) -> None:
    own = member.name.replace("-", "_")
    for file in (member / "src").rglob("*.py"):
        for module, names in imports_of(file):
            top = module.split(".")[0]
            assert not top.startswith(("roll_plugin", "roll_verifier", "roll_mixer")) or top == own, f"{file}: {module}"
            if top == "roll_core":
                private = [part for part in [*module.split("."), *names] if part.startswith("_")]
                assert not private, f"{file} imports {private} of roll_core"


def test_core_imports_no_plugin() -> None:
    for file in (ROOT / "roll_core").rglob("*.py"):
        for module, _ in imports_of(file):
            assert not module.startswith(("roll_plugin", "roll_verifier", "roll_mixer")), f"{file}: {module}"


@pytest.mark.parametrize("file", SOURCES, ids=name_of)
def test_files_and_functions_stay_small(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_FILE_LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            assert lines <= MAX_FUNCTION_LINES, f"{node.name} has {lines} lines"


def test_the_loop_is_short() -> None:
    assert (ROOT / "roll_core" / "engine" / "loop.py").read_text().count("\n") <= 300


def test_versions_of_members_and_changelogs_agree() -> None:
    for folder in [ROOT, *MEMBERS]:
        version = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
        assert f"## {version}" in (folder / "CHANGELOG.md").read_text(), folder


def imports_of(file: Path) -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, [alias.name for alias in node.names]))
    return found
