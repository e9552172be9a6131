"""Mixers, environments and algorithms: a right one of each kind, and one per check that fails it and no other."""

from __future__ import annotations

import math
import random

import numpy as np
from roll_kit_faults import Numbered

from roll_core.contracts import StepResult

# --- mixers -----------------------------------------------------------------------------------------------------------


class Mixer:
    """Weights by rows, independent draws."""

    def __init__(self, domains, sizes, seed, total_steps) -> None:
        self.domains, self.seed, self.total_steps = list(domains), seed, total_steps
        total = sum(sizes.values())
        self.shares = {d: sizes[d] / total for d in domains}
        self.drawn = 0

    def weights(self, step):
        return dict(self.shares)

    def draw(self, count, *, step, available):
        return [self._one(available) for _ in range(count)]

    def _one(self, available):
        self.drawn += 1
        rng = random.Random(f"{self.seed}/{self.drawn}")
        return rng.choices(list(available), [self.shares[d] for d in available])[0]

    def observe(self, groups):
        pass

    def state_dict(self):
        return {"drawn": self.drawn}

    def load_state_dict(self, state):
        self.drawn = state["drawn"]


class GrowsAtTheEnd(Mixer):
    def weights(self, step):
        return {d: w * (1.1 if step >= self.total_steps else 1.0) for d, w in self.shares.items()}


class NeverNothing(Mixer):
    def draw(self, count, *, step, available):
        return super().draw(max(count, 1), step=step, available=available)


class DrawsEvenly(Mixer):
    def _one(self, available):
        self.drawn += 1
        return random.Random(f"{self.seed}/{self.drawn}").choice(list(available))


class IgnoresEnds(Mixer):
    def _one(self, available):
        return super()._one(self.domains)


class Forgetful(Mixer):
    def load_state_dict(self, state):
        pass


class KeepsObjects(Mixer):
    def state_dict(self):
        return {"drawn": self.drawn, "domains": set(self.domains)}


class SeedsByHash(Mixer):
    def _one(self, available):
        self.drawn += 1
        rng = random.Random(hash(f"{self.seed}/{self.drawn}"))
        return rng.choices(list(available), [self.shares[d] for d in available])[0]


class ClearsGroups(Mixer):
    def observe(self, groups):
        for group in groups:
            group.rollouts.clear()


# --- environments -----------------------------------------------------------------------------------------------------


class Environment:
    """Ends at the third step."""

    def __init__(self) -> None:
        self.steps = 0

    def start(self):
        return "go"

    def step(self, action):
        if self.steps >= 3:
            raise RuntimeError("the episode is over")
        self.steps += 1
        return StepResult(f"step {self.steps}", reward=self._reward(), terminated=self.steps == 3)

    def _reward(self):
        return 1.0

    def close(self):
        pass


class AsyncEnvironment(Environment):
    async def start(self):
        return super().start()

    async def step(self, action):
        return super().step(action)


class EarnsNaN(Environment):
    def _reward(self):
        return math.nan


class Dreams(Numbered, Environment):
    def __init__(self) -> None:
        Numbered.__init__(self)
        self.steps = 0

    def start(self):
        return f"go {self.number}"


class GoesOn(Environment):
    def step(self, action):
        self.steps += 1
        return StepResult("more", terminated=self.steps >= 3)


class ClosesOnce(Environment):
    def close(self):
        if self.steps == -1:
            raise RuntimeError("closed already")
        self.steps = -1


# --- advantages -------------------------------------------------------------------------------------------------------


class Advantage:
    def __call__(self, inputs):
        return inputs.broadcast(inputs.rewards - inputs.group_mean(inputs.rewards))


class PerRollout(Advantage):
    def __call__(self, inputs):
        return inputs.rewards


class OffTheMask(Advantage):
    def __call__(self, inputs):
        centred = inputs.rewards - inputs.group_mean(inputs.rewards)
        return centred[inputs.token_rollout].astype(np.float32)


class DividesByNothing(Advantage):
    def __call__(self, inputs):
        centred = inputs.rewards - inputs.group_mean(inputs.rewards)
        with np.errstate(all="ignore"):
            return inputs.broadcast(np.where(centred == 0, 0, centred) + 0 * (1 / (inputs.group_size() - 1)))


class RawReward(Advantage):
    def __call__(self, inputs):
        return inputs.broadcast(inputs.rewards)


class RawRewardDeclared(RawReward):
    is_centered = False


class AgainstTheFirst(Advantage):
    def __call__(self, inputs):
        first = [inputs.rewards[np.flatnonzero(inputs.groups == g)[0]] for g in inputs.groups]
        return inputs.broadcast(inputs.rewards - np.array(first))


class ScalesByTheBatch(Advantage):
    def __call__(self, inputs):
        return super().__call__(inputs) / (1.0 + np.abs(inputs.rewards).max())


class ScalesByTheBatchDeclared(ScalesByTheBatch):
    scope = "batch"


class Overwrites(Advantage):
    def __call__(self, inputs):
        result = super().__call__(inputs)
        inputs.token_rewards[:] = 0
        return result


# --- policy losses ----------------------------------------------------------------------------------------------------


class Loss:
    """Ratio times advantage, clipped."""

    def __call__(self, inputs):
        ratio = (inputs.logprobs - inputs.old_logprobs).clamp(-20, 20).exp()
        clipped = ratio.clamp(0.8, 1.2)
        return (-inputs.advantages * ratio).maximum(-inputs.advantages * clipped)


class OneNumber(Loss):
    def __call__(self, inputs):
        return super().__call__(inputs).sum()


class DoublesFarGradients(Loss):
    def __call__(self, inputs):
        ratio = (inputs.logprobs - inputs.old_logprobs).clamp(-20, 20).exp()
        far = (ratio.detach() > 1.1).double()
        ratio.register_hook(lambda g: g * (1 + far))
        return -inputs.advantages * ratio


class CountsThePrompt(Loss):
    """Multiplies by the ratio of the unsampled tokens."""

    def __call__(self, inputs):
        log_ratio = (inputs.logprobs - inputs.old_logprobs) * ~inputs.mask
        sums = log_ratio.new_zeros(inputs.n_segments).index_add(0, inputs.segment_ids, log_ratio)
        return super().__call__(inputs) * inputs.per_token(sums).clamp(-20, 20).exp()


class WrongSign(Loss):
    def __call__(self, inputs):
        return -super().__call__(inputs)


class WrongSignDeclared(WrongSign):
    is_reinforce_at_one = False


class AveragesOverTheMicroBatch(Loss):
    """Right for three segments only."""

    def __call__(self, inputs):
        return super().__call__(inputs) * 3 / inputs.n_segments


class Unclamped(Loss):
    def __call__(self, inputs):
        return -inputs.advantages * (inputs.logprobs - inputs.old_logprobs).exp()


class WritesInPlace(Loss):
    def __call__(self, inputs):
        inputs.old_values.zero_()
        return super().__call__(inputs)
