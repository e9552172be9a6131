"""Checkpoints are whole or absent, checked on reading, and pruned."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from roll_core.checkpoint import CheckpointStore
from roll_core.errors import CheckpointError


def write_weights(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(b"w" * 1000)


def test_round_trip_keeps_the_newest(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "checkpoints", keep=2)
    for step in (1, 2, 3):
        store.save(step, {"step": step, "ids": [1, 2]}, write_weights)
    assert [c.step for c in store.all()] == [2, 3]
    latest = store.latest()
    assert latest is not None
    assert latest.read_state() == {"step": 3, "ids": [1, 2]}
    assert (latest.strategy_folder / "weights.bin").stat().st_size == 1000


def test_full_disk_keeps_the_previous_checkpoint_and_leaves_nothing(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    store.save(1, {"step": 1}, write_weights)

    def full(folder: Path) -> None:
        write_weights(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CheckpointError, match=r"No space left.*step-00000001 is still good"):
        store.save(2, {"step": 2}, full)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]
    assert store.latest().read_state() == {"step": 1}  # type: ignore[union-attr]


def test_a_writer_of_tensors_that_reports_a_full_disk_as_runtime_error_is_covered(tmp_path: Path) -> None:
    def full(folder: Path) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc] PytorchStreamWriter failed writing file")

    with pytest.raises(CheckpointError, match="failed writing"):
        CheckpointStore(tmp_path).save(1, {}, full)


@pytest.mark.parametrize("harm", ["truncate", "alter", "remove"])
def test_damage_is_found_before_anything_is_loaded(tmp_path: Path, harm: str) -> None:
    checkpoint = CheckpointStore(tmp_path).save(1, {"step": 1}, write_weights)
    file = checkpoint.strategy_folder / "weights.bin"
    if harm == "truncate":
        file.write_bytes(b"w" * 999)
    elif harm == "alter":
        file.write_bytes(b"x" + b"w" * 999)
    else:
        file.unlink()
    with pytest.raises(CheckpointError, match=r"weights\.bin"):
        checkpoint.read_state()


def test_a_broken_off_write_is_not_taken_for_a_checkpoint(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    (tmp_path / ".partial-step-00000002").mkdir()
    (tmp_path / "step-00000005").mkdir()
    assert store.latest() is None
    store.save(2, {"step": 2}, write_weights)
    assert [c.step for c in store.all()] == [2]


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, {"v": 1}, write_weights)
    store.save(1, {"v": 2}, write_weights)
    assert json.loads((tmp_path / "step-00000001" / "state.json").read_text()) == {"v": 2}


def test_going_on_from_an_older_step_forgets_the_later_ones(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2)
    for step in (95, 100):
        store.save(step, {}, write_weights)
    store.forget_after(90)
    store.save(91, {}, write_weights)
    assert [c.step for c in store.all()] == [91]
