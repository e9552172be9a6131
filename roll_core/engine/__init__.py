"""The loop of a run, what it is made of, and what a checkpoint holds of it."""

from __future__ import annotations

from roll_core.engine.loop import Engine
from roll_core.engine.parts import Parts, RunResult

__all__ = ["Engine", "Parts", "RunResult"]
