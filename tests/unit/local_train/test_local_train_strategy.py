from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from roll_core.builtin.local_train.strategy import LocalTrainStrategy
from roll_core.contracts import LoraSettings, MiniBatch, OptimSettings, Term, TrainStrategy
from roll_core.errors import BackendError, CheckpointError
from roll_core.plugin.component import model_of_signature
from roll_core.types import SamplingParams


def make(setup, **options) -> LocalTrainStrategy:
    return LocalTrainStrategy(setup=setup, **{"precision": "float32", "device": "cpu", **options})


def published(strategy) -> dict[str, torch.Tensor]:
    return {name: t.clone() for name, t in strategy.weight_source().tensors()}


def logprobs(strategy, batch) -> np.ndarray:
    return strategy.compute(batch, frozenset({"old_logprobs"}))["old_logprobs"]


def test_is_a_train_strategy_with_a_derived_config(make_setup) -> None:
    assert isinstance(make(make_setup()), TrainStrategy)
    config = model_of_signature(LocalTrainStrategy, "local", frozenset({"setup"}))
    assert config().micro_tokens >= 1024
    with pytest.raises(ValueError, match="micro_tokens"):
        config(micro_tokens=0)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_overfits_one_batch(make_setup, make_batch, objective, precision) -> None:
    batch = make_batch(gaps=False)
    batch.columns["advantages"] = batch.loss_mask.astype(np.float32)
    strategy = make(make_setup(), precision=precision)
    before = logprobs(strategy, batch)[batch.loss_mask].mean()
    for _ in range(30):
        metrics = strategy.update(batch, [objective(batch)])
    after = logprobs(strategy, batch)[batch.loss_mask].mean()
    assert before < -3.5
    assert after > -1.0
    assert metrics["policy/logprob"] == pytest.approx(-metrics["train/loss"], rel=1e-4)


@pytest.mark.parametrize("layout", ["shared_prompt", "padded"])
def test_micro_batches_add_up_to_the_same_step(make_setup, make_batch, objective, layout) -> None:
    batch = make_batch()
    results = []
    for micro_tokens in (4096, 30, 1):
        strategy = make(make_setup(optim=OptimSettings(lr=1e-2)), micro_tokens=micro_tokens, layout=layout)
        metrics = strategy.update(batch, [objective(batch)])
        results.append((metrics, published(strategy)))
    counts = [int(m["train/micro_batches"]) for m, _ in results]
    assert counts[0] == 1 < counts[1] < counts[2] == batch.n_segments
    for metrics, _ in results[1:]:
        for name in ("train/loss", "train/grad_norm", "policy/logprob", "train/tokens"):
            assert metrics[name] == pytest.approx(results[0][0][name], rel=1e-4)


def test_update_reports(make_setup, make_batch, objective) -> None:
    batch = make_batch()
    strategy = make(make_setup(optim=OptimSettings(lr=1e-3, warmup_steps=4)))
    metrics = strategy.update(batch, [objective(batch), objective(batch)])
    assert metrics["train/lr"] == pytest.approx((0.25e-3 + 0.5e-3) / 2)
    assert metrics["train/tokens"] == 2 * batch.loss_mask.sum()
    assert metrics["train/micro_batches"] == 2
    assert metrics["train/skipped_steps"] == 0
    assert metrics["loss/policy"] == pytest.approx(metrics["train/loss"])


def test_loss_inputs_are_as_the_contract_says(make_setup, make_batch) -> None:
    batch = make_batch(sampling=SamplingParams())
    for name in ("old_logprobs", "ref_logprobs", "values", "returns", "routes"):
        batch.add(name, np.arange(batch.n_tokens, dtype=np.float32))
    seen = []

    def look(inputs):
        seen.append(inputs)
        return inputs.logprobs

    weights = np.ones(batch.n_tokens, np.float32)
    other = np.full(batch.n_tokens, 7, np.float32)
    needs = frozenset({"logprobs", "full_logprobs", "entropy"})
    terms = (Term("a", look, weights, needs), Term("b", look, weights, needs, advantages=other))
    strategy = make(make_setup(), micro_tokens=1)
    strategy.update(batch, [MiniBatch(np.array([0, 3]), terms)])
    a, b, second, _ = seen
    assert a.logprobs is b.logprobs
    assert a.n_segments == 1
    assert (b.advantages == 7).all()
    n = int(batch.lengths[0])
    mask = batch.response_mask[:n]
    assert (a.logprobs.detach().numpy() != 0).tolist() == mask.tolist()
    assert a.mask.tolist() == batch.loss_mask[:n].tolist()
    assert a.old_logprobs.tolist() == list(range(n))
    assert second.old_logprobs[0] == batch.offsets[3]
    assert a.entropy.detach().numpy()[mask].min() > 0
    assert set(a.columns) == {"routes"}
    assert a.old_values.tolist() == a.returns.tolist() == a.ref_logprobs.tolist() == a.columns["routes"].tolist()


def test_without_old_logprobs_the_present_ones_are_taken(make_setup, make_batch) -> None:
    batch = make_batch()

    def ratio(inputs):
        value = torch.exp(inputs.logprobs - inputs.old_logprobs)
        assert not inputs.old_logprobs.requires_grad
        assert (value == 1).all()
        return value

    term = Term("ratio", ratio, batch.loss_mask.astype(np.float32))
    make(make_setup()).update(batch, [MiniBatch(np.arange(batch.n_segments), (term,))])


@pytest.mark.parametrize("layout", ["shared_prompt", "padded"])
def test_bfloat16_is_close_to_float32(make_setup, make_batch, objective, layout) -> None:
    batch = make_batch()
    wide, narrow = make(make_setup(), layout=layout), make(make_setup(), layout=layout, precision="bfloat16")
    np.testing.assert_allclose(logprobs(narrow, batch), logprobs(wide, batch), atol=0.03)
    a, b = wide.update(batch, [objective(batch)]), narrow.update(batch, [objective(batch)])
    assert b["train/grad_norm"] == pytest.approx(a["train/grad_norm"], rel=0.03)
    assert next(iter(published(narrow).values())).dtype == torch.bfloat16


def test_masters_keep_steps_that_bfloat16_would_lose(make_setup, make_batch, objective) -> None:
    batch = make_batch()
    strategy = make(make_setup(optim=OptimSettings(lr=1e-6)), precision="bfloat16")
    before = {n: p.detach().clone() for n, p in strategy._weights.masters.items()}
    strategy.update(batch, [objective(batch)])
    name = "model.layers.0.mlp.down_proj.weight"
    moved = (strategy._weights.masters[name] - before[name]).abs()
    assert 0 < moved.max() < 2e-6


def test_gradient_checkpointing_changes_nothing(make_setup, make_batch, objective) -> None:
    batch = make_batch()
    plain, frugal = make(make_setup()), make(make_setup(), gradient_checkpointing=True)
    a, b = plain.update(batch, [objective(batch)]), frugal.update(batch, [objective(batch)])
    assert a["train/grad_norm"] == pytest.approx(b["train/grad_norm"], rel=1e-5)
    for name, tensor in published(plain).items():
        torch.testing.assert_close(tensor, published(frugal)[name])


def test_a_gradient_that_is_not_finite_is_skipped(make_setup, make_batch, objective) -> None:
    batch = make_batch()
    strategy = make(make_setup())
    before = published(strategy)
    metrics = strategy.update(batch, [objective(batch, fn=lambda inputs: inputs.logprobs * float("inf"))])
    assert metrics["train/skipped_steps"] == 1
    assert all(torch.equal(t, before[n]) for n, t in published(strategy).items())
    assert strategy.update(batch, [objective(batch)])["train/skipped_steps"] == 0


# --- distributions ----------------------------------------------------------------------------------------------------


def test_temperature_is_that_of_the_tokens_domain(make_setup, make_batch) -> None:
    plain, warm = make_batch(), make_batch(sampling=SamplingParams(temperature=2.0))
    strategy = make(make_setup())
    a, b = logprobs(strategy, plain), logprobs(strategy, warm)
    assert (np.abs(a - b)[plain.response_mask] > 1e-4).all()
    entropy = strategy.compute(warm, frozenset({"entropy"}))["entropy"]
    cold = strategy.compute(plain, frozenset({"entropy"}))["entropy"]
    even = (warm.token_domain == 0) & warm.response_mask
    assert (entropy[even] > cold[even]).all()


def test_truncated_sampling_is_renormalised_over_the_kept_set(make_setup, make_batch) -> None:
    batch = make_batch(sampling=SamplingParams(top_k=2))
    strategy = make(make_setup(reference=None))
    with pytest.raises(BackendError, match="'even' samples with top_p or top_k"):
        logprobs(strategy, batch)
    counts = np.where(batch.response_mask & (batch.token_domain == 0), 2, 0).astype(np.int32)
    ids = [(t, (t + 1) % 62) for t in batch.token_ids[counts > 0]]
    full = strategy.compute(replace(batch, sampling={"odd": batch.sampling["odd"]}), frozenset({"old_logprobs"}))
    batch.columns |= {"keep_counts": counts, "keep_ids": np.array(ids, np.int32).ravel()}
    kept = logprobs(strategy, batch)
    picked = counts > 0
    assert (kept[picked] > full["old_logprobs"][picked] + 1).all()
    assert np.exp(kept[picked]).mean() == pytest.approx(0.5, abs=0.1)
    np.testing.assert_array_equal(kept[~picked], full["old_logprobs"][~picked])


# --- adapters, reference, teachers, critic ----------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_lora_learns_and_leaves_the_base_alone(make_setup, make_batch, objective, tiny, precision) -> None:
    batch = make_batch(gaps=False)
    batch.columns["advantages"] = batch.loss_mask.astype(np.float32)
    setup = make_setup(lora=LoraSettings(rank=4), reference=tiny, optim=OptimSettings(lr=3e-2))
    strategy = make(setup, precision=precision)
    columns = frozenset({"old_logprobs", "ref_logprobs"})
    before = strategy.compute(batch, columns)
    np.testing.assert_allclose(before["old_logprobs"], before["ref_logprobs"], atol=1e-6)
    for _ in range(20):
        strategy.update(batch, [objective(batch)])
    after = strategy.compute(batch, columns)
    np.testing.assert_array_equal(after["ref_logprobs"], before["ref_logprobs"])
    assert after["old_logprobs"].sum() > before["old_logprobs"].sum() + 5
    merged, base = published(strategy), AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32).state_dict()
    assert merged.keys() == base.keys() - {"lm_head.weight"}
    assert torch.equal(merged["model.embed_tokens.weight"].float(), base["model.embed_tokens.weight"]) == (
        precision == "float32"
    )
    assert not torch.equal(merged["model.layers.0.mlp.down_proj.weight"], base["model.layers.0.mlp.down_proj.weight"])


def test_an_adapter_is_published_as_peft_loads_it(make_setup, make_batch, objective, tiny, tmp_path) -> None:
    from peft import LoraConfig, PeftModel
    from safetensors.torch import save_file

    batch = make_batch(gaps=False)
    batch.columns["advantages"] = batch.loss_mask.astype(np.float32)
    strategy = make(make_setup(lora=LoraSettings(rank=4), optim=OptimSettings(lr=3e-2)))
    strategy.update(batch, [objective(batch)])
    source = strategy.weight_source()
    tensors = dict(source.adapter_tensors())
    assert [(i.name, i.shape) for i in source.adapter_manifest()] == [(n, tuple(t.shape)) for n, t in tensors.items()]
    LoraConfig(**source.adapter_config()).save_pretrained(tmp_path)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "adapter_model.safetensors")
    base = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    merged = PeftModel.from_pretrained(base, tmp_path).merge_and_unload().state_dict()
    for name, tensor in published(strategy).items():
        torch.testing.assert_close(tensor.float(), merged[name], atol=1e-6, rtol=1e-6)
    assert make(make_setup()).weight_source().adapter_config() is None


def test_lora_targets_that_do_not_exist(make_setup) -> None:
    with pytest.raises(BackendError, match="adapters"):
        make(make_setup(lora=LoraSettings(targets=("nothing",))))


def test_reference_and_teachers_are_frozen(make_setup, make_batch, objective, tiny) -> None:
    batch = make_batch(sampling=SamplingParams(temperature=0.5))
    strategy = make(make_setup(reference=tiny, teachers={"big": tiny}))
    columns = frozenset({"ref_logprobs", "logprobs@big", "old_logprobs"})
    before = strategy.compute(batch, columns)
    np.testing.assert_array_equal(before["ref_logprobs"], before["logprobs@big"])
    np.testing.assert_array_equal(before["ref_logprobs"], before["old_logprobs"])
    strategy.update(batch, [objective(batch)])
    after = strategy.compute(batch, columns)
    np.testing.assert_array_equal(after["ref_logprobs"], before["ref_logprobs"])
    assert np.abs(after["old_logprobs"] - before["old_logprobs"]).max() > 1e-3


def test_columns_nobody_set_up(make_setup, make_batch) -> None:
    strategy = make(make_setup())
    for name in ("ref_logprobs", "logprobs@big", "values", "speed"):
        with pytest.raises(BackendError, match=name):
            strategy.compute(make_batch(), frozenset({name}))


def value_loss(inputs):
    inputs.metric("value", inputs.values)
    return (inputs.values - 3.0).square()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_critic_learns_a_constant(make_setup, make_batch, objective, tiny, precision) -> None:
    batch = make_batch()
    setup = make_setup(critic=tiny, critic_optim=OptimSettings(lr=3e-2))
    strategy = make(setup, precision=precision, micro_tokens=20)
    values = frozenset({"values"})
    assert (strategy.compute(batch, values)["values"] == 0).all()
    weights = (batch.loss_mask / batch.loss_mask.sum()).astype(np.float32)
    term = Term("value", value_loss, weights, frozenset({"values"}))
    before = published(strategy)
    for _ in range(40):
        metrics = strategy.update(batch, [MiniBatch(np.arange(batch.n_segments), (term,))])
    found = strategy.compute(batch, values)["values"]
    np.testing.assert_allclose(found[batch.response_mask], 3.0, atol=0.3)
    assert (found[~batch.response_mask] == 0).all()
    assert metrics["critic/lr"] == pytest.approx(3e-2)
    assert "train/lr" not in metrics
    assert all(torch.equal(t, before[n]) for n, t in published(strategy).items())


def test_policy_and_critic_in_one_step(make_setup, make_batch, objective, tiny) -> None:
    batch = make_batch()
    term = Term("value", value_loss, batch.loss_mask.astype(np.float32), frozenset({"values"}))
    strategy = make(make_setup(critic=tiny))
    metrics = strategy.update(batch, [objective(batch, term)])
    assert metrics["critic/grad_norm"] > 0
    assert metrics["train/grad_norm"] > 0
    assert metrics["train/loss"] == pytest.approx(metrics["loss/policy"] + metrics["loss/value"])
    with pytest.raises(BackendError, match="no critic"):
        make(make_setup()).update(batch, [objective(batch, term)])


# --- weights, checkpoints, export -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "lora"])
def test_resume_is_bit_equal(make_setup, make_batch, objective, tiny, tmp_path, kind) -> None:
    batch = make_batch()
    term = Term("value", value_loss, batch.loss_mask.astype(np.float32), frozenset({"values"}))
    optim = OptimSettings(lr=1e-2, schedule="cosine", warmup_steps=1)
    lora = LoraSettings(rank=2, dropout=0.2) if kind == "lora" else None
    options = {"precision": "bfloat16" if kind == "bfloat16" else "float32", "micro_tokens": 20}
    setup = make_setup(critic=tiny, optim=optim, total_steps=4, lora=lora)

    def step(strategy):
        return strategy.update(batch, [objective(batch, term)])

    torch.manual_seed(5)
    whole = make(setup, **options)
    step(whole)
    step(whole)
    whole.save(tmp_path)
    expected = [step(whole), step(whole)]
    resumed = make(replace(setup, seed=9), **options)
    torch.manual_seed(77)
    resumed.load(tmp_path)
    assert [step(resumed), step(resumed)] == expected
    for name, tensor in published(whole).items():
        assert torch.equal(tensor, published(resumed)[name]), name
    both = [s.compute(batch, frozenset({"values", "old_logprobs"})) for s in (whole, resumed)]
    np.testing.assert_array_equal(both[0]["values"], both[1]["values"])


def test_a_state_of_other_settings_is_refused(make_setup, tmp_path) -> None:
    with pytest.raises(CheckpointError, match="cannot read"):
        make(make_setup()).load(tmp_path)
    make(make_setup()).save(tmp_path)
    with pytest.raises(CheckpointError, match="precision 'float32', this run has 'bfloat16'"):
        make(make_setup(), precision="bfloat16").load(tmp_path)
    with pytest.raises(CheckpointError, match="cannot write"):
        make(make_setup()).save(tmp_path / "absent")


@pytest.mark.parametrize("lora", [None, LoraSettings(rank=4)])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_export_loads_and_scores_the_same(make_setup, make_batch, objective, tmp_path, lora, precision) -> None:
    batch = make_batch()
    strategy = make(make_setup(lora=lora), precision=precision)
    for _ in range(3):
        strategy.update(batch, [objective(batch)])
    strategy.export(tmp_path / "model")
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype="auto")
    assert exported.dtype == torch.float32
    assert exported.config.use_cache
    assert AutoTokenizer.from_pretrained(tmp_path / "model")("1+2").input_ids
    again = make(make_setup(model=tmp_path / "model"))
    tolerance = 1e-5 if precision == "float32" else 0.05
    np.testing.assert_allclose(logprobs(again, batch), logprobs(strategy, batch), atol=tolerance)


def test_published_weights_are_not_copies_and_tied_ones_come_once(make_setup) -> None:
    strategy = make(make_setup(), precision="bfloat16")
    source = strategy.weight_source()
    names = [name for name, _ in source.tensors()]
    assert "lm_head.weight" not in names
    assert "model.embed_tokens.weight" in names
    assert [(i.name, i.dtype, i.shape) for i in source.manifest()] == [
        (name, "bfloat16", tuple(t.shape)) for name, t in source.tensors()
    ]
    (_, first), (_, again) = next(source.tensors()), next(source.tensors())
    assert first.data_ptr() == again.data_ptr()
    assert not first.requires_grad


def test_odd_input_is_refused(make_setup, make_batch, objective) -> None:
    strategy = make(make_setup())
    batch = make_batch()
    with pytest.raises(BackendError, match="no mini-batch"):
        strategy.update(batch, [])
    with pytest.raises(BackendError, match="without segments"):
        strategy.update(batch, [replace(objective(batch), segments=np.zeros(0, np.int64))])
    with pytest.raises(BackendError, match="one value for each"):
        strategy.update(batch, [objective(batch, fn=lambda inputs: inputs.logprobs.sum())])
    with pytest.raises(BackendError, match="needs topk"):
        term = Term("distil", value_loss, batch.loss_mask.astype(np.float32), frozenset({"topk"}))
        strategy.update(batch, [objective(batch, term)])
    with pytest.raises(BackendError, match="'nowhere'"):
        make(make_setup(), device="nowhere")
