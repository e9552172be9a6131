"""Cases for the conformance checks of the built-in components."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roll_core.testing.cases import AdvantageCases, Cases, StrategyCases

_ROWS = [{"prompt": f"{i}+{i}=", "reference": str(2 * i)} for i in range(7)]


def _jsonl(folder: Path) -> Mapping[str, Any]:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in _ROWS), encoding="utf-8")
    return {"path": str(path)}


CONFORMANCE: dict[str, Cases] = {
    "advantages/reinforce": AdvantageCases(scope="segment", is_centered=False),
    "advantages/reinforce_pp": AdvantageCases(scope="batch", is_centered=False),
    "advantages/reinforce_pp_baseline": AdvantageCases(scope="batch"),
    "advantages/remax": AdvantageCases(scope="segment", is_centered=False),
    "advantages/gae": AdvantageCases(options={"whiten": False}, scope="segment", is_centered=False),
    "rewards/format_regex": Cases(options={"pattern": r"<answer>.*</answer>"}),
    "rewards/length": Cases(options={"budget": 64}),
    "sources/dataset": Cases(options=_jsonl),
    "sources/rows": Cases(options={"rows": _ROWS}),
    "train_strategies/local": StrategyCases(accumulation=({"micro_tokens": 4096}, {"micro_tokens": 16})),
}
