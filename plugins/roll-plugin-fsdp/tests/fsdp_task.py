"""A rollfile: judges the share of digits in a response; its loss is found by ranks too."""

from __future__ import annotations

from typing import Any

from roll_core import policy_loss, verifier


@verifier
def digits(response: str, reference: Any) -> float:
    return sum(c.isdigit() for c in response) / len(response) if response else 0.0


@policy_loss(requires=["old_logprobs"])
def clipped(inputs: Any, *, clip: float = 0.2) -> Any:
    ratio = (inputs.logprobs - inputs.old_logprobs).exp()
    inputs.metric("policy/ratio", ratio)
    return -(inputs.advantages * ratio).minimum(inputs.advantages * ratio.clamp(1 - clip, 1 + clip))
