"""Checks of `contracts.Mixer`."""

from __future__ import annotations

import json
import math
from typing import Any

from roll_core.testing.child import ChildCrashedError, answers
from roll_core.testing.context import context_for
from roll_core.testing.fakes import make_group
from roll_core.testing.kit import CheckFailed, CheckSkipped, Subject, check
from roll_core.testing.snapshot import snapshot
from roll_core.types import RolloutGroup

_STEPS, _COUNT = 60, 16
_SIGMAS = 5.0
"""Allowed distance of a share from its target, in standard deviations of independent draws."""


def _context(subject: Subject) -> dict[str, Any]:
    own = subject.cases.context if subject.cases is not None else {}
    return {**context_for("mixers", subject.folder), **own}


def _outcomes(domains: list[str], step: int) -> list[RolloutGroup]:
    scores = ([0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.5])
    return [make_group(scores[(i + step) % 4], ticket=10 * step + i, domain=d) for i, d in enumerate(domains)]


def _play(mixer: Any, domains: list[str], steps: range) -> list[list[str]]:
    stream = []
    for step in steps:
        stream.append(list(mixer.draw(_COUNT, step=step, available=domains)))
        mixer.observe(_outcomes(domains, step))
    return stream


@check("mixers")
def has_normalised_weights(subject: Subject) -> None:
    """Target shares are non-negative, sum to 1 and name the run's domains, at every step."""
    context = _context(subject)
    domains, mixer = list(context["domains"]), subject.build()
    last = int(context["total_steps"])
    for step in (0, 1, last // 2, last - 1, last, 10 * last):
        weights = mixer.weights(step)
        unknown = sorted(set(weights) - set(domains))
        if unknown:
            raise CheckFailed(f"weights({step}) names domains the run does not have: {', '.join(unknown)}")
        if any(not math.isfinite(w) or w < 0 for w in weights.values()):
            raise CheckFailed(f"weights({step}) holds a negative or non-finite share: {weights}")
        if not math.isclose(sum(weights.values()), 1.0, abs_tol=1e-6):
            raise CheckFailed(f"weights({step}) sums to {sum(weights.values())!r}, not to 1: {weights}")


@check("mixers")
def draws_as_many_as_asked(subject: Subject) -> None:
    """`draw(n)` returns n of the available domains; `draw(0)` returns none."""
    domains, mixer = list(_context(subject)["domains"]), subject.build()
    for step, count in enumerate((1, 7, 0, 64)):
        drawn = mixer.draw(count, step=step, available=domains)
        if len(drawn) != count or not set(drawn) <= set(domains):
            raise CheckFailed(f"draw({count}) returned {len(drawn)} names: {sorted(set(drawn))}; known: {domains}")


@check("mixers")
def keeps_its_shares(subject: Subject) -> None:
    """Over many draws each domain gets its target share, within the spread of independent draws."""
    domains, mixer = list(_context(subject)["domains"]), subject.build()
    counts, target = dict.fromkeys(domains, 0), dict.fromkeys(domains, 0.0)
    for step in range(_STEPS):
        weights = mixer.weights(step)
        for name in mixer.draw(_COUNT, step=step, available=domains):
            counts[name] = counts.get(name, 0) + 1
        for name, weight in weights.items():
            target[name] += weight * _COUNT
    total = _STEPS * _COUNT
    for name in domains:
        share = target[name] / total
        bound = 1.0 + _SIGMAS * math.sqrt(total * share * max(1.0 - share, 0.0))
        if abs(counts[name] - target[name]) > bound:
            raise CheckFailed(
                f"domain '{name}' was drawn {counts[name]} times in {total}; its weights say {target[name]:.1f} "
                f"(allowed: +-{bound:.1f})"
            )


@check("mixers")
def honours_available(subject: Subject) -> None:
    """Only available domains are drawn, down to a single one, and the others come back when they are available."""
    domains, mixer = list(_context(subject)["domains"]), subject.build()
    subsets = [domains, *[[d for d in domains if d != left] for left in domains], *[[d] for d in domains], domains]
    for step, available in enumerate(s for s in subsets if s):
        drawn = mixer.draw(_COUNT, step=step, available=available)
        if not set(drawn) <= set(available):
            raise CheckFailed(f"with only {available} available, drew {sorted(set(drawn) - set(available))}")


@check("mixers")
def resumes_identically(subject: Subject) -> None:
    """A mixer that loads the state (as JSON) of another one draws the same from then on."""
    domains, mixer = list(_context(subject)["domains"]), subject.build()
    _play(mixer, domains, range(5))
    try:
        state = json.loads(json.dumps(mixer.state_dict(), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise CheckFailed(f"state_dict() is not JSON ({error}): keep to numbers, strings, lists and dicts") from error
    resumed = subject.build()
    resumed.load_state_dict(state)
    expected, found = _play(mixer, domains, range(5, 12)), _play(resumed, domains, range(5, 12))
    if expected != found:
        step = next(i for i, (a, b) in enumerate(zip(expected, found, strict=True)) if a != b)
        raise CheckFailed(f"{step} steps after a resume it drew {found[step]} instead of {expected[step]}")
    if mixer.weights(12) != resumed.weights(12):
        raise CheckFailed(f"after a resume weights(12) is {resumed.weights(12)} instead of {mixer.weights(12)}")


@check("mixers")
def is_the_same_in_another_process(subject: Subject) -> None:
    """The same seed gives the same draws in another process."""
    context = _context(subject)
    mixer, domains = subject.build(), list(context["domains"])
    expected = [list(mixer.draw(_COUNT, step=step, available=domains)) for step in range(5)]
    if not isinstance(subject.component.factory, str):
        raise CheckSkipped("the factory is an object of this process")
    argument = (subject.component, dict(subject.options), context, 5, _COUNT)
    try:
        with answers("mixer_stream", argument, limit_s=10.0) as stream:
            found = list(stream)
    except ChildCrashedError as error:
        raise CheckFailed(f"it cannot be built in another process: {error}") from error
    if found != expected:
        raise CheckFailed("the draws differ: seed every generator from `seed`; hash(str) and set order change")


@check("mixers")
def leaves_its_input_alone(subject: Subject) -> None:
    """`observe` does not change the groups, `draw` not the list of available domains."""
    domains, mixer = list(_context(subject)["domains"]), subject.build()
    groups, available = _outcomes(domains, 0), list(domains)
    before = snapshot(groups)
    mixer.draw(_COUNT, step=0, available=available)
    mixer.observe(groups)
    if snapshot(groups) != before or available != domains:
        raise CheckFailed("its input was changed: work on copies")
