"""What a disk can do to a run: full, read-only, truncated, altered. The run says so, and what was saved stays good."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from run_files import rows_of, tokens_of, weights_of
from small_disk import At, SmallDisk, set_read_only, small_disk

import roll_core as roll
from roll_core.api import TrainedRun, run_to_end
from roll_core.assembly import Assembly
from roll_core.builtin.local_train.strategy import LocalTrainStrategy
from roll_core.checkpoint import CheckpointStore
from roll_core.config.load import load_config
from roll_core.errors import CheckpointError
from roll_core.plugin.host import Host

STEPS = 6
NO_EVAL = {"at_start": False, "at_end": False}


@pytest.fixture
def config(base_config: dict[str, Any]) -> dict[str, Any]:
    return base_config | {"steps": STEPS, "checkpoint": {"every": 1, "keep": 2}, "eval": NO_EVAL}


@pytest.fixture
def disk(config: dict[str, Any]) -> Iterator[SmallDisk]:
    """The run's folder is on a small disk, with metrics, rollouts and checkpoints."""
    with small_disk(Path(config["folder"])) as disk:
        yield disk


def acting(config: dict[str, Any], actions: dict[int, Callable[[], Any]]) -> dict[str, Any]:
    return config | {"trackers": [*config["trackers"], {"use": At(actions)}]}


def once_saved(folder: Path, step: int, action: Callable[[], Any]) -> Callable[[], Any]:
    """`action`, as soon as the checkpoint of `step`, which a thread writes, is whole."""

    def act() -> None:
        end = time.monotonic() + 60
        while not (folder / "checkpoints" / f"step-{step:08d}").is_dir():
            assert time.monotonic() < end
            time.sleep(0.005)
        action()

    return act


def saved(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def without_saves(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("checkpoint/")} for row in rows]


def assert_books_close(folder: Path) -> None:
    state = CheckpointStore(folder / "checkpoints").latest().read_state()  # type: ignore[union-attr]
    for tally in state["ledger"]["totals"].values():
        assert tally["drawn"] == tally["trained"] + sum(tally["dropped"].values())
    assert state["ledger"]["open"] == []


def assert_like_undisturbed(folder: Path, config: dict[str, Any], tmp_path: Path) -> None:
    straight = roll.train(**config | {"folder": str(tmp_path / "straight"), "trackers": ["jsonl", "parquet"]}).folder
    assert without_saves(rows_of(folder)) == rows_of(straight)
    assert tokens_of(folder) == tokens_of(straight)
    assert weights_of(folder) == weights_of(straight)


def test_a_full_disk_stops_the_run_with_the_reason_and_the_run_goes_on_when_there_is_room(
    config: dict[str, Any], disk: SmallDisk, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match=r"step-00000003.*make room on that disk.*step-00000002 is still good"):
        roll.train(**acting(config, {3: once_saved(disk.folder, 2, lambda: disk.fill(leave=200_000))}))
    assert saved(disk.folder) == ["step-00000001", "step-00000002"]
    disk.empty()
    assert roll.train(**config, resume=True).result.steps == STEPS
    assert_books_close(disk.folder)
    assert_like_undisturbed(disk.folder, config, tmp_path)


def test_a_run_that_may_go_on_makes_up_for_it_at_the_next_checkpoint(
    config: dict[str, Any], disk: SmallDisk, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config["checkpoint"] |= {"on_error": "continue"}
    run = roll.train(**acting(config, {2: once_saved(disk.folder, 1, lambda: disk.fill(leave=0)), 4: disk.empty}))
    assert run.result.status == "finished"
    assert [m.get("checkpoint/failed", 0) for m in run.result.metrics] == [0, 0, 1, 2, 2, 2]
    assert "2 failed in a row" in caplog.text and "step-00000001 is still good" in caplog.text
    assert saved(disk.folder) == ["step-00000005", "step-00000006"]
    assert_books_close(disk.folder)
    straight = roll.train(**config | {"folder": str(tmp_path / "straight")}).folder
    assert weights_of(disk.folder) == weights_of(straight)


def test_the_last_checkpoint_of_a_run_is_never_lost_in_silence(config: dict[str, Any], disk: SmallDisk) -> None:
    config["checkpoint"] |= {"on_error": "continue"}
    with pytest.raises(CheckpointError, match=r"step-00000006.*make room.*step-00000005 is still good"):
        roll.train(**acting(config, {STEPS: once_saved(disk.folder, STEPS - 1, lambda: disk.fill(leave=0))}))
    assert saved(disk.folder) == ["step-00000004", "step-00000005"]


def test_a_disk_that_fills_up_after_the_weights_are_written(
    config: dict[str, Any], disk: SmallDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = LocalTrainStrategy.save
    steps = iter(range(1, STEPS + 1))

    def then_full(self: LocalTrainStrategy, folder: Path) -> None:
        save(self, folder)
        if next(steps) == 3:
            once_saved(disk.folder, 2, lambda: disk.fill(leave=0))()

    monkeypatch.setattr(LocalTrainStrategy, "save", then_full)
    with pytest.raises(CheckpointError, match=r"No space left.*state\.json.*make room.*step-00000002 is still good"):
        roll.train(**config)
    monkeypatch.undo()
    disk.empty()
    assert saved(disk.folder) == ["step-00000001", "step-00000002"]
    roll.train(**config, resume=True)
    assert_like_undisturbed(disk.folder, config, tmp_path)


def test_a_folder_that_becomes_read_only(config: dict[str, Any], request: pytest.FixtureRequest) -> None:
    if os.geteuid() == 0:  # a mode would not keep root from writing
        request.getfixturevalue("disk")
    folder = Path(config["folder"])

    def switch(is_read_only: bool) -> None:
        if os.geteuid() == 0:
            set_read_only(folder / "checkpoints", is_read_only)
        else:
            (folder / "checkpoints").chmod(0o555 if is_read_only else 0o755)

    with pytest.raises(CheckpointError, match=r"step-00000003.*writable for this user.*step-00000002 is still good"):
        roll.train(**acting(config, {3: once_saved(folder, 2, lambda: switch(True))}))
    switch(False)
    assert saved(folder) == ["step-00000001", "step-00000002"]
    assert roll.train(**config, resume=True).result.steps == STEPS
    assert_books_close(folder)


# --- resuming from what is damaged ---


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


DAMAGE: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "truncated": ("strategy/policy.safetensors", lambda path: path.write_bytes(path.read_bytes()[:-1])),
    "one bit": ("strategy/strategy.pt", flip),
    "missing": ("strategy/policy.safetensors", Path.unlink),
    "unreadable list": ("manifest.json", lambda path: path.write_text("{")),
    "rollouts": ("pending/pending.npz", flip),
    "rollouts missing": ("pending/pending.json", Path.unlink),
}


@pytest.fixture(scope="module")
def finished_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("finished") / "run"


@pytest.fixture
def damaged(config: dict[str, Any], finished_folder: Path) -> Path:
    """A copy of an asynchronous run that died after step 4, with the checkpoints of steps 3 and 4."""
    config["rollout"] |= {"mode": "async", "max_staleness": 2}
    if not finished_folder.exists():
        roll.train(**config | {"folder": str(finished_folder), "checkpoint": {"every": 1, "keep": 9}})
        for step in (1, 2, 5, 6):
            shutil.rmtree(finished_folder / "checkpoints" / f"step-{step:08d}")
    shutil.copytree(finished_folder, config["folder"])
    return Path(config["folder"])


@pytest.mark.parametrize("harm", DAMAGE)
def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_is_good(
    config: dict[str, Any], damaged: Path, harm: str, resume_run: Callable[..., TrainedRun]
) -> None:
    name, damage = DAMAGE[harm]
    damage(damaged / "checkpoints" / "step-00000004" / name)
    with pytest.raises(CheckpointError, match=rf"step-00000004/{name}.*with --checkpoint; there are: 3"):
        roll.train(**config, resume=True)
    assert saved(damaged) == ["step-00000003", "step-00000004"]
    assert resume_run(damaged, 3).result.steps == STEPS
    assert_books_close(damaged)


def test_recovery_that_nobody_attends_passes_over_what_is_damaged(
    damaged: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flip(damaged / "checkpoints" / "step-00000004" / "pending" / "pending.npz")
    (damaged / "checkpoints" / ".partial-step-00000005").mkdir()
    loaded = load_config(damaged / "config.yaml", [f"folder={damaged}", "checkpoint.keep=2"])
    rollfile = loaded.config.plugins.rollfile
    assembly = Assembly(loaded, Host.discover(rollfile=Path(rollfile) if rollfile else None))
    with caplog.at_level(logging.WARNING):
        checkpoint = assembly.checkpoints.newest_good()
    assert checkpoint is not None and checkpoint.step == 3
    assert "step-00000004 is passed over" in caplog.text and "pending.npz" in caplog.text
    assert run_to_end(assembly, checkpoint).result.steps == STEPS
    assert saved(damaged) == ["step-00000005", "step-00000006"]
    assert_books_close(damaged)


def test_a_checkpoint_without_its_list_is_none(
    config: dict[str, Any], damaged: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (damaged / "checkpoints" / "step-00000004" / "manifest.json").unlink()
    run = roll.train(**config, resume=True)
    assert run.result.steps == STEPS
    assert "step-00000004 has no manifest.json" in caplog.text
    assert [row["step"] for row in rows_of(damaged)] == list(range(1, STEPS + 1))
