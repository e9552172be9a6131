"""Examples for the conformance kit."""

from __future__ import annotations

from roll_core.testing import Cases

QUICK = {"probe": {"requirements": False, "hardware": False, "monitor": False, "git": False}}

CONFORMANCE = {"trackers/swanlab": Cases(options={"mode": "offline", "samples_every": 1, "settings": QUICK})}
