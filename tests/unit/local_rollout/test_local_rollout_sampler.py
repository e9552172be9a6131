from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.builtin.local_rollout.sampler import UniformStream, sample
from roll_core.errors import BackendError
from roll_core.types import SamplingParams

NUMBERS = st.floats(-8, 8, width=32).map(lambda x: round(x, 1))  # rounded, so that ties occur


def kept_set(logits: np.ndarray, temperature: float, top_k: int, top_p: float) -> set[int]:
    """Brute force: temperature, then top-k, then top-p over what is left; ties with the last one stay."""
    scores = logits.astype(np.float64) / temperature
    order = np.argsort(-scores, kind="stable")
    floor = -np.inf
    if 0 < top_k < len(scores):
        floor = scores[order[top_k - 1]]
    ids = [i for i in order if scores[i] >= floor]
    if top_p < 1:
        weights = np.exp(scores[ids] - scores.max())
        reached = np.cumsum(weights) >= top_p * weights.sum()
        last = int(np.argmax(reached)) if reached.any() else len(ids) - 1
        ids = [i for i in ids if scores[i] >= scores[ids[last]]]
    return set(map(int, ids))


def counts_of(logits: torch.Tensor, params: SamplingParams, n: int) -> np.ndarray:
    uniforms = [(i + 0.5) / n for i in range(n)]
    draw = sample(logits.expand(n, -1), [params] * n, uniforms)
    return np.bincount(draw.tokens, minlength=logits.shape[-1])


@pytest.mark.parametrize("vocabulary", [5, 128, 300, 1000])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_evenly_spread_uniforms_give_the_softmax(vocabulary: int, temperature: float) -> None:
    logits = torch.randn(1, vocabulary, generator=torch.Generator().manual_seed(vocabulary)) * 3
    n = 2000
    expected = torch.softmax(logits[0].double() / temperature, -1).numpy() * n
    counts = counts_of(logits, SamplingParams(temperature=temperature), n)
    assert np.abs(counts - expected).max() <= 2  # stratified numbers leave no statistical error


def test_stream_of_a_request_passes_chi_square() -> None:
    logits = torch.tensor([[1.0, 0.0, 2.0, -1.0, 0.5, 0.0]])
    stream, n = UniformStream(17, 5), 6000
    draw = sample(logits.expand(n, -1), [SamplingParams()] * n, [stream.at(i) for i in range(n)])
    expected = torch.softmax(logits[0], -1).numpy() * n
    chi_square = float(((np.bincount(draw.tokens, minlength=6) - expected) ** 2 / expected).sum())
    assert chi_square < 15.1  # 5 degrees of freedom, 1 %


def test_stream_is_addressed_by_position_and_keyed_by_seed() -> None:
    forward, backward = UniformStream(4, 0), UniformStream(4, 0)
    there = [forward.at(i) for i in range(600)]
    assert there == [backward.at(i) for i in reversed(range(600))][::-1]
    assert len(set(there)) == 600
    assert all(0 <= u < 1 for u in there)
    assert UniformStream(5, 0).at(0) != there[0] != UniformStream(4, 1).at(0)
    assert UniformStream(-1, 0).at(0) != UniformStream(2**63, 0).at(0)


@settings(max_examples=150, deadline=None)
@given(
    logits=st.lists(NUMBERS, min_size=2, max_size=300),
    temperature=st.sampled_from([0.5, 1.0, 1.7]),
    top_k=st.integers(0, 40),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 0.999, 1.0]),
    uniform=st.floats(0, 1, exclude_max=True),
)
def test_kept_set_matches_brute_force(
    logits: list[float], temperature: float, top_k: int, top_p: float, uniform: float
) -> None:
    row = torch.tensor([logits], dtype=torch.float32)
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p)
    draw = sample(row, [params], [uniform])
    expected = kept_set(row[0].numpy(), temperature, top_k, top_p)
    if params.is_truncated:
        assert draw.kept[0] is not None
        made = set(draw.kept[0].tolist())
        border = made ^ expected  # rounding may move the border by one group of equal logits
        assert len({logits[i] for i in border}) <= 1
        assert list(draw.kept[0]) == sorted(made)
    else:
        made = expected
        assert draw.kept[0] is None
    assert draw.tokens[0] in made
    ids = sorted(made)
    among = torch.log_softmax(row[0, ids].double() / temperature, -1)
    assert draw.logprobs[0] == pytest.approx(float(among[ids.index(draw.tokens[0])]), abs=1e-5)


def test_top_p_looks_beyond_the_first_candidates() -> None:
    logits = torch.zeros(1, 5000) + torch.linspace(0, 0.01, 5000)
    draw = sample(logits, [SamplingParams(top_p=0.6)], [0.999999])
    assert draw.kept[0] is not None
    assert len(draw.kept[0]) == pytest.approx(3000, abs=20)
    assert draw.tokens[0] in set(draw.kept[0].tolist())


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_a_token_without_probability_is_never_drawn(uniform: float) -> None:
    logits = torch.full((1, 700), float("-inf"))
    logits[0, 333] = 0.0
    assert sample(logits, [SamplingParams()], [uniform]).tokens == [333]


def test_rows_mix_kinds_of_sampling_and_do_not_disturb_each_other() -> None:
    logits = torch.randn(3, 400, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    before = logits.clone()
    kinds = [SamplingParams(temperature=0.0), SamplingParams(temperature=0.7, top_k=1), SamplingParams()]
    draw = sample(logits, kinds, [0.9, 0.9, 0.9])
    assert torch.equal(before, logits)
    assert draw.tokens[0] == int(logits[0].argmax())
    assert draw.logprobs[0] == pytest.approx(float(torch.log_softmax(logits[0].float(), -1).max()), abs=1e-5)
    assert draw.tokens[1] == int(logits[1].argmax())
    assert draw.tokens[2] == sample(logits[2:], kinds[2:], [0.9]).tokens[0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_an_error(bad: float) -> None:
    logits = torch.zeros(2, 10)
    logits[1, 3] = bad
    with pytest.raises(BackendError, match="not finite"):
        sample(logits, [SamplingParams()] * 2, [0.5, 0.5])
