"""Fixtures for tests of plugins. Loaded by pytest wherever roll-core is installed, hence light: no torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from roll_core.plugin.host import Host
    from roll_core.types import Rollout, RolloutGroup


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random Llama with a character tokenizer, made once per session. Needs roll-core[train]."""
    from roll_core.testing.tiny import make_tiny_model

    return make_tiny_model(tmp_path_factory.mktemp("tiny-model"))


@pytest.fixture
def roll_host() -> Host:
    """A host with the built-in and all installed plugins, as a run would find them."""
    from roll_core.plugin.host import Host

    return Host.discover()


@pytest.fixture
def fake_rollout() -> Callable[..., Rollout]:
    """`roll_core.testing.make_rollout`."""
    from roll_core.testing.fakes import make_rollout

    return make_rollout


@pytest.fixture
def fake_group() -> Callable[..., RolloutGroup]:
    """`roll_core.testing.make_group`."""
    from roll_core.testing.fakes import make_group

    return make_group
