"""A tiny language model and tokenizer made on the spot, so that tests need no download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz +-*/=?.,:;!(){}[]\"'\\_\n"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<s>' + m['role'][0] + ':' + m['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>a:' }}{% endif %}"
)


def make_tiny_tokenizer() -> Any:
    """A character tokenizer with a chat template; unknown characters become `<unk>`."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    specials = ["<unk>", "<s>", "</s>"]
    vocab = {token: i for i, token in enumerate([*specials, *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))  # noqa: S106  # a token, no password
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in specials])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",  # noqa: S106
        bos_token="<s>",  # noqa: S106
        eos_token="</s>",  # noqa: S106
        pad_token="</s>",  # noqa: S106
        model_max_length=512,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_tiny_model(
    folder: Path, *, seed: int = 0, hidden: int = 48, layers: int = 2, initializer_range: float = 0.02
) -> Path:
    """Write a randomly initialised Llama with a character tokenizer to `folder`, in Hugging Face format.

    Grouped-query attention and tied embeddings, as small models have them. With the default `initializer_range` every
    token is about equally likely whatever the hidden state; adapters, which leave the embeddings alone, need a larger
    one to learn anything. Returns `folder`.
    """
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    tokenizer = make_tiny_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=initializer_range,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
