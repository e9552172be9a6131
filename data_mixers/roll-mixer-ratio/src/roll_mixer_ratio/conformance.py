"""Examples for the conformance kit."""

from __future__ import annotations

from roll_core.testing import Cases

CONFORMANCE = {
    "mixers/ratio": Cases(
        options={
            "schedule": [
                {"step": 0, "weights": {"easy": 0.7, "middle": 0.2, "hard": 0.1}},
                {"step": 40, "weights": {"easy": 0.2, "middle": 0.2, "hard": 0.6}},
            ]
        }
    )
}
