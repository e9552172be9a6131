"""Every kind of process is killed while a run trains; it ends by itself, its books closed, its result the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from chaos import Chaos
from run_files import rows_of, tokens_of, weights_of

STEPS = 30
PAUSING = {"rollfile": str(Path(__file__).parent / "pausing.py")}
EVENTS = [
    "rollout", "judge", "actor", "verifiers", "driver", "rollout", "actor", "judge", "rollout", "driver", "verifiers",
]  # fmt: skip


@pytest.fixture
def processes(base_config: dict[str, Any]) -> dict[str, Any]:
    """A run in which everything that can be has a process of its own: two of each role."""
    return base_config | {
        "steps": STEPS,
        "checkpoint": {"every": 1, "keep": 2},
        "cluster": {"executor": "local"},
        "rollout": base_config["rollout"] | {"backend": {"use": "local", "precision": "float32", "replicas": 2}},
        "train": base_config["train"] | {"strategy": {"use": "fsdp", "world_size": 2, "precision": "float32"}},
        "scoring": {"hosts": 2, "workers": 1},
        "eval": {"at_start": False, "at_end": False},
        "faults": {"supervise": True, "wait_s": 0, "restarts": 5},
    }


def start(config: dict[str, Any], tmp_path: Path) -> subprocess.Popen[str]:
    file = tmp_path / f"{Path(config['folder']).name}.yaml"
    file.write_text(yaml.safe_dump(config))
    with (tmp_path / f"{Path(config['folder']).name}.err").open("w") as errors:
        command = [sys.executable, "-m", "roll_core.cli.main", "train", str(file)]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, text=True)


def check_books(folder: Path) -> None:
    """Every prompt that was drawn is trained once, dropped or under way; every step has its groups."""
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    ledger = json.loads((newest / "state.json").read_text())["ledger"]
    for tally in ledger["totals"].values():
        under_way = sum(domain == tally.get("domain") for _, domain, *_ in ledger["open"])
        assert tally["drawn"] >= tally["trained"] + sum(tally["dropped"].values()) + under_way
    drawn = sum(tally["drawn"] for tally in ledger["totals"].values())
    done = sum(tally["trained"] + sum(tally["dropped"].values()) for tally in ledger["totals"].values())
    assert drawn == done + len(ledger["open"])
    trained: Counter[int] = Counter()
    for file in sorted((folder / "rollouts").glob("*.parquet")):
        trained.update(set(pq.read_table(file, columns=["ticket"])["ticket"].to_pylist()))
    assert set(trained.values()) == {1}
    assert len(trained) == done


def test_a_synchronous_run_comes_to_the_same_whatever_is_killed(processes: dict[str, Any], tmp_path: Path) -> None:
    with start(processes | {"folder": str(tmp_path / "straight")}, tmp_path) as undisturbed:
        assert undisturbed.wait(300) == 0, (tmp_path / "straight.err").read_text()
    with start(processes | {"folder": str(tmp_path / "chaos"), "plugins": PAUSING}, tmp_path) as watcher:
        chaos = Chaos(tmp_path / "chaos", watcher, seed=1)
        chaos.run(EVENTS)
    assert watcher.returncode == 0, (tmp_path / "chaos.err").read_text()
    assert chaos.killed == Counter(EVENTS)
    assert [row["step"] for row in rows_of(tmp_path / "chaos")] == list(range(1, STEPS + 1))
    check_books(tmp_path / "chaos")
    assert tokens_of(tmp_path / "chaos") == tokens_of(tmp_path / "straight")
    assert weights_of(tmp_path / "chaos") == weights_of(tmp_path / "straight")


def test_an_asynchronous_run_keeps_its_books_whatever_is_killed(processes: dict[str, Any], tmp_path: Path) -> None:
    rollout = processes["rollout"] | {"mode": "async", "max_staleness": 2}
    config = processes | {
        "folder": str(tmp_path / "chaos"),
        "steps": 16,
        "plugins": PAUSING,
        "rollout": rollout,
        "algorithm": {"loss": "decoupled_ppo"},
    }
    with start(config, tmp_path) as watcher:
        chaos = Chaos(tmp_path / "chaos", watcher, seed=2)
        chaos.run(EVENTS[:6])
    assert watcher.returncode == 0, (tmp_path / "chaos.err").read_text()
    assert chaos.killed == Counter(EVENTS[:6])
    assert [row["step"] for row in rows_of(tmp_path / "chaos")] == list(range(1, 17))
    check_books(tmp_path / "chaos")
