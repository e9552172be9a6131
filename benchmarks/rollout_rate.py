"""Tokens per second of the local rollout backend beside Hugging Face `generate`, alternating in one run.

    python benchmarks/rollout_rate.py --model FOLDER

Without `--model` a randomly initialised model with the shapes of SmolLM2-135M is made. Every request generates exactly
`--new-tokens` tokens (no stop token), so both sides do the same work. The last line is `rate <ours> hf <theirs> ratio
<ours / theirs>`, medians in tokens per second.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from roll_core.builtin.local_rollout.backend import LocalRolloutBackend
from roll_core.types import GenerateRequest, SamplingParams

_SMOLLM2_135M = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "rope_theta": 100000.0,
}


def main() -> None:
    """Run the benchmark from the command line."""
    options = _options()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.model or _random_model(Path(scratch))
        backend = LocalRolloutBackend(model=folder, seed=0, max_slots=options.prompts * options.group_size)
        theirs = _hf_model(folder)
        prompts = _prompts(options, int(theirs.config.vocab_size))
        ours_s, theirs_s = [], []
        for turn in range(options.repeats + 1):
            seconds = _ours(backend, prompts, options, turn), _hf(theirs, prompts, options)
            if turn == 0:
                continue  # warms both up
            ours_s.append(seconds[0])
            theirs_s.append(seconds[1])
            steps = f"ours {seconds[0]:.2f} s ({1e3 * seconds[0] / options.new_tokens:.1f} ms a step)"
            print(f"{steps}, generate {seconds[1]:.2f} s ({1e3 * seconds[1] / options.new_tokens:.1f} ms a step)")
    tokens = options.prompts * options.group_size * options.new_tokens
    ours, hf = tokens / statistics.median(ours_s), tokens / statistics.median(theirs_s)
    print(f"rate {ours:.1f} hf {hf:.1f} ratio {ours / hf:.2f}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="Hugging Face folder; without it a random model is made")
    parser.add_argument("--prompts", type=int, default=8, help="different prompts")
    parser.add_argument("--group-size", type=int, default=8, help="samples of each prompt")
    parser.add_argument("--prompt-tokens", type=int, default=43)
    parser.add_argument("--new-tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3, help="measured turns of each side")
    return parser.parse_args()


def _random_model(folder: Path) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**_SMOLLM2_135M)).save_pretrained(folder)
    return folder


def _hf_model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    dtype = torch.bfloat16  # the faster one for `generate` where the processor has it, and what vLLM and TRL take
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True).eval()


def _prompts(options: argparse.Namespace, vocabulary: int) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(0)
    size = (options.prompts, options.prompt_tokens)
    return [tuple(row) for row in torch.randint(3, vocabulary, size, generator=generator).tolist()]


def _ours(
    backend: LocalRolloutBackend, prompts: list[tuple[int, ...]], options: argparse.Namespace, turn: int
) -> float:
    sampling = SamplingParams(max_new_tokens=options.new_tokens)

    async def generate() -> None:
        requests = [
            GenerateRequest(prompt, sampling, 1000 * turn + index, f"{index}/{sample}", group_key=str(index))
            for index, prompt in enumerate(prompts)
            for sample in range(options.group_size)
        ]
        await asyncio.gather(*map(backend.generate, requests))

    start = time.perf_counter()
    asyncio.run(generate())
    return time.perf_counter() - start


def _hf(model: Any, prompts: list[tuple[int, ...]], options: argparse.Namespace) -> float:
    ids = torch.tensor(prompts).repeat_interleave(options.group_size, 0)
    start = time.perf_counter()
    with torch.inference_mode():
        model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            min_new_tokens=options.new_tokens,
            max_new_tokens=options.new_tokens,
            pad_token_id=0,
        )
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
