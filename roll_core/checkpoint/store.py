"""The checkpoints of a run on disk: which there are, which hold, and how a new one comes to lie among them."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from roll_core.checkpoint.files import (
    MANIFEST_FILE,
    PENDING_FOLDER,
    STATE_FILE,
    STRATEGY_FOLDER,
    check_files,
    remove,
    sync_folder,
)
from roll_core.checkpoint.saving import PARTIAL, Saves, Saving, StrategyFiles, failures_explained
from roll_core.errors import CheckpointError

logger = logging.getLogger(__name__)

_PREFIX = "step-"
_REPLACED = ".replaced-"
"""The checkpoint of a step that is being written again; it counts while the new one has no name yet."""
_REMOVED = ".removed-"
_NAME = re.compile(rf"(?:{re.escape(_REPLACED)})?{_PREFIX}(\d+)")


@dataclass(slots=True)
class Checkpoint:
    """A checkpoint on disk."""

    folder: Path
    step: int
    _state: str | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def strategy_folder(self) -> Path:
        """Where the train strategy wrote its part."""
        return self.folder / STRATEGY_FOLDER

    @property
    def pending_folder(self) -> Path | None:
        """What had been rolled out and not yet trained; None when nothing was kept."""
        folder = self.folder / PENDING_FOLDER
        return folder if folder.is_dir() else None

    def read_state(self) -> dict[str, Any]:
        """Verify every file against the manifest (once per object) and return the engine's state.

        Raises:
            CheckpointError: a file is missing, truncated or altered; says which, and which checkpoints there are
                instead.
        """
        try:
            if self._state is None:
                check_files(self.folder, self.step)
                self._state = (self.folder / STATE_FILE).read_text(encoding="utf-8")
            state: dict[str, Any] = json.loads(self._state)
        except CheckpointError as error:
            raise CheckpointError(f"{error}; {self._instead()}") from error
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{self.folder / STATE_FILE} cannot be read: {type(error).__name__}: {error}; {self._instead()}"
            ) from error
        return state

    def _instead(self) -> str:
        others = [c.step for c in CheckpointStore(self.folder.parent).all() if c.step != self.step]
        if not others:
            return "there is no other checkpoint beside it"
        return f"resume from another one with --checkpoint; there are: {', '.join(map(str, others))}"


class CheckpointStore:
    """The checkpoints of one run.

    Args:
        folder: where they lie.
        keep: how many of the newest stay.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder = folder
        self.keep = keep
        self._saving: Saving | None = None

    def begin(
        self,
        step: int,
        state: Mapping[str, Any],
        strategy: Saves,
        write_pending: Callable[[Path], None] | None = None,
    ) -> Saving:
        """Begin the checkpoint of `step`: when this returns, everything in it is copied or written, and may change.

        A strategy that offers `begin_save(folder)` and `finish_save()` goes on writing after that; one that also
        offers `has_saved()` is asked whether it is done. State, checksums and the disk are a thread's business.

        Args:
            step: number of committed steps.
            state: the engine's JSON-able state.
            strategy: writes its files into the empty folder it is given.
            write_pending: the same for rollouts that were not trained yet.

        Raises:
            CheckpointError: writing failed, or another one is still being written; earlier checkpoints are untouched.
        """
        return self._begin(step, state, StrategyFiles.of(strategy), write_pending)

    def finish(self, saving: Saving) -> Checkpoint:
        """Wait until a checkpoint is whole.

        Raises:
            CheckpointError: writing failed; earlier checkpoints are untouched.
        """
        saving.wait()
        return Checkpoint(self._path(saving.step), saving.step)

    def save(
        self,
        step: int,
        state: Mapping[str, Any],
        write_strategy: Callable[[Path], None],
        write_pending: Callable[[Path], None] | None = None,
    ) -> Checkpoint:
        """Write the checkpoint of `step`; all of it or nothing. See `begin`.

        Raises:
            CheckpointError: writing failed; earlier checkpoints are untouched.
        """
        return self.finish(self._begin(step, state, StrategyFiles(write_strategy), write_pending))

    def all(self) -> list[Checkpoint]:
        """Complete checkpoints, oldest first; whether their files hold is not looked at."""
        return [c for c in self._found() if (c.folder / MANIFEST_FILE).is_file()]

    def latest(self) -> Checkpoint | None:
        """The newest complete checkpoint."""
        found = self.all()
        return found[-1] if found else None

    def newest_good(self) -> Checkpoint | None:
        """The newest checkpoint whose files hold against their checksums; None when there is none at all.

        Newer ones that do not hold are passed over with a warning. For going on without anybody to ask.

        Raises:
            CheckpointError: there are checkpoints, and none is good; says what is wrong with each.
        """
        wrong: list[str] = []
        for checkpoint in reversed(self._found()):
            try:
                checkpoint.read_state()
            except CheckpointError as error:
                wrong.append(str(error))
                logger.warning("checkpoint %s is passed over: %s", checkpoint.folder, error)
            else:
                return checkpoint
        if wrong:
            raise CheckpointError(f"no checkpoint in {self.folder} can be read: {' | '.join(wrong)}")
        return None

    def clean(self) -> None:
        """Remove what broken-off saves left; only for the run that writes here, before it does.

        A checkpoint that was being replaced when the run died takes its name back.

        Raises:
            CheckpointError: the folder cannot be changed.
        """
        try:
            for left in sorted(self.folder.glob(f"{_REPLACED}{_PREFIX}*")):
                final = left.with_name(left.name.removeprefix(_REPLACED))
                if not final.exists():
                    left.rename(final)
                    logger.warning("%s was being replaced when the run ended, and is back", final)
            for prefix in (PARTIAL, _REPLACED, _REMOVED):
                for left in sorted(self.folder.glob(f"{prefix}{_PREFIX}*")):
                    shutil.rmtree(left)
                    logger.info("%s, left by a save that was broken off, is removed", left)
        except OSError as error:
            raise CheckpointError(
                f"what a broken-off save left in {self.folder} cannot be removed: {error}; make the folder writable "
                "for this user, or choose another one"
            ) from error

    def forget_after(self, step: int) -> None:
        """Remove checkpoints of later steps, whole or not: a run that goes on from `step` makes its own.

        Raises:
            CheckpointError: one cannot be removed; it would be taken for this run's.
        """
        for later in self._found():
            if later.step > step:
                if not (later.folder / MANIFEST_FILE).is_file():
                    logger.warning("%s has no %s, so it is no checkpoint, and is removed", later.folder, MANIFEST_FILE)
                try:
                    remove(later.folder, _aside(later.folder))
                except OSError as error:
                    raise CheckpointError(
                        f"checkpoint {later.folder} is of a later step than the {step} that the run goes on from, and "
                        f"cannot be removed: {error}; remove it, or make {self.folder} writable for this user"
                    ) from error

    def _begin(
        self,
        step: int,
        state: Mapping[str, Any],
        files: StrategyFiles,
        write_pending: Callable[[Path], None] | None,
    ) -> Saving:
        if self._saving is not None and not self._saving.is_over:
            raise CheckpointError(f"the checkpoint of step {self._saving.step} is still being written; finish it first")
        final = self._path(step)
        partial = final.with_name(f"{PARTIAL}{final.name}")
        text = json.dumps(state)
        try:
            with failures_explained(partial, self._good):
                if partial.exists():
                    shutil.rmtree(partial)
                (partial / STRATEGY_FOLDER).mkdir(parents=True)
                if write_pending is not None:
                    (partial / PENDING_FOLDER).mkdir()
                    write_pending(partial / PENDING_FOLDER)
                files.begin(partial / STRATEGY_FOLDER)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        self._saving = Saving(
            step,
            partial,
            files=files,
            state=text,
            publish=lambda written: self._publish(written, final),
            good=self._good,
        )
        return self._saving

    def _publish(self, partial: Path, final: Path) -> None:
        """Give a written checkpoint its name, and let the old ones go."""
        replaced = final.with_name(f"{_REPLACED}{final.name}")
        if final.exists():
            shutil.rmtree(replaced, ignore_errors=True)
            final.rename(replaced)
        partial.rename(final)
        sync_folder(self.folder)
        shutil.rmtree(replaced, ignore_errors=True)
        for old in self.all()[: -self.keep]:
            try:
                remove(old.folder, _aside(old.folder))
            except OSError as error:  # it takes space, but the run and the new checkpoint are well
                logger.warning("the old checkpoint %s cannot be removed and goes on taking space: %s", old, error)

    def _found(self) -> list[Checkpoint]:
        """Everything with the name of a checkpoint, oldest first; one step once."""
        if not self.folder.is_dir():
            return []
        found: dict[int, Path] = {}
        for path in sorted(self.folder.iterdir(), reverse=True):
            match = _NAME.fullmatch(path.name)
            if match is not None and path.is_dir():
                found.setdefault(int(match[1]), path)
        return [Checkpoint(found[step], step) for step in sorted(found)]

    def _good(self) -> Path | None:
        latest = self.latest()
        return None if latest is None else latest.folder

    def _path(self, step: int) -> Path:
        return self.folder / f"{_PREFIX}{step:08d}"


def _aside(folder: Path) -> Path:
    return folder.with_name(f"{_REMOVED}{folder.name}")
