"""Runs from Python: the same parts as the command line, components given by name or as objects and functions."""

from __future__ import annotations

import gc
import json
import logging
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from roll_core.assembly import CONFIG_FILE, RUN_FILE, Assembly
from roll_core.checkpoint import Checkpoint
from roll_core.config.load import load_config, plain
from roll_core.engine import Engine, RunResult
from roll_core.errors import CheckpointError, ConfigError
from roll_core.evaluation import DomainResult
from roll_core.files import InUseError, held, replace_text
from roll_core.plugin.host import Host
from roll_core.recovery import LOSSES, Patience
from roll_core.report.plot import read_metrics, save_plot
from roll_core.report.summary import summarise, write_summary
from roll_core.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

LOCK_FILE = "run.lock"
"""Held by the process that trains."""


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run that has ended: its folder, its result, and the summary that `summary.json` holds."""

    folder: Path
    result: RunResult
    summary: Mapping[str, Any]
    plot: Path | None

    def table(self) -> Any:
        """Held-out accuracy before and after, as a rich table."""
        from roll_core.report.summary import summary_table

        return summary_table(self.summary)


def train(
    config: Path | str | None = None,
    *overrides: str,
    overwrite: bool = False,
    resume: bool = False,
    **sections: Any,
) -> TrainedRun:
    """Train, from a YAML file or from keyword arguments. Works in a notebook too.

    Args:
        config: a YAML file; None takes everything from `sections`.
        overrides: `key=value` as on the command line.
        overwrite: remove a run that already lies in the folder.
        resume: go on from the newest checkpoint in the folder; give the same config again (more `steps` are allowed).
        sections: top-level sections of the config; anything that says `use` may be an object or a function.

    Returns:
        The finished run.

    Raises:
        ConfigError: anything is wrong with the config, the data or the plugins; nothing has been loaded then.
        CheckpointError: `resume` found no checkpoint.
    """
    if overwrite and resume:
        raise ConfigError("a run is either overwritten or resumed")
    loaded = load_config(Path(config) if config is not None else None, overrides, base=sections)
    plugins = loaded.config.plugins
    host = Host.discover(
        blocked=plugins.blocked,
        required=plugins.required,
        rollfile=Path(plugins.rollfile) if plugins.rollfile is not None else None,
        strict=loaded.config.strict,
    )
    assembly = Assembly(loaded, host)
    if resume:
        checkpoint = find_checkpoint(assembly, None)
        host.verify_manifest(checkpoint.read_state()["plugins"])
        return run_to_end(assembly, checkpoint)
    return run_to_end(assembly, overwrite=overwrite)


def run_to_end(
    assembly: Assembly, resume: Checkpoint | None = None, *, overwrite: bool = False, may_exit: bool = False
) -> TrainedRun:
    """Train, then write summary and plot; also when the run fails, with what it came to.

    A run that is to be overwritten is removed only after everything of the new one could be built. One that loses a
    process which cannot be replaced in place goes on from its newest checkpoint, in parts that are built anew.

    Args:
        assembly: the run, nothing of it built yet.
        resume: checkpoint to go on from.
        overwrite: replace a run that lies in the folder.
        may_exit: this process exists for the run alone, so one that stands still for good may end it.

    Raises:
        ConfigError: a run already lies in the folder, and is neither resumed nor overwritten; or it is going on now.
    """
    folder = assembly.config.run_folder
    is_taken = resume is None and (folder / RUN_FILE).is_file()
    if is_taken and not overwrite:
        raise ConfigError(
            f"{folder} already holds a run; go on with `roll resume {folder}`, replace it with --overwrite, or choose "
            "another name"
        )
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder):
        watch = Watch(folder, limit_s=assembly.config.faults.stage_timeout_s, may_exit=may_exit)
        attempt = _Attempt(assembly, watch, resume)
        attempt.build()
        if is_taken:
            _empty(folder)
        with watch.running():
            attempt = _until_it_ends(attempt, watch)
        return attempt.report()


class _Attempt:
    """A run from one checkpoint on, until it ends or is lost."""

    def __init__(self, assembly: Assembly, watch: Watch, resume: Checkpoint | None) -> None:
        self.assembly = assembly
        self._watch = watch
        self._resume = resume
        self._engine: Engine | None = None

    @property
    def step(self) -> int:
        """Committed steps."""
        at_start = self._resume.step if self._resume is not None else 0
        return self._engine.step if self._engine is not None else at_start

    def build(self) -> Engine:
        """Everything that the run is made of; on failure nothing of it is left."""
        if self._engine is None:
            try:
                with self._watch.stage("building the run", step=self.step, is_blocking=True):
                    self._engine = self.assembly.engine(self._watch, self._resume)
            except BaseException:
                self.assembly.close()
                raise
        return self._engine

    def run(self) -> Exception | None:
        """Train to the end: None, or the loss that ended it. Whatever else goes wrong is raised."""
        try:
            engine = self.build()
            write_run_files(self.assembly, engine)
            engine.run()
        except LOSSES as error:
            self._report_failure()
            return error
        except BaseException:
            self._report_failure()
            raise
        return None

    def report(self) -> TrainedRun:
        """Write summary and plot."""
        return _report(self.assembly, self.build().result)

    def _report_failure(self) -> None:
        if self._engine is None:
            return
        try:
            self.report()
        except OSError:
            logger.exception("summary and plot of the failed run could not be written")


def _until_it_ends(attempt: _Attempt, watch: Watch) -> _Attempt:
    """Run, and after a loss wait and run again from the newest good checkpoint; returns the attempt that ended.

    Raises:
        WorkerLost, Stuck, PlacementError: it was lost too often in a row.
    """
    patience = Patience(attempt.assembly.config.faults)
    while (lost := attempt.run()) is not None:
        wait_s = patience.after_loss(attempt.step)
        if wait_s is None:
            lost.add_note(patience.verdict)
            raise lost
        checkpoint = attempt.assembly.checkpoints.newest_good()
        start = f"step {checkpoint.step}" if checkpoint is not None else "the beginning, for want of a checkpoint"
        logger.warning("lost at step %d: %s\ngoing on from %s in %.0f s", attempt.step, lost, start, wait_s)
        time.sleep(wait_s)
        attempt = _Attempt(attempt.assembly.again(), watch, checkpoint)
        gc.collect()  # the models of the last attempt, which hang in cycles
        watch.renew()
        watch.update(restarts=patience.count)
    return attempt


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep a second process out of a run's folder."""
    try:
        with held(folder / LOCK_FILE):
            yield
    except InUseError as error:
        raise ConfigError(
            f"{folder} holds a run that is going on ({error.strerror}); see `roll status {folder}`, or choose another "
            "name"
        ) from error
    finally:
        if [path.name for path in folder.iterdir()] == [LOCK_FILE]:  # nothing came of it
            shutil.rmtree(folder)


def _empty(folder: Path) -> None:
    """Remove a run, but for its lock."""
    for path in folder.iterdir():
        if path.name == LOCK_FILE:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _report(assembly: Assembly, result: RunResult) -> TrainedRun:
    folder = assembly.config.run_folder
    summary = summarise(result, assembly.data.held_out)
    write_summary(summary, folder)
    first = result.steps - len(result.metrics) + 1
    rows = read_metrics(folder) or [{"step": i} | m for i, m in enumerate(result.metrics, first)]
    return TrainedRun(folder, result, summary, save_plot(rows, folder, title=assembly.config.name))


def write_run_files(assembly: Assembly, engine: Engine) -> None:
    """Record what ran: id, plugins and the resolved config."""
    run = engine.parts.run
    folder = run.folder
    facts = {"run_id": run.run_id, "name": run.name, "plugins": dict(run.plugins)}
    replace_text(folder / CONFIG_FILE, yaml.safe_dump(plain(assembly.loaded.raw), sort_keys=False))
    replace_text(folder / RUN_FILE, json.dumps(facts, indent=2) + "\n")


def find_checkpoint(assembly: Assembly, step: int | None) -> Checkpoint:
    """The newest checkpoint of a run, or that of `step`.

    Raises:
        CheckpointError: there is none.
    """
    found = assembly.checkpoints.all()
    chosen = [c for c in found if step is None or c.step == step]
    if not chosen:
        have = ", ".join(str(c.step) for c in found) or "none"
        raise CheckpointError(
            f"no checkpoint{'' if step is None else f' of step {step}'} in {assembly.checkpoints.folder}; have: {have}"
        )
    return chosen[-1]


async def evaluate(assembly: Assembly, checkpoint: Checkpoint | None) -> dict[str, DomainResult]:
    """Evaluate the start model, or the weights of `checkpoint`, on the held-out data.

    Raises:
        ConfigError: no domain has `eval_data`.
    """
    evaluator = assembly.evaluator
    if evaluator is None:
        raise ConfigError("no domain has eval_data, so there is nothing to evaluate (domains.<name>.eval_data)")
    try:
        await assembly.processes.verifiers.start()
        if checkpoint is not None:
            checkpoint.read_state()
            assembly.processes.strategy.load(checkpoint.strategy_folder)
            assembly.processes.backend.sync_weights(assembly.processes.strategy.weight_source(), checkpoint.step)
            assembly.processes.strategy.close()
        return await evaluator.run()
    finally:
        await assembly.processes.verifiers.close()
        await assembly.processes.backend.close()
        assembly.close()


def export(assembly: Assembly, checkpoint: Checkpoint, folder: Path) -> None:
    """Write the policy of `checkpoint` to `folder` in Hugging Face format, adapters merged.

    Raises:
        ConfigError: the folder exists and is not empty.
        CheckpointError: the checkpoint is damaged.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; export into a new folder")
    checkpoint.read_state()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        assembly.processes.strategy.load(checkpoint.strategy_folder)
        assembly.processes.strategy.export(folder)
    finally:
        assembly.close()
