"""Examples for the conformance kit."""

from __future__ import annotations

from roll_core.testing import Cases

CONFORMANCE = {"trackers/tensorboard": Cases(options={"samples_every": 1})}
