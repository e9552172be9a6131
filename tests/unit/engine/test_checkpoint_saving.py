"""Checkpoints are written beside the training: one at a time, nothing half-written counts, errors come out later."""

from __future__ import annotations

import errno
import logging
import threading
from pathlib import Path

import pytest

from roll_core.checkpoint import CheckpointStore, Saver, files
from roll_core.errors import BackendError, CheckpointError

WAIT_S = 60.0


class Plain:
    """A strategy that writes at once."""

    def save(self, folder: Path) -> None:
        (folder / "weights.bin").write_bytes(b"w" * 1000)


class Background(Plain):
    """A strategy that copies at once and writes when it is let."""

    def __init__(self) -> None:
        self.weights = b"w" * 1000
        self.let = threading.Event()
        self.error: Exception | None = None
        self.calls: list[str] = []
        self._writer = threading.Thread()

    def begin_save(self, folder: Path) -> None:
        self.calls.append("begin")
        copied = self.weights

        def write() -> None:
            self.let.wait(WAIT_S)
            (folder / "weights.bin").write_bytes(copied)

        self._writer = threading.Thread(target=write)
        self._writer.start()

    def finish_save(self) -> None:
        self.calls.append("finish")
        self._writer.join(WAIT_S)
        if self.error is not None:
            raise self.error


class Telling(Background):
    """One that also says whether it is done."""

    def has_saved(self) -> bool:
        return not self._writer.is_alive()

    def wait(self) -> None:
        self._writer.join(WAIT_S)


class Disk:
    """Holds fsync up until it is let, and may fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.let, self.reached = threading.Event(), threading.Event()
        self.threads: set[str] = set()
        self.error: OSError | None = None
        monkeypatch.setattr(files.os, "fsync", self._fsync)

    def _fsync(self, descriptor: int) -> None:
        self.threads.add(threading.current_thread().name)
        self.reached.set()
        self.let.wait(WAIT_S)
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "checkpoints", keep=1)


def names(store: CheckpointStore) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir())


def test_the_folder_has_its_name_only_when_all_of_it_is_on_disk(store: CheckpointStore, disk: Disk) -> None:
    state = {"ids": [1]}
    saving = store.begin(3, state, Plain(), lambda folder: (folder / "pending.json").write_text("{}") and None)
    state["ids"].append(2)
    assert disk.reached.wait(WAIT_S)
    assert names(store) == [".partial-step-00000003"] and store.latest() is None
    assert saving.is_waiting and not saving.is_over
    disk.let.set()
    checkpoint = store.finish(saving)
    assert names(store) == ["step-00000003"]
    assert checkpoint.read_state() == {"ids": [1]}
    assert checkpoint.pending_folder is not None
    assert saving.is_over and not saving.is_waiting and saving.size > 1000
    assert threading.current_thread().name not in disk.threads


def test_a_strategy_writes_on_while_training_changes_the_weights(store: CheckpointStore) -> None:
    strategy = Background()
    saving = store.begin(1, {}, strategy)
    strategy.weights = b"later" * 200
    assert strategy.calls == ["begin"]
    strategy.let.set()
    checkpoint = store.finish(saving)
    assert (checkpoint.strategy_folder / "weights.bin").read_bytes() == b"w" * 1000
    assert strategy.calls == ["begin", "finish"]
    assert store.finish(saving) == checkpoint and strategy.calls == ["begin", "finish"]


def test_only_one_is_written_at_a_time(store: CheckpointStore) -> None:
    strategy = Background()
    saving = store.begin(1, {}, strategy)
    with pytest.raises(CheckpointError, match="step 1 is still being written"):
        store.begin(2, {}, strategy)
    strategy.let.set()
    store.finish(saving)
    store.finish(store.begin(2, {}, strategy))
    assert names(store) == ["step-00000002"]


@pytest.mark.parametrize("where", ["strategy", "files"])
def test_an_error_comes_out_at_finish_and_leaves_the_previous_one(
    store: CheckpointStore, disk: Disk, where: str
) -> None:
    disk.let.set()
    store.save(1, {"step": 1}, Plain().save)
    strategy = Background()
    strategy.let.set()
    full = OSError(errno.ENOSPC, "No space left on device")
    if where == "strategy":
        strategy.error = CheckpointError("cannot write the training state")
        strategy.error.__cause__ = full
    else:
        disk.error = full
    saving = store.begin(2, {}, strategy)
    with pytest.raises(CheckpointError, match=r"step-00000002.*make room on that disk.*step-00000001 is still good"):
        store.finish(saving)
    assert saving.is_over
    assert names(store) == ["step-00000001"]
    disk.error = strategy.error = None
    assert store.finish(store.begin(2, {"step": 2}, strategy)).read_state() == {"step": 2}


def test_an_error_names_the_file_and_what_to_do(store: CheckpointStore, disk: Disk) -> None:
    disk.let.set()
    disk.error = OSError(errno.EROFS, "Read-only file system")
    with pytest.raises(CheckpointError, match=r"state\.json.*checkpoints writable for this user"):
        store.save(1, {}, Plain().save)


def test_a_lost_worker_is_raised_as_it_is(store: CheckpointStore) -> None:
    strategy = Background()
    strategy.let.set()
    strategy.error = BackendError("the ranks are gone")
    with pytest.raises(BackendError, match="the ranks are gone"):
        store.finish(store.begin(1, {}, strategy))
    assert names(store) == []


def test_what_is_abandoned_leaves_no_checkpoint(store: CheckpointStore, disk: Disk) -> None:
    saver = Saver(store, Plain())
    saver.begin(1, {})
    assert disk.reached.wait(WAIT_S)
    threading.Timer(0.05, disk.let.set).start()
    saver.abandon()
    assert not saver.is_busy
    assert names(store) in ([], ["step-00000001"])  # whole, if it was past the last file
    strategy = Background()
    saver = Saver(store, strategy)
    saver.begin(2, {})
    saver.abandon()
    strategy.let.set()
    assert strategy.calls == ["begin"] and not saver.is_saved(2)


# --- the engine's view ---


def test_polling_never_waits_for_a_strategy_that_tells(store: CheckpointStore, disk: Disk) -> None:
    strategy = Telling()
    saver = Saver(store, strategy)
    saver.begin(1, {})
    assert saver.poll() is None and strategy.calls == ["begin"]
    strategy.let.set()
    strategy.wait()
    assert saver.poll() is None and strategy.calls == ["begin", "finish"]
    assert disk.reached.wait(WAIT_S)
    assert saver.poll() is None and saver.is_busy
    disk.let.set()
    checkpoint = saver.finish()
    assert checkpoint is not None and checkpoint.step == 1
    assert not saver.is_busy and saver.is_saved(1) and saver.finish() is None and saver.poll() is None
    metrics = saver.take_metrics()
    assert metrics["time/checkpoint_write_s"] > 0 and metrics["time/checkpoint_s"] > 0
    assert saver.take_metrics() == {}


def test_polling_completes_a_strategy_that_does_not_tell(store: CheckpointStore) -> None:
    strategy = Background()
    strategy.let.set()
    saver = Saver(store, strategy)
    saver.begin(1, {})
    found = None
    while found is None:
        found = saver.poll()
    assert found.step == 1 and strategy.calls == ["begin", "finish"]


def test_a_run_that_goes_on_says_so_counts_and_tries_again(
    store: CheckpointStore, disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.let.set()
    saver = Saver(store, Plain(), on_error="continue")
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    for step in (1, 2):
        saver.begin(step, {})
        assert saver.finish() is None and not saver.is_busy
    assert saver.take_metrics()["checkpoint/failed"] == 2
    assert "2 failed in a row" in caplog.text and "make room" in caplog.text
    saver.begin(3, {})
    with pytest.raises(CheckpointError, match="No space left"):
        saver.finish(is_last=True)
    disk.error = None
    saver.begin(4, {})
    assert saver.finish() is not None
    assert saver.take_metrics()["checkpoint/failed"] == 3


def test_a_run_that_is_to_stop_stops(store: CheckpointStore, disk: Disk) -> None:
    disk.let.set()
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    saver = Saver(store, Plain())
    saver.begin(1, {})
    with pytest.raises(CheckpointError, match="No space left"):
        saver.finish()
    assert not saver.is_busy
    (store.folder / ".partial-step-00000002").write_text("in the way")
    with pytest.raises(CheckpointError, match="step-00000002"):
        saver.begin(2, {})


def test_closing_completes_what_is_under_way_and_never_raises(
    store: CheckpointStore, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = Background()
    strategy.let.set()
    saver = Saver(store, strategy)
    saver.begin(1, {})
    saver.close()
    assert saver.is_saved(1)
    strategy.error = BackendError("the ranks are gone")
    saver.begin(2, {})
    with caplog.at_level(logging.WARNING):
        saver.close()
    assert "the ranks are gone" in caplog.text and saver.is_saved(1)
