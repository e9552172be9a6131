from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from roll_core.builtin.local_rollout.backend import LocalRolloutBackend
from roll_core.builtin.local_rollout.choice import make_backend
from roll_core.contracts import RolloutBackend, TensorInfo
from roll_core.errors import BackendError
from roll_core.plugin.component import Component
from roll_core.types import Completion, MediaRef, PolicyRef, VersionRun

PROMPTS = [tuple(range(3, 3 + n)) for n in (4, 9, 1, 17)]
SOME = {"max_new_tokens": 12}


class Weights:
    """A weight source over a dict of tensors."""

    def __init__(self, tensors: dict[str, torch.Tensor], fail_after: int | None = None) -> None:
        self.kept, self.fail_after = tensors, fail_after

    def manifest(self) -> list[TensorInfo]:
        return [TensorInfo(n, "float32", tuple(t.shape)) for n, t in self.kept.items()]

    def tensors(self) -> Any:
        for index, item in enumerate(self.kept.items()):
            if index == self.fail_after:
                raise OSError("the wire broke")
            yield item


def weights_of(model: Any, scale: float = 1.0) -> dict[str, torch.Tensor]:
    return {n: t.detach() * scale for n, t in model.state_dict().items() if n != "lm_head.weight"}


def same(a: Completion, b: Completion) -> None:
    assert a.token_ids.tolist() == b.token_ids.tolist()
    np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)
    assert a.finish_reason == b.finish_reason


def test_it_is_a_rollout_backend_with_a_derived_config(backend: LocalRolloutBackend, tiny: Path) -> None:
    assert isinstance(backend, RolloutBackend)
    component = Component("local", make_backend)
    options = component.config_model(("model", "seed", "executor")).model_fields
    engine = {"max_slots", "max_tokens", "precision", "device"}
    assert set(options) == engine | {"replicas", "cpus", "max_restarts", "stuck_s", "start_timeout_s"}
    assert all(option.description for option in options.values())
    in_driver = component.build({"max_slots": 2}, model=tiny, seed=0, executor=None)
    assert isinstance(in_driver, LocalRolloutBackend)
    asyncio.run(in_driver.close())


def test_greedy_equals_generate(backend: LocalRolloutBackend, reference: Any, run: Any, make: Any) -> None:
    made = run(backend, *(make(p, str(i), temperature=0.0, **SOME) for i, p in enumerate(PROMPTS)))
    for prompt, completion in zip(PROMPTS, made, strict=True):
        ids = torch.tensor([prompt])
        expected = reference.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=12, min_new_tokens=12
        )
        assert completion.token_ids.tolist() == expected[0, len(prompt) :].tolist()
        assert completion.token_ids.dtype == np.int32
        assert completion.logprobs.dtype == np.float32


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.6}, {"top_k": 5}, {"top_p": 0.7, "temperature": 1.3}])
def test_logprobs_are_those_of_the_sampled_distribution(
    backend: LocalRolloutBackend, reference: Any, run: Any, make: Any, sampling: dict[str, Any]
) -> None:
    made = run(backend, *(make(p, str(i), seed=i, **SOME, **sampling) for i, p in enumerate(PROMPTS)))
    for prompt, completion in zip(PROMPTS, made, strict=True):
        ids = torch.tensor([[*prompt, *completion.token_ids.tolist()]])
        with torch.no_grad():
            logits = reference(ids).logits[0, len(prompt) - 1 : -1].double() / sampling.get("temperature", 1.0)
        if "keep_ids" in completion.columns:
            counts, kept = completion.columns["keep_counts"], completion.columns["keep_ids"]
            assert (counts > 0).all()
            assert counts.sum() == len(kept)
            mask = torch.ones_like(logits, dtype=torch.bool)
            rows = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
            mask[rows, torch.tensor(kept, dtype=torch.int64)] = False
            logits = logits.masked_fill(mask, float("-inf"))
        chosen = torch.tensor(completion.token_ids, dtype=torch.int64)[:, None]
        expected = functional.log_softmax(logits, -1).gather(1, chosen)[:, 0]
        np.testing.assert_allclose(completion.logprobs, expected, atol=1e-4)


def test_a_request_draws_the_same_alone_and_in_a_crowd(backend: LocalRolloutBackend, run: Any, make: Any) -> None:
    requests = [
        make(PROMPTS[i % 4], str(i), seed=i, max_new_tokens=4 + 3 * (i % 5), top_k=7 * (i % 2)) for i in range(20)
    ]
    crowd = run(backend, *requests)  # 20 requests over 8 slots: waiting, forking, moving of slots
    for one, completion in zip(requests, crowd, strict=True):
        same(run(backend, one)[0], completion)
    assert len({tuple(c.token_ids.tolist()) for c in crowd[::4]}) > 1  # seeds matter


def test_equal_prompts_are_computed_once(
    backend: LocalRolloutBackend, run: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, computed = backend._loaded.runner, []
    plain = runner.prefill
    monkeypatch.setattr(runner, "prefill", lambda batch, store: computed.append(batch) or plain(batch, store))
    run(backend, *(make(PROMPTS[i % 2], str(i), seed=i, max_new_tokens=3 + i) for i in range(16)))
    prompts = [prompt for batch in computed for prompt in batch.prompts]
    assert sorted(prompts) == sorted(PROMPTS[:2])  # those that waited copied a live sibling


def test_resumed_request_continues_as_if_never_interrupted(backend: LocalRolloutBackend, run: Any, make: Any) -> None:
    whole = run(backend, make(PROMPTS[0], seed=9, max_new_tokens=20))[0]
    for cut in (1, 7, 19):
        rest = run(backend, make(PROMPTS[0], seed=9, prefix=whole.token_ids[:cut], max_new_tokens=20))[0]
        assert rest.token_ids.tolist() == whole.token_ids[cut:].tolist()
        np.testing.assert_allclose(rest.logprobs, whole.logprobs[cut:], atol=1e-4)
    spent = run(backend, make(PROMPTS[0], seed=9, prefix=whole.token_ids, max_new_tokens=20))[0]
    assert (len(spent.token_ids), spent.finish_reason) == (0, "length")


def test_stop_token_ends_and_is_included(backend: LocalRolloutBackend, run: Any, make: Any) -> None:
    free = run(backend, make(PROMPTS[1], seed=2, max_new_tokens=30))[0]
    stop = int(free.token_ids[10])
    first = free.token_ids.tolist().index(stop)
    made = run(backend, make(PROMPTS[1], seed=2, max_new_tokens=30, stop_token_ids=(stop,)))[0]
    assert made.token_ids.tolist() == free.token_ids[: first + 1].tolist()
    assert made.finish_reason == "stop"


def test_stop_string_over_several_tokens(backend: LocalRolloutBackend, tiny: Path, run: Any, make: Any) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny)
    free = run(backend, make(PROMPTS[1], seed=2, max_new_tokens=30))[0]
    text = tokenizer.decode(free.token_ids[5:8])
    made = run(backend, make(PROMPTS[1], seed=2, max_new_tokens=30, stop=("never there", text)))[0]
    assert made.finish_reason == "stop"
    assert len(made.token_ids) <= 8
    assert text in tokenizer.decode(made.token_ids)
    assert text not in tokenizer.decode(made.token_ids[:-1])


def test_model_length_ends_a_request_and_slots_grow(backend: LocalRolloutBackend, run: Any, make: Any) -> None:
    long, short = run(backend, make([5] * 300, "a", max_new_tokens=500), make(PROMPTS[0], "b", max_new_tokens=5))
    assert len(long.token_ids) == 512 - 300
    assert long.finish_reason == "length"
    assert len(short.token_ids) == 5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"token_ids": ()}, "empty"),
        ({"token_ids": (5,) * 512}, "512 tokens"),
        ({"token_ids": (5, 10_000)}, "vocabulary"),
        ({"media": (MediaRef("00", "image/png"),)}, "text only"),
        ({"policy": PolicyRef(0, adapter="a")}, "adapter 'a'"),
    ],
)
def test_impossible_request_fails_alone(
    backend: LocalRolloutBackend, make: Any, changes: dict[str, Any], words: str
) -> None:
    from dataclasses import replace

    async def both() -> Any:
        bad = replace(make(PROMPTS[0], "bad"), **changes)
        good = backend.generate(make(PROMPTS[0], "good", max_new_tokens=3))
        return await asyncio.gather(backend.generate(bad), good, return_exceptions=True)

    bad, good = asyncio.run(both())
    assert isinstance(bad, BackendError)
    assert words in str(bad)
    assert len(good.token_ids) == 3


def test_abort_and_cancel_free_their_slots(backend: LocalRolloutBackend, make: Any) -> None:
    async def scenario() -> Completion:
        aborted = asyncio.create_task(backend.generate(make(PROMPTS[0], "a", max_new_tokens=400)))
        cancelled = asyncio.create_task(backend.generate(make(PROMPTS[0], "c", max_new_tokens=400)))
        await backend.generate(make(PROMPTS[1], "b", max_new_tokens=4))
        backend.abort("a")
        backend.abort("unknown")
        cancelled.cancel()
        made = await aborted
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        await backend.generate(make(PROMPTS[1], "d", max_new_tokens=2))
        return made

    made = asyncio.run(scenario())
    assert made.finish_reason == "abort"
    assert 1 <= len(made.token_ids) < 400
    assert made.versions[-1].stop == len(made.token_ids)
    assert backend._engine.free == 8


def test_abort_of_a_waiting_request(tiny: Path, make: Any) -> None:
    backend = LocalRolloutBackend(model=tiny, seed=0, max_slots=1, precision="float32")

    async def scenario() -> list[Completion]:
        tasks = [asyncio.create_task(backend.generate(make(PROMPTS[0], str(i), max_new_tokens=6))) for i in range(3)]
        await asyncio.sleep(0)
        backend.abort("1")
        made = await asyncio.gather(*tasks)
        await backend.close()
        return list(made)

    made = asyncio.run(scenario())
    assert [c.finish_reason for c in made] == ["length", "abort", "length"]
    assert len(made[1].token_ids) == 0


def test_duplicate_id_is_refused(backend: LocalRolloutBackend, make: Any) -> None:
    async def scenario() -> Any:
        calls = (backend.generate(make(PROMPTS[0], "x", max_new_tokens=3)) for _ in range(2))
        return await asyncio.gather(*calls, return_exceptions=True)

    first, second = asyncio.run(scenario())
    assert isinstance(first, Completion)
    assert "'x' is running already" in str(second)


def test_admission_in_order_of_submission(tiny: Path, make: Any) -> None:
    backend = LocalRolloutBackend(model=tiny, seed=0, max_slots=2, precision="float32")
    order: list[int] = []

    async def one(i: int) -> None:
        await backend.generate(make(PROMPTS[0], str(i), max_new_tokens=3))
        order.append(i)

    async def scenario() -> None:
        await asyncio.gather(*map(one, range(7)))
        await backend.close()

    asyncio.run(scenario())
    assert order == list(range(7))


def test_barrier_runs_between_an_end_and_the_next_step(backend: LocalRolloutBackend, make: Any) -> None:
    log: list[str] = []

    async def barrier() -> None:
        log.append("barrier")
        await asyncio.sleep(0.01)
        log.append("over")
        backend.abort("long")

    async def one(name: str, tokens: int) -> Completion:
        made = await backend.generate(make(PROMPTS[0], name, max_new_tokens=tokens))
        log.append(name)
        return made

    async def scenario() -> list[Completion]:
        backend.set_barrier(barrier)
        return list(await asyncio.gather(one("short", 3), one("long", 400)))

    _, long = asyncio.run(scenario())
    assert log[:3] == ["short", "barrier", "over"]
    assert len(long.token_ids) == 3  # aborted at the barrier, before another step
    backend.set_barrier(None)


@pytest.mark.parametrize("what", ["decode", "barrier"])
def test_failure_reaches_everyone_and_the_backend_recovers(
    backend: LocalRolloutBackend, run: Any, make: Any, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    async def broken() -> None:
        raise RuntimeError("boom")

    def broken_decode(*_: Any) -> None:
        raise RuntimeError("boom")

    if what == "barrier":
        backend.set_barrier(broken)
    else:
        monkeypatch.setattr(backend._loaded.runner, "decode", broken_decode)
    requests = [make(PROMPTS[0], "a", max_new_tokens=50), make(PROMPTS[1], "b", max_new_tokens=50)]

    async def scenario() -> Any:
        first = asyncio.create_task(backend.generate(make(PROMPTS[2], "c", max_new_tokens=2)))
        return await asyncio.gather(*map(backend.generate, requests), first, return_exceptions=True)

    for result in asyncio.run(scenario())[:2]:
        assert isinstance(result, BackendError)
        assert "boom" in str(result)
    monkeypatch.undo()
    backend.set_barrier(None)
    assert len(run(backend, *requests)[0].token_ids) == 50


def test_works_over_several_event_loops_even_after_an_interrupt(
    backend: LocalRolloutBackend, run: Any, make: Any
) -> None:
    expected = run(backend, make(PROMPTS[0], max_new_tokens=5))[0]

    async def interrupted() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(backend.generate(make(PROMPTS[1], "x", max_new_tokens=500)), 0.02)
        asyncio.create_task(backend.generate(make(PROMPTS[1], "y", max_new_tokens=500)))  # noqa: RUF006
        await asyncio.sleep(0.01)

    asyncio.run(interrupted())
    same(run(backend, make(PROMPTS[0], max_new_tokens=5))[0], expected)
    assert backend._engine.free == 8


def test_close_ends_waiting_calls(tiny: Path, make: Any) -> None:
    backend = LocalRolloutBackend(model=tiny, seed=0, precision="float32")

    async def scenario() -> None:
        task = asyncio.create_task(backend.generate(make(PROMPTS[0], max_new_tokens=500)))
        await asyncio.sleep(0.01)
        await backend.close()
        await backend.close()
        with pytest.raises(BackendError, match="closed"):
            await task
        with pytest.raises(BackendError, match="closed"):
            await backend.generate(make(PROMPTS[0]))

    asyncio.run(scenario())


def test_sync_changes_weights_and_version(backend: LocalRolloutBackend, reference: Any, run: Any, make: Any) -> None:
    assert backend.policy_version == 0
    before = run(backend, make(PROMPTS[0], **SOME))[0]
    assert before.versions == (VersionRun(0, 12, PolicyRef(0)),)
    backend.sync_weights(Weights(weights_of(reference, 1.5)), 4)
    assert backend.policy_version == 4
    after = run(backend, make(PROMPTS[0], **SOME))[0]
    assert after.versions == (VersionRun(0, 12, PolicyRef(4)),)
    assert not np.allclose(after.logprobs[0], before.logprobs[0])
    backend.sync_weights(Weights(weights_of(reference)), 5)
    same(run(backend, make(PROMPTS[0], **SOME))[0], before)


def test_sync_while_requests_run_splits_their_versions(backend: LocalRolloutBackend, reference: Any, make: Any) -> None:
    async def scenario() -> tuple[Completion, Completion]:
        long = asyncio.create_task(backend.generate(make(PROMPTS[0], "long", max_new_tokens=40)))
        short = await backend.generate(make(PROMPTS[0], "short", max_new_tokens=5))
        backend.sync_weights(Weights(weights_of(reference)), 1)
        return short, await long

    short, long = asyncio.run(scenario())
    assert short.versions == (VersionRun(0, 5, PolicyRef(0)),)
    assert [run.policy.version for run in long.versions] == [0, 1]
    assert long.versions[0].stop == long.versions[1].start >= 5
    assert long.versions[1].stop == 40


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w.pop("model.norm.weight"), "missing: model.norm.weight"),
        (lambda w: w.update(extra=torch.zeros(1)), "unexpected: extra"),
        (lambda w: w.update({"model.norm.weight": torch.zeros(3)}), "of another shape: model.norm.weight"),
    ],
)
def test_weights_that_do_not_fit_are_refused_whole(
    backend: LocalRolloutBackend, reference: Any, run: Any, make: Any, change: Any, words: str
) -> None:
    before = run(backend, make(PROMPTS[0], **SOME))[0]
    wrong = weights_of(reference, 2.0)
    change(wrong)
    with pytest.raises(BackendError, match=words):
        backend.sync_weights(Weights(wrong), 1)
    assert backend.policy_version == 0
    same(run(backend, make(PROMPTS[0], **SOME))[0], before)


def test_half_a_sync_is_never_served(backend: LocalRolloutBackend, reference: Any, run: Any, make: Any) -> None:
    before = run(backend, make(PROMPTS[0], **SOME))[0]
    with pytest.raises(BackendError, match="the wire broke"):
        backend.sync_weights(Weights(weights_of(reference, 2.0), fail_after=3), 1)
    with pytest.raises(BackendError, match="nothing is generated"):
        run(backend, make(PROMPTS[0], **SOME))
    backend.sync_weights(Weights(weights_of(reference)), 2)
    same(run(backend, make(PROMPTS[0], **SOME))[0], before)


def test_a_missing_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="cannot load the model in"):
        LocalRolloutBackend(model=tmp_path / "nothing", seed=0)
    with pytest.raises(BackendError, match="max_slots"):
        LocalRolloutBackend(model=tmp_path, seed=0, max_slots=0)
    with pytest.raises(BackendError, match="abacus"):
        LocalRolloutBackend(model=tmp_path, seed=0, device="abacus")
