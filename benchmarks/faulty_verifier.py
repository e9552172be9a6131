"""A verifier that hangs, dies or eats memory when the response says so; workers of `scoring_load.py` import it."""

from __future__ import annotations

import os
import time
from typing import Any

from roll_core.types import Prompt, Rollout, Verdict

FAULTS = ("hang", "crash", "memory", "raise")


class FaultyVerifier:
    """Does what the response names."""

    def verify(
        self, response: str, reference: Any, *, prompt: Prompt | None = None, rollout: Rollout | None = None
    ) -> Verdict:
        """Hang, die, run out of memory or raise; anything else is correct."""
        match response:
            case "hang":
                time.sleep(3600)
            case "crash":
                os._exit(3)
            case "memory":
                hoard = []
                while True:
                    hoard.append(bytearray(1 << 28))
            case "raise":
                raise RuntimeError("the judge is down")
        return Verdict.correct(response)
