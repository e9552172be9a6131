"""One right component per kind, and for every check a component that fails that check and no other."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import click
import pydantic

from roll_core.plugin.decorators import verifier
from roll_core.types import RewardRecord, Verdict


class Numbered:
    """Instances know how many came before them: a way to be different each time."""

    count: ClassVar[int] = 0

    def __init__(self) -> None:
        Numbered.count += 1
        self.number = Numbered.count


# --- verifiers --------------------------------------------------------------------------------------------------------


class Verifier:
    def verify(self, response, reference, **_):
        if response.strip() == reference:
            return Verdict.correct(response.strip())
        return Verdict.incorrect() if response.strip() else Verdict.invalid("no answer")


@verifier
def same_text(response: str, reference: str) -> bool:
    """A plain function, lifted."""
    return response.strip() == reference


class AsyncVerifier(Verifier):
    async def verify(self, response, reference, **_):
        return super().verify(response, reference)


class NeverRight(Verifier):
    def verify(self, response, reference, **_):
        return Verdict.incorrect(score=0.99)


class AnyDigit(Verifier):
    def verify(self, response, reference, **_):
        return Verdict.correct() if response.strip().isdigit() else Verdict.incorrect()


class LikesSilence(Verifier):
    def verify(self, response, reference, **_):
        return super().verify(response, reference) if response.strip() else Verdict.correct()


class LikesChatter(Verifier):
    def verify(self, response, reference, **_):
        return Verdict.correct() if "lazy dog" in response else super().verify(response, reference)


class LetsEscape(Verifier):
    def verify(self, response, reference, **_):
        return super().verify(response, reference) if response.strip() else Verdict.undecided("nothing there")


class SaysNaN(Verifier):
    def verify(self, response, reference, **_):
        verdict = super().verify(response, reference)
        if verdict.score == 0.0:
            object.__setattr__(verdict, "score", math.nan)
        return verdict


class Moody(Numbered, Verifier):
    def verify(self, response, reference, **_):
        right = response.strip() == reference
        mood = f"mood {self.number}"
        return Verdict.correct(detail=mood) if right else Verdict.incorrect(detail=mood)


class HoldsALambda(Verifier):
    def __init__(self) -> None:
        self.strip = lambda text: text.strip()


class ChokesOnNul(Verifier):
    def verify(self, response, reference, **_):
        if "\x00" in response:
            raise ValueError("embedded null byte")
        return super().verify(response, reference)


class Slow(Verifier):
    def verify(self, response, reference, **_):
        if len(response) > 100_000:
            time.sleep(30)
        return super().verify(response, reference)


class DiesOnLength(Verifier):
    def verify(self, response, reference, **_):
        if len(response) > 100_000:
            import os

            os._exit(3)
        return super().verify(response, reference)


class LooseConfig(pydantic.BaseModel):
    pass


class OddRequirements(Verifier):
    def requirements(self):
        return {1}


# --- rewards ----------------------------------------------------------------------------------------------------------


class Reward:
    def __call__(self, group):
        return [r.score for r in group.rollouts]


class OneShort(Reward):
    def __call__(self, group):
        return super().__call__(group)[1:]


class NaNForNothing(Reward):
    def __call__(self, group):
        return [r.score or math.nan for r in group.rollouts]


class ByPlace(Reward):
    def __call__(self, group):
        return [float(i) for i, _ in enumerate(group.rollouts)]


class WritesRecords(Reward):
    def __call__(self, group):
        for r in group.rollouts:
            r.rewards.append(RewardRecord("mine", 0.0))
        return super().__call__(group)


class ByInstance(Numbered, Reward):
    def __call__(self, group):
        return [float(self.number)] * len(group.rollouts)


# --- filters ----------------------------------------------------------------------------------------------------------


class Filter:
    """Drops groups whose scores are all equal."""

    def reject(self, group):
        return "equal" if len(set(group.scores.tolist())) < 2 else None

    def hopeless(self, scores, missing):
        return "equal" if missing == 0 and len({s for s in scores if s is not None}) < 2 else None


class EmptyReason(Filter):
    def reject(self, group):
        return "" if super().reject(group) else None

    hopeless = None


class NumberedReason(Numbered, Filter):
    def reject(self, group):
        return f"equal {self.number}" if super().reject(group) else None


class Reorders(Filter):
    def reject(self, group):
        group.rollouts.reverse()
        return super().reject(group)


class GivesUpEarly(Filter):
    def hopeless(self, scores, missing):
        return "equal so far" if len({s for s in scores if s is not None}) < 2 else None


# --- sources ----------------------------------------------------------------------------------------------------------


class Source:
    def __init__(self) -> None:
        self.rows = [{"prompt": f"{i}", "reference": i} for i in range(5)]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if index < 0:
            raise IndexError(index)
        return self.rows[index]


class SaysTooMuch(Source):
    """Its last row is not there."""

    def __getitem__(self, index):
        if index == 4:
            raise IndexError(index)
        return super().__getitem__(index)


class GivesTuples(Source):
    def __getitem__(self, index):
        return tuple(super().__getitem__(index).items()) if index == 0 else super().__getitem__(index)


class CountsFromTheEnd(Source):
    def __getitem__(self, index):
        return self.rows[index]


class FreshRows(Numbered, Source):
    def __init__(self) -> None:
        super().__init__()
        self.rows = [{"prompt": f"{self.number} {i}"} for i in range(5)]


# --- trackers ---------------------------------------------------------------------------------------------------------


class Tracker:
    def start(self, run):
        self.folder, self.last, self.is_done = run.folder, -1, False

    def log(self, step, metrics):
        (self.folder / "log.txt").write_text(str(dict(metrics)))

    def log_rollouts(self, step, groups):
        pass

    def finish(self, status):
        pass


class NeedsScores(Tracker):
    def log_rollouts(self, step, groups):
        sum(r.score for group in groups for r in group.rollouts)


class RoundsNumbers(Tracker):
    def log(self, step, metrics):
        for value in metrics.values():
            int(value)


class WantsOrder(Tracker):
    def log(self, step, metrics):
        if step <= self.last:
            raise ValueError("steps must rise")
        self.last = step


class FinishesOnce(Tracker):
    def finish(self, status):
        if self.is_done:
            raise RuntimeError("finished already")
        self.is_done = True


class PopsTimes(Tracker):
    def log(self, step, metrics):
        if "time/step_s" in metrics:
            metrics.pop("time/step_s")


class WritesHere(Tracker):
    def log_rollouts(self, step, groups):
        with open("rollouts.txt", "w") as file:
            file.write("here")


# --- models and commands ----------------------------------------------------------------------------------------------


@dataclass
class Model:
    cache: Any
    files: tuple[str, ...] = ("config.json", "tokenizer.json", "model.safetensors")

    def resolve(self, name):
        folder = self.cache / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in self.files:
            (folder / file).touch()
        return folder


def no_tokenizer(cache: Any):
    return Model(cache, ("config.json", "model.safetensors"))


def command():
    @click.command()
    def hello() -> None:
        """Say hello."""

    return hello


def wordless_command():
    @click.command()
    def hello() -> None:
        pass

    return hello
