"""Examples for the conformance kit."""

from __future__ import annotations

from roll_core.testing import Cases

CONFORMANCE = {
    "trackers/wandb": Cases(
        options={"mode": "offline", "samples_every": 1, "settings": {"silent": True, "x_disable_stats": True}}
    )
}
