"""How many ranks there are, and where: options, placements, and what contradicts them; the declaration."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from roll_core.cluster import Seat
from roll_core.errors import ConfigError
from roll_core.plugin.building import missing_members
from roll_plugin_fsdp import team
from roll_plugin_fsdp.options import FsdpOptions, Mesh
from roll_plugin_fsdp.plugin import roll_register_train_strategies
from roll_plugin_fsdp.strategy import FsdpStrategy
from roll_plugin_fsdp.team import Places, Team, places_for


class Placed:
    """An executor that gives training some seats, and remembers what it was to start."""

    def __init__(self, *devices):
        self._seats = tuple(Seat(0, (each,) if isinstance(each, int) else each) for each in devices) or None
        self.spec = None

    def seats(self, role):
        assert role == "train"
        return self._seats

    def start(self, spec, *, timeout_s):
        self.spec = spec
        raise ConfigError("this is as far as it goes")


def test_options() -> None:
    with pytest.raises(ValueError, match="no multiple"):
        FsdpOptions(world_size=6, replicate=4)
    with pytest.raises(ValueError, match="does nothing"):
        FsdpOptions(device="cpu", cpu_offload=True)
    options = FsdpOptions(replicate=2, tensor_parallel=2)
    mesh = options.mesh(8)
    assert mesh == Mesh(replicate=2, shard=2, tensor=2)
    assert (mesh.size, mesh.data_parallel) == (8, 4)
    with pytest.raises(ConfigError, match="world_size 6 is no multiple of replicate 2 x tensor_parallel 2"):
        options.mesh(6)


def test_without_a_placement_the_option_counts(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert places_for(FsdpOptions(), None) == places_for(FsdpOptions(), Placed()) == Places(1, "cpu")
    assert places_for(FsdpOptions(world_size=3), Placed()) == Places(3, "cpu")


def test_a_strategy_that_starts_its_ranks_itself_takes_every_device_it_sees(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(team, "visible_devices", lambda: ("0", "3", "5"))
    assert places_for(FsdpOptions(), None) == Places(3, "cuda")
    assert places_for(FsdpOptions(world_size=2), None) == Places(2, "cuda")
    assert places_for(FsdpOptions(device="cpu"), None) == Places(1, "cpu")
    assert places_for(FsdpOptions(), Placed()) == Places(1, "cuda"), "an executor that plans for none"


def test_a_placement_says_how_many_and_where(make_setup) -> None:
    executor = Placed(2, 3)
    for options in (FsdpOptions(), FsdpOptions(world_size=2, device="cuda")):
        with pytest.raises(ConfigError, match="as far as it goes"):
            Team("a:b", make_setup(), options, executor)
        assert (executor.spec.count, executor.spec.gpus) == (2, 1.0)
        assert executor.spec.seats == (Seat(0, (2,)), Seat(0, (3,)))
        assert executor.spec.kwargs["options"]["device"] == "cuda"


@pytest.mark.parametrize(
    ("options", "devices", "message"),
    [
        ({"world_size": 3}, (0, 1), r"world_size is 3, but the placement gives training 2 devices \(0:0, 0:1\)"),
        ({"device": "cpu"}, (0,), "device is cpu, but the placement gives training the devices 0:0"),
        ({}, (0, (1, 2)), "one rank of training the devices 0:1,2"),
        ({"replicate": 2}, (0, 1, 2), "world_size 3 is no multiple of replicate 2"),
    ],
)
def test_contradictions(make_setup, options, devices, message) -> None:
    executor = Placed(*devices)
    with pytest.raises(ConfigError, match=message):
        FsdpStrategy(make_setup(), FsdpOptions(**options), executor)
    assert executor.spec is None


def test_is_declared_and_loads_nothing_heavy() -> None:
    (component,) = roll_register_train_strategies()
    assert component.config_model() is FsdpOptions
    assert not missing_members("train_strategies", FsdpStrategy.__new__(FsdpStrategy))
    code = "import sys, roll_plugin_fsdp.plugin; print([m for m in ('torch', 'transformers') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
