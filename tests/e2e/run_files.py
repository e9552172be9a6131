"""Reads what a run left in its folder, the clock apart; for tests that compare runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

CLOCK = ("time/",)


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in row.items() if not k.startswith(CLOCK)}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [timeless(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def tokens_of(folder: Path) -> list[list[int]]:
    files = sorted((folder / "rollouts").glob("*.parquet"))
    return [row for file in files for row in pq.read_table(file, columns=["token_ids"])["token_ids"].to_pylist()]


def weights_of(folder: Path) -> dict[str, bytes]:
    newest = sorted((folder / "checkpoints").iterdir())[-1]
    files = (newest / "strategy").rglob("*.safetensors")
    return {str(f.relative_to(newest)): f.read_bytes() for f in files}
