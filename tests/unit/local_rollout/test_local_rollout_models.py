"""Every architecture runs, lean or generic, and equals its own forward; those that cannot say so."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from roll_core.builtin.local_rollout.backend import LocalRolloutBackend
from roll_core.builtin.local_rollout.cache import DecodeStep, PromptBatch, SlotStore
from roll_core.builtin.local_rollout.lean import LeanRunner
from roll_core.builtin.local_rollout.linear import Dense, packing_works
from roll_core.builtin.local_rollout.loading import choose_runner, load_model
from roll_core.builtin.local_rollout.runner import GenericRunner
from roll_core.errors import BackendError

SMALL = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def model_of(kind: str, **changes: Any) -> Any:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**SMALL, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config)
    for parameter in model.parameters():  # larger than the default, so that attention matters
        parameter.data += 0.15 * torch.randn_like(parameter)
    return model.eval().requires_grad_(False)


LEAN = [
    ("Llama", {}),
    ("Llama", {"num_key_value_heads": 4, "attention_bias": True, "tie_word_embeddings": True}),
    ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}}),
    ("Mistral", {"num_key_value_heads": 1, "sliding_window": None}),
    ("Qwen2", {}),
    ("Qwen3", {"head_dim": 16}),
]
GENERIC = [
    ("Gemma", {"head_dim": 8}),
    ("GPT2", {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    ("GPTNeoX", {}),
    ("Phi3", {}),
    ("Olmo2", {}),
    ("Llama", {"hidden_act": "gelu"}),
]


@torch.inference_mode()
def run(runner: Any, sequences: list[list[int]], prompt: int) -> torch.Tensor:
    """Logits of each step [steps, sequences, V], in slots that are out of order at first use."""
    store = SlotStore(3, 20)
    batch = PromptBatch(tuple(tuple(s[: prompt + i]) for i, s in enumerate(sequences)), ((1,), (0, 2)))
    made = [runner.prefill(batch, store).flip(0)]
    store.reserve(70)
    for step in range(4):
        at = [prompt + 1 + step, prompt + step]
        tokens = [sequences[1][at[0]], sequences[0][at[1]]]
        made.append(runner.decode(DecodeStep.build(tokens, at, store.length, torch.device("cpu")), store))
    return torch.stack(made).flip(1)


@pytest.mark.parametrize(("kind", "changes"), [*LEAN, *GENERIC])
def test_runner_equals_the_models_forward(kind: str, changes: dict[str, Any]) -> None:
    model = model_of(kind, **changes)
    with torch.inference_mode():
        runner = choose_runner(model)
    assert type(runner) is (LeanRunner if (kind, changes) in LEAN else GenericRunner)
    sequences = torch.randint(3, 67, (2, 24), generator=torch.Generator().manual_seed(1)).tolist()
    made = run(runner, sequences, 17)
    for row, sequence in enumerate(sequences):
        expected = model(torch.tensor([sequence])).logits[0, 16 + row : 21 + row]
        torch.testing.assert_close(made[:, row], expected, atol=2e-4, rtol=1e-4)


def test_both_runners_agree_in_bfloat16() -> None:
    model = model_of("Qwen2").to(torch.bfloat16)
    sequences = torch.randint(3, 67, (2, 24), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.inference_mode():
        lean, generic = (run(made(model), sequences, 17).float() for made in (LeanRunner, GenericRunner))
    assert float((lean - generic).abs().mean() / generic.std()) < 0.05


def test_a_lean_form_that_differs_falls_back(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(LeanRunner, "decode", lambda self, step, store: torch.zeros(len(step.tokens), 67))
    with caplog.at_level(logging.WARNING), torch.inference_mode():
        assert isinstance(choose_runner(model_of("Llama")), GenericRunner)
    assert "differs from the lean form" in caplog.text


@pytest.mark.parametrize(
    ("kind", "changes", "words"),
    [
        ("Mamba", {"state_size": 4}, "state is not a list of keys and values"),
        ("Qwen3Next", {"linear_num_value_heads": 4, "linear_num_key_heads": 2}, "linear_attention layers"),
    ],
)
def test_recurrent_models_are_refused(tmp_path: Path, kind: str, changes: dict[str, Any], words: str) -> None:
    model_of(kind, **changes).save_pretrained(tmp_path)
    with pytest.raises(BackendError, match=words):
        LocalRolloutBackend(model=tmp_path, seed=0, precision="float32")


def test_a_sliding_window_bounds_the_length(tmp_path: Path) -> None:
    model_of("Mistral", sliding_window=32).save_pretrained(tmp_path)
    loaded = load_model(tmp_path, precision="float32", device="cpu")
    assert loaded.max_length == 32


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("with_bias", [True, False])
def test_dense_stacks_adds_and_refreshes(dtype: torch.dtype, with_bias: bool) -> None:
    weights = [torch.randn(5, 32).to(dtype), torch.randn(11, 32).to(dtype)]
    biases = [torch.randn(5).to(dtype), torch.randn(11).to(dtype)] if with_bias else []
    inputs, residual = torch.randn(3, 32).to(dtype), torch.randn(3, 16).to(dtype)
    dense = Dense(weights, biases)
    for _ in range(2):
        whole = torch.cat(weights), torch.cat(biases) if biases else None
        expected = torch.nn.functional.linear(
            inputs.float(), whole[0].float(), None if not biases else whole[1].float()
        )
        tolerance = {"atol": 0.2, "rtol": 0.02} if dtype is torch.bfloat16 else {"atol": 1e-4, "rtol": 1e-4}
        torch.testing.assert_close(dense(inputs).float(), expected, **tolerance)
        torch.testing.assert_close(dense.plus(inputs, residual).float(), expected + residual.float(), **tolerance)
        weights[0].mul_(2)
        dense.refresh()


def test_packing_is_refused_for_what_it_cannot_do() -> None:
    assert not packing_works(torch.float64)
