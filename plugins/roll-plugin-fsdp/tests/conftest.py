from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from roll_core.builtin.local_train.strategy import LocalTrainStrategy
from roll_core.contracts import OptimSettings, TrainSetup
from roll_core.testing.tiny import make_tiny_model

sys.path.insert(0, str(Path(__file__).parent))  # ranks are given this process's path too

from fsdp_pool import LIMIT_S, Pool
from fsdp_ranks import ProbeStrategy

from roll_plugin_fsdp.options import FsdpOptions


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), seed=1)


@pytest.fixture(scope="session")
def make_setup(tiny: Path) -> Callable[..., TrainSetup]:
    def make(**changes: object) -> TrainSetup:
        settings = {"model": tiny, "optim": OptimSettings(lr=1e-2, clip_norm=0.0), "total_steps": 100, **changes}
        return TrainSetup(**settings)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def local() -> Callable[..., LocalTrainStrategy]:
    return lambda setup, **options: LocalTrainStrategy(
        setup=setup, **{"precision": "float32", "device": "cpu", **options}
    )


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    with Pool() as made:
        yield made


Start = Callable[..., ProbeStrategy]


@contextmanager
def starting(pool: Pool) -> Iterator[Start]:
    """Starts strategies on the pool (with `executor=None` on processes of their own) and closes them in the end."""
    started: list[ProbeStrategy] = []

    def make(setup: TrainSetup, world_size: int, *, executor: object = pool, **options: object) -> ProbeStrategy:
        defaults = {"precision": "float32", "device": "cpu", "start_timeout_s": LIMIT_S, "step_timeout_s": LIMIT_S}
        given = FsdpOptions(world_size=world_size, **{**defaults, **options})
        started.append(ProbeStrategy(setup, given, executor))
        return started[-1]

    yield make
    for strategy in started:
        strategy.close()


@pytest.fixture
def start(pool: Pool) -> Iterator[Start]:
    with starting(pool) as make:
        yield make


@pytest.fixture(scope="module")
def start_for_module(pool: Pool) -> Iterator[Start]:
    with starting(pool) as make:
        yield make
