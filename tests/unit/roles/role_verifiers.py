"""Verifiers that harm the process they run in, and such as come from Python; importable by worker processes."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Any

from roll_core.types import Verdict


class Deadly:
    """An async verifier, so it runs in its host; the response says what it does."""

    async def verify(self, response: str, reference: Any, *, prompt=None, rollout=None, **options: Any) -> Any:
        word, _, argument = response.partition(":")
        if word == "exit":
            os._exit(9)
        if word == "block":
            time.sleep(float(argument))
        if word == "leave":
            raise SystemExit(argument)
        await asyncio.sleep(float(argument) if word == "sleep" else 0)
        return Verdict.correct(response)


@dataclass(frozen=True)
class DeadlySpec:
    name: str = "deadly"
    version: str = "1.0"

    def build(self) -> Any:
        return Deadly()


class Threshold:
    """A verifier given as an object."""

    def __init__(self, least: float) -> None:
        self.least = least

    def verify(self, response: str, reference: Any, *, prompt=None, rollout=None, **options: Any) -> Verdict:
        return Verdict.correct(response) if float(response) >= self.least else Verdict.incorrect(response)
