"""A verifier that misbehaves on request, for the tests of the adapters; importable by worker processes."""

import os
import time

from roll_core.types import Verdict


class Moody:
    """Accepts the reference; fails, dies or hangs when the response says so."""

    def verify(self, response, reference, *, prompt=None, rollout=None, bonus=0.0):
        match response:
            case "raise":
                raise RuntimeError("broken judge")
            case "die":
                os._exit(3)
            case "hang":
                time.sleep(60)
            case "prompt":
                return Verdict.correct(prompt.text or prompt.messages[-1]["content"])
        return Verdict.correct(response) if response == reference else Verdict.incorrect(response, score=bonus)
