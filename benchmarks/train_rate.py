"""How much of the machine's matrix-product rate the train phase reaches.

One update of the local train strategy (forward, backward, optimiser step) on a GRPO-like batch, against a square
bfloat16 product measured right before and after it, so that both see the same machine. Work counted: 6 operations a
weight (4 with adapters, where the weights get no gradient) for each computed token (layers) and each scored token
(output layer); a shared prompt counts once, attention scores, adapters and the optimiser count nothing.

    python benchmarks/train_rate.py [--model FOLDER] [--micro-tokens 4096] [--threads 2]

Last line: `rate <train GFLOP/s> matmul <GFLOP/s> share <x>`, the median repeat.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

from roll_core.builtin.local_train import optimizer
from roll_core.builtin.local_train.strategy import LocalTrainStrategy
from roll_core.contracts import LoraSettings, LossInputs, MiniBatch, OptimSettings, Term, TrainSetup
from roll_core.types import Batch

MATMUL_SIZE = 2048
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
clock = time.perf_counter


def random_model(folder: Path) -> Path:
    """Write a model of SmolLM2-135M's shapes with random weights."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=576,
        intermediate_size=1536,
        num_hidden_layers=30,
        num_attention_heads=9,
        num_key_value_heads=3,
        max_position_embeddings=8192,
        tie_word_embeddings=True,
        pad_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def grpo_batch(args: argparse.Namespace, vocabulary: int) -> Batch:
    """Prompts of one length, ragged responses between half and one and a half times the mean."""
    rng = np.random.default_rng(0)
    rows: list[tuple[int, np.ndarray[Any, Any]]] = []
    for group in range(args.prompts):
        prompt = rng.integers(3, vocabulary, args.prompt_tokens)
        for _ in range(args.group_size):
            length = int(rng.integers(args.response_tokens // 2, args.response_tokens * 3 // 2 + 1))
            rows.append((group, np.concatenate([prompt, rng.integers(3, vocabulary, length)])))
    mask = np.concatenate([np.arange(len(tokens)) >= args.prompt_tokens for _, tokens in rows])
    b = len(rows)
    batch = Batch(
        token_ids=np.concatenate([tokens for _, tokens in rows]).astype(np.int32),
        offsets=np.cumsum([0, *(len(tokens) for _, tokens in rows)]).astype(np.int64),
        response_mask=mask,
        loss_mask=mask,
        rollout_logprobs=np.zeros(len(mask), np.float32),
        segment_rollout=np.arange(b),
        rollout_group=np.array([group for group, _ in rows]),
        rollout_domain=np.zeros(b, np.int64),
        domains=("bench",),
        rewards=np.zeros(b, np.float32),
        scores=np.zeros(b, np.float32),
    )
    batch.add("advantages", np.where(mask, rng.normal(size=len(mask)), 0.0).astype(np.float32))
    return batch


def clipped_ratio(inputs: LossInputs) -> torch.Tensor:
    """PPO's clipped loss per token."""
    ratio = torch.exp(inputs.logprobs - inputs.old_logprobs)
    return -torch.minimum(ratio * inputs.advantages, ratio.clamp(0.8, 1.28) * inputs.advantages)


def matmul_rate(dtype: torch.dtype) -> float:
    """GFLOP/s of a square product, best of five."""
    a, b = (torch.randn(MATMUL_SIZE, MATMUL_SIZE).to(dtype) for _ in range(2))
    times = []
    for _ in range(6):
        start = clock()
        a @ b
        times.append(clock() - start)
    return 2 * MATMUL_SIZE**3 / min(times[1:]) / 1e9


class StepTimer:
    """Adds up the seconds spent in optimiser steps."""

    def __init__(self) -> None:
        self.seconds = 0.0
        original = optimizer.Optimizer.step

        def timed(this: optimizer.Optimizer) -> optimizer.StepReport:
            start = clock()
            report = original(this)
            self.seconds += clock() - start
            return report

        optimizer.Optimizer.step = timed  # type: ignore[assignment, method-assign]  # wrapped to time it


def run(args: argparse.Namespace, model: Path) -> None:
    """Measure and print."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model)
    setup = TrainSetup(model, OptimSettings(lr=1e-6), 100, lora=LoraSettings() if args.lora else None)
    strategy = LocalTrainStrategy(
        setup=setup, micro_tokens=args.micro_tokens, precision=args.precision, logprob_chunk=args.logprob_chunk
    )
    parameters = sum(int(np.prod(info.shape)) for info in strategy.weight_source().manifest())
    head = config.vocab_size * config.hidden_size
    layers = parameters - head * (1 if config.tie_word_embeddings else 2)
    batch = grpo_batch(args, config.vocab_size)
    weights = (batch.loss_mask / batch.loss_mask.sum()).astype(np.float32)
    mini = MiniBatch(np.arange(batch.n_segments), (Term("policy", clipped_ratio, weights),))
    strategy.update(batch, [mini])
    timer = StepTimer()
    results = []
    for _ in range(args.repeats):
        timer.seconds = 0.0
        before = matmul_rate(torch.bfloat16)
        start = clock()
        metrics = strategy.update(batch, [mini])
        seconds = clock() - start
        matmul = (before + matmul_rate(torch.bfloat16)) / 2
        work = (4 if args.lora else 6) * (metrics["train/rows"] * layers + metrics["train/tokens"] * head) / 1e9
        without = work / (seconds - timer.seconds) / matmul
        results.append((work / seconds / matmul, work / seconds, matmul))
        print(
            f"{metrics['train/rows']:.0f} rows, {metrics['train/tokens']:.0f} scored, "
            f"{metrics['train/micro_batches']:.0f} micro-batches, {work:.0f} GFLOP, {seconds:.2f} s "
            f"(optimiser {timer.seconds:.2f} s): {work / seconds:.0f} of {matmul:.0f} GFLOP/s, "
            f"share {work / seconds / matmul:.3f}, without the optimiser {without:.3f}"
        )
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")
    share = median(result[0] for result in results)
    _, rate, matmul = min(results, key=lambda result: abs(result[0] - share))
    print(f"rate {rate:.1f} matmul {matmul:.1f} share {share:.3f}")


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=None, help="Hugging Face folder; default: random weights")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=43)
    parser.add_argument("--response-tokens", type=int, default=24)
    parser.add_argument("--micro-tokens", type=int, default=4096)
    parser.add_argument("--logprob-chunk", type=int, default=2048)
    parser.add_argument("--precision", choices=["auto", "float32", "bfloat16"], default="auto")
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--threads", type=int, default=0, help="0 leaves torch's choice")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--clock",
        choices=list(CLOCKS),
        default="wall",
        help="cpu: count CPU seconds, for a busy machine and one thread",
    )
    args = parser.parse_args()
    global clock  # noqa: PLW0603  # one clock for every measurement of this script
    clock = CLOCKS[args.clock]
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.model is not None:
        run(args, args.model)
        return
    with tempfile.TemporaryDirectory() as folder:
        run(args, random_model(Path(folder)))


if __name__ == "__main__":
    main()
