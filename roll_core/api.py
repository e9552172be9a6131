"""Runs from Python: the same parts as the command line, components given by name or as objects and functions."""

from __future__ import annotations

import json
import logging
import shutil
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
from roll_core.files import replace_text
from roll_core.plugin.host import Host
from roll_core.report.plot import read_metrics, save_plot
from roll_core.report.summary import summarise, write_summary

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)


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


def run_to_end(assembly: Assembly, resume: Checkpoint | None = None, *, overwrite: bool = False) -> TrainedRun:
    """Train, then write summary and plot; also when the run fails, with what it came to.

    A run that is to be overwritten is removed only after everything of the new one could be built.

    Raises:
        ConfigError: a run already lies in the folder, and is neither resumed nor overwritten.
    """
    folder = assembly.config.run_folder
    is_taken = resume is None and (folder / RUN_FILE).is_file()
    if is_taken and not overwrite:
        raise ConfigError(
            f"{folder} already holds a run; go on with `roll resume {folder}`, replace it with --overwrite, or choose "
            "another name"
        )
    engine = assembly.engine(resume)
    if is_taken:
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_run_files(assembly, engine)
    try:
        engine.run()
    except BaseException:
        try:
            _report(assembly, engine.result)
        except OSError:
            logger.exception("summary and plot of the failed run could not be written")
        raise
    return _report(assembly, engine.result)


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
    assembly.processes.strategy.load(checkpoint.strategy_folder)
    assembly.processes.strategy.export(folder)
    assembly.processes.strategy.close()
