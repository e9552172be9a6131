"""Checks of `contracts.Environment`."""

from __future__ import annotations

import asyncio
import inspect
import math
from typing import Any

from roll_core.contracts import StepResult
from roll_core.testing.cases import EnvironmentCases
from roll_core.testing.kit import CheckFailed, CheckSkipped, Subject, check


async def _settle(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


async def _episode(environment: Any, cases: EnvironmentCases) -> tuple[str, list[StepResult]]:
    first = await _settle(environment.start())
    results: list[StepResult] = []
    for number in range(cases.max_steps):
        action = cases.actions[min(number, len(cases.actions) - 1)]
        results.append(await _settle(environment.step(action)))
        if results[-1].terminated or results[-1].truncated:
            break
    return first, results


def _play(subject: Subject) -> tuple[str, list[StepResult]]:
    cases = subject.require_cases(EnvironmentCases)

    async def run() -> tuple[str, list[StepResult]]:
        environment = subject.build()
        try:
            return await _episode(environment, cases)
        finally:
            await _settle(environment.close())

    return asyncio.run(run())


@check("environments")
def gives_well_formed_steps(subject: Subject) -> None:
    """It starts with text, and every step is a `StepResult` with text and a finite reward."""
    first, results = _play(subject)
    if not isinstance(first, str):
        raise CheckFailed(f"start() returned {first!r}: return the first observation as text")
    for number, result in enumerate(results):
        if not isinstance(result, StepResult) or not isinstance(result.observation, str):
            raise CheckFailed(f"step {number} returned {result!r}: return a StepResult whose observation is text")
        if not math.isfinite(result.reward):
            raise CheckFailed(f"step {number} gave the reward {result.reward!r}: rewards are finite")


@check("environments")
def is_deterministic(subject: Subject) -> None:
    """The same seed, task and actions give the same observations and rewards."""
    once, again = _play(subject), _play(subject)
    if repr(once) != repr(again):
        raise CheckFailed("two episodes with the same options and actions differ: draw everything from the seed")


@check("environments")
def refuses_a_step_after_the_end(subject: Subject) -> None:
    """Acting after the episode has ended is an error, not a silent extra step."""
    cases = subject.require_cases(EnvironmentCases)

    async def run() -> None:
        environment = subject.build()
        try:
            _, results = await _episode(environment, cases)
            if not (results[-1].terminated or results[-1].truncated):
                raise CheckSkipped(f"the actions of its cases do not end the episode within {cases.max_steps} steps")
            try:
                extra = await _settle(environment.step(cases.actions[-1]))
            except Exception:  # noqa: BLE001  # any error will do
                return
            raise CheckFailed(f"a step after the end returned {extra!r}: raise an error")
        finally:
            await _settle(environment.close())

    asyncio.run(run())


@check("environments")
def closes_twice(subject: Subject) -> None:
    """Closing a second time, or before the start, does no harm."""

    async def run() -> None:
        for is_started in (False, True):
            environment = subject.build()
            if is_started:
                await _settle(environment.start())
            await _settle(environment.close())
            try:
                await _settle(environment.close())
            except Exception as error:
                raise CheckFailed(f"a second close() raised {type(error).__name__}: {error}") from error

    asyncio.run(run())
