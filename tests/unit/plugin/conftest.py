from __future__ import annotations

import importlib
import importlib.metadata
import sys
import textwrap
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

Install = Callable[..., str]
HEADER = """
from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl

"""
_numbers = count()


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a distribution with one plugin into a fresh folder on `sys.path`; returns the module's name.

    Only distributions of that folder are seen, whatever else is installed.
    """
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delenv("ROLL_PLUGINS", raising=False)
    made: list[str] = []

    def entry_points(group: str) -> list[importlib.metadata.EntryPoint]:
        found = importlib.metadata.distributions(path=[str(site)])
        return [point for distribution in found for point in distribution.entry_points if point.group == group]

    monkeypatch.setattr("importlib.metadata.entry_points", entry_points)

    def make(name: str, code: str, *, distribution: str | None = None, version: str | None = "1.0") -> str:
        module = f"fake_plugin_{next(_numbers)}"
        made.append(module)
        (site / f"{module}.py").write_text(HEADER + textwrap.dedent(code))
        distribution = distribution or f"roll-{name.replace('_', '-')}"
        info = site / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_text(f"[roll]\n{name} = {module}\n")
        if version is not None:
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        importlib.invalidate_caches()
        return module

    yield make
    for module in made:
        sys.modules.pop(module, None)


@pytest.fixture
def offers() -> Callable[..., str]:
    """Code of a plugin that offers verifiers of these names; building one makes a `SimpleVerifier`."""

    def code(*names: str) -> str:
        listed = ", ".join(f'Component("{name}", __name__ + ":SimpleVerifier")' for name in names)
        return f"""
class SimpleVerifier:
    def __init__(self, *, tolerance: float = 0.5):
        self.tolerance = tolerance

    def verify(self, response, reference, *, prompt=None, rollout=None, **options):
        return response == reference

@hookimpl
def roll_register_verifiers():
    return [{listed}]
"""

    return code
