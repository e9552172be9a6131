"""Checkpoints are whole or absent, checked on reading, pruned, and cleaned up after."""

from __future__ import annotations

import errno
import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from roll_core.checkpoint import Checkpoint, CheckpointStore
from roll_core.errors import CheckpointError


def write_weights(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(b"w" * 1000)


def write_pending(folder: Path) -> None:
    (folder / "pending.json").write_text('{"admitted": []}')


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", keep=2)


def names(store: CheckpointStore) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir())


def test_round_trip_keeps_the_newest(store: CheckpointStore) -> None:
    for step in (1, 2, 3):
        store.save(step, {"step": step, "ids": [1, 2]}, write_weights)
    assert [c.step for c in store.all()] == [2, 3]
    latest = store.latest()
    assert latest is not None
    assert latest.read_state() == {"step": 3, "ids": [1, 2]}
    assert latest.pending_folder is None
    assert (latest.strategy_folder / "weights.bin").stat().st_size == 1000
    assert names(store) == ["step-00000002", "step-00000003"]


def test_full_disk_keeps_the_previous_checkpoint_and_leaves_nothing(store: CheckpointStore) -> None:
    store.save(1, {"step": 1}, write_weights)

    def full(folder: Path) -> None:
        write_weights(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CheckpointError, match=r"No space left.*make room.*step-00000001 is still good"):
        store.save(2, {"step": 2}, full)
    assert names(store) == ["step-00000001"]
    latest = store.latest()
    assert latest is not None and latest.read_state() == {"step": 1}


def test_a_writer_of_tensors_that_reports_a_full_disk_as_runtime_error_is_covered(store: CheckpointStore) -> None:
    def full(folder: Path) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc] PytorchStreamWriter failed writing file")

    with pytest.raises(CheckpointError, match=r"failed writing.*there is no earlier one"):
        store.save(1, {}, full)


def test_an_error_of_the_machinery_is_not_taken_for_the_disks(store: CheckpointStore) -> None:
    from roll_core.cluster import Stuck, WorkerLost

    for error in (WorkerLost("actor[1] has ended"), Stuck("no answer")):

        def lost(folder: Path, error: Exception = error) -> None:
            raise error

        with pytest.raises(type(error)):
            store.save(1, {}, lost)
        assert names(store) == []


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


DAMAGE: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "truncated": ("strategy/weights.bin", cut, r"weights\.bin is truncated: 999 bytes where 1000"),
    "longer": ("strategy/weights.bin", lambda p: p.write_bytes(b"w" * 1001), r"weights\.bin is altered: 1001 bytes"),
    "one bit": ("strategy/weights.bin", flip, r"weights\.bin is altered: its checksum"),
    "missing": ("strategy/weights.bin", Path.unlink, r"weights\.bin is missing"),
    "a folder instead": ("strategy/weights.bin", lambda p: (p.unlink(), p.mkdir()), r"weights\.bin is"),  # type: ignore[dict-item]  # a lambda of two steps
    "state missing": ("state.json", Path.unlink, r"state\.json is missing"),
    "state altered": ("state.json", flip, r"state\.json is altered"),
    "manifest missing": ("manifest.json", Path.unlink, r"manifest\.json is missing"),
    "manifest cut": ("manifest.json", cut, r"manifest\.json cannot be read: JSONDecodeError"),
    "manifest empty": ("manifest.json", lambda p: p.write_text("{}"), r"manifest\.json cannot be read: KeyError"),  # type: ignore[dict-item]  # its result is not used
    "pending altered": ("pending/pending.json", flip, r"pending\.json is altered"),
    "pending gone": ("pending", shutil.rmtree, r"pending\.json is missing"),
}


@pytest.mark.parametrize("harm", DAMAGE)
def test_damage_is_found_before_anything_is_loaded_and_automatic_recovery_goes_further_back(
    store: CheckpointStore, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.save(1, {"step": 1}, write_weights)
    checkpoint = store.save(2, {"step": 2}, write_weights, write_pending)
    name, damage, message = DAMAGE[harm]
    damage(checkpoint.folder / name)
    with pytest.raises(CheckpointError, match=f"{message}.*resume from another one with --checkpoint; there are: 1"):
        checkpoint.read_state()
    with caplog.at_level(logging.WARNING):
        good = store.newest_good()
    assert good is not None and good.read_state() == {"step": 1}
    assert "step-00000002 is passed over" in caplog.text


def test_a_manifest_of_another_step_is_refused(store: CheckpointStore) -> None:
    folder = store.save(2, {"step": 2}, write_weights).folder
    with pytest.raises(CheckpointError, match="is of step 2, the folder's name says 7"):
        Checkpoint(folder.rename(folder.with_name("step-00000007")), 7).read_state()


def test_recovery_says_so_when_no_checkpoint_is_left(store: CheckpointStore) -> None:
    assert store.newest_good() is None
    for step in (1, 2):
        (store.save(step, {}, write_weights).folder / "state.json").unlink()
    with pytest.raises(CheckpointError, match=r"no checkpoint .* can be read: .*step-00000002.* \| .*step-00000001"):
        store.newest_good()


def test_what_was_read_once_is_not_hashed_again(store: CheckpointStore) -> None:
    checkpoint = store.save(1, {"ids": [1]}, write_weights)
    state = checkpoint.read_state()
    state["ids"].append(2)
    flip(checkpoint.strategy_folder / "weights.bin")
    assert checkpoint.read_state() == {"ids": [1]}


def test_a_broken_off_write_is_not_taken_for_a_checkpoint_and_cleaned_away(store: CheckpointStore) -> None:
    for left in (".partial-step-00000002", ".removed-step-00000001", "step-00000005", "step-notes"):
        (store.folder / left).mkdir(parents=True)
    assert store.latest() is None
    store.clean()
    assert names(store) == ["step-00000005", "step-notes"]
    store.save(2, {"step": 2}, write_weights)
    assert [c.step for c in store.all()] == [2]
    store.forget_after(2)
    assert names(store) == ["step-00000002", "step-notes"]


def test_saving_a_step_again_replaces_it(store: CheckpointStore) -> None:
    store.save(1, {"v": 1}, write_weights)
    store.save(1, {"v": 2}, write_weights)
    assert json.loads((store.folder / "step-00000001" / "state.json").read_text()) == {"v": 2}
    assert names(store) == ["step-00000001"]


def test_a_replaced_checkpoint_counts_until_the_new_one_has_its_name(store: CheckpointStore) -> None:
    folder = store.save(1, {"v": 1}, write_weights).folder
    folder.rename(folder.with_name(".replaced-step-00000001"))
    (store.folder / ".partial-step-00000001").mkdir()
    assert [c.read_state() for c in store.all()] == [{"v": 1}]
    store.clean()
    assert names(store) == ["step-00000001"]
    store.save(1, {"v": 2}, write_weights)
    (store.folder / ".replaced-step-00000001").mkdir()
    store.clean()
    assert [c.read_state() for c in store.all()] == [{"v": 2}]
    assert names(store) == ["step-00000001"]


def test_going_on_from_an_older_step_forgets_the_later_ones(store: CheckpointStore) -> None:
    for step in (95, 100):
        store.save(step, {}, write_weights)
    store.forget_after(90)
    store.save(91, {}, write_weights)
    assert [c.step for c in store.all()] == [91]
