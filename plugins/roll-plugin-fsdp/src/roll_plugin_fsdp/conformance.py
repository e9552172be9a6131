"""Cases for the conformance checks: two ranks on the CPU, started on this machine."""

from __future__ import annotations

from typing import Any

from roll_core.testing.cases import Cases, StrategyCases

_TWO_RANKS: dict[str, Any] = {"world_size": 2, "device": "cpu", "start_timeout_s": 240.0, "step_timeout_s": 240.0}

CONFORMANCE: dict[str, Cases] = {
    "train_strategies/fsdp": StrategyCases(
        options=_TWO_RANKS,
        accumulation=({"micro_tokens": 4096}, {"micro_tokens": 16}),
    )
}
