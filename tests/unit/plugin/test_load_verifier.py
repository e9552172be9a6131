"""Verifiers as plain callables."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from roll_core import Status, load_verifier
from roll_core.errors import ConfigError, UnknownNameError

_numbers = count(1)
CODE = """
import asyncio
from roll_core.types import Verdict

class Judge:
    def __init__(self, *, scale: float = 1.0):
        self.scale = scale

    async def verify(self, response, reference, *, prompt=None, rollout=None, **options):
        await asyncio.sleep(0)
        if options.get("give_up"):
            return Verdict.undecided("asked to")
        return Verdict.incorrect(score=self.scale * (response == reference) / 2)

@hookimpl
def roll_register_verifiers():
    return [Component("late", __name__ + ":Judge"), Component("bool_like", __name__ + ":Plain")]

class Plain:
    def verify(self, response, reference, **options):
        return response == reference
"""


@pytest.fixture(autouse=True)
def _plugin(install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("judges", CODE, version="4.2")
    # the host is kept per value of the variable: another value for every test makes it look again
    monkeypatch.setenv("ROLL_PLUGINS", "judges," * next(_numbers))


def test_an_async_verifier_is_called_like_a_function() -> None:
    judge = load_verifier("late", scale=0.5)
    verdict = judge("a", "a")
    assert (verdict.status, verdict.score) == (Status.INCORRECT, 0.25)
    assert (verdict.verifier, verdict.version) == ("late", "4.2")
    assert verdict.seconds > 0
    assert judge("a", "a", give_up=True).status is Status.UNDECIDED
    assert judge.verify("a", "b").score == 0.0
    assert repr(judge) == "<verifier late 4.2>"


def test_it_works_inside_a_running_loop() -> None:
    judge = load_verifier("judges/late")

    async def notebook() -> float | None:
        return judge("a", "a").score

    assert asyncio.run(notebook()) == 0.5


def test_other_results_become_verdicts() -> None:
    assert load_verifier("bool_like")("a", "a").status is Status.CORRECT


def test_errors() -> None:
    with pytest.raises(UnknownNameError, match=r"did you mean 'late'"):
        load_verifier("lat")
    with pytest.raises(ConfigError, match=r"unknown option 'scal'; did you mean 'scale'"):
        load_verifier("late", scal=1)
