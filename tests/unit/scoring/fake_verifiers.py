"""Verifiers that misbehave on request: the response names what happens. Importable by worker processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from dataclasses import dataclass
from typing import Any, ClassVar

from roll_core.types import Verdict


class Faulty:
    """Judges "right" and "wrong"; other responses name a fault."""

    def verify(self, response: str, reference: Any, *, prompt=None, rollout=None, **options: Any) -> Any:
        match response.split(":", maxsplit=1)[0]:
            case "right":
                return Verdict.correct(response)
            case "wrong":
                return Verdict.incorrect(response)
            case "hang":
                time.sleep(3600)
            case "spin":  # holds the interpreter: no handler or thread of the worker could run
                import re

                re.match(r"(a+)+$", "a" * 64 + "b")
            case "exit":
                os._exit(3)
            case "sysexit":
                raise SystemExit(0)
            case "segfault":
                ctypes.string_at(0)
            case "raise":
                raise ValueError("no such thing")
            case "nan":
                return Verdict.correct(score=float("nan"))
            case "float":
                return float("nan")
            case "none":
                return None
            case "memory":
                return Verdict.correct(str(len(bytearray(64 << 30))))
            case "child":
                import subprocess

                subprocess.Popen(["sleep", "36001"])
                os._exit(4)
            case "print":
                print("x" * 10_000)
                return Verdict.correct()
            case "nap":
                time.sleep(0.4)
                return Verdict.correct(str(os.getpid()))
            case "pid":
                return Verdict.correct(str(os.getpid()))
            case "prompt":
                return Verdict.correct(f"{prompt.id} {rollout.index} {len(rollout.segments)} {options['mode']}")
        return Verdict.invalid()


class Slow:
    """An async verifier."""

    async def verify(self, response: str, reference: Any, *, prompt=None, rollout=None, **options: Any) -> Any:
        match response:
            case "hang":
                await asyncio.sleep(3600)
            case "stubborn":
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    await asyncio.sleep(4.0)
            case "raise":
                raise ConnectionError("judge is down")
            case "float":
                return 0.5
        await asyncio.sleep(0.05)
        return Verdict.correct(response)


class NoVerify:
    """Not a verifier."""


class Host:
    """An async verifier with a life: ready before the first verdict, closed at the end."""

    log: ClassVar[list[str]] = []

    async def prepare(self) -> None:
        self.log.append("ready")

    async def verify(self, response: str, reference: Any, *, prompt=None, rollout=None, **options: Any) -> Any:
        self.log.append(response)
        return Verdict.correct()

    async def close(self) -> None:
        self.log.append("closed")


class Patient:
    """Says that a verdict may take longer than the pool's deadline."""

    deadline_s = 30.0

    def verify(self, response: str, reference: Any, *, prompt=None, rollout=None, **options: Any) -> Any:
        time.sleep(1.2)
        return Verdict.correct()


class PatientAsync:
    """The same, async."""

    deadline_s = 30.0

    async def verify(self, response: str, reference: Any, *, prompt=None, rollout=None, **options: Any) -> Any:
        await asyncio.sleep(1.2)
        return Verdict.correct()


class Unready:
    """Says at the start that it cannot work here."""

    def prepare(self) -> None:
        raise RuntimeError("no jail holds on this machine")

    def verify(self, response: str, reference: Any, *, prompt=None, rollout=None, **options: Any) -> Any:
        return Verdict.correct()


class UnreadyAsync(Host):
    """The same, async."""

    async def prepare(self) -> None:
        raise RuntimeError("no model here")


@dataclass(frozen=True)
class Spec:
    """Builds the class of this module that it names."""

    factory: str = "Faulty"
    name: str = "faulty"
    version: str = "1.2"

    def build(self) -> Any:
        if self.factory == "Broken":
            raise ModuleNotFoundError("No module named 'sumpy'")
        if self.factory == "Stuck":
            time.sleep(3600)
        return globals()[self.factory]()
