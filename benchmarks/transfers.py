"""What it takes to bring a batch to the ranks that train on it: each its own share, or the whole batch to each.

    python benchmarks/transfers.py [--prompts 64] [--group-size 8] [--mean 1500] [--workers 2,4] [--repeat 5]

Rollouts have log-normal response lengths, cut at `--max-tokens`, and the columns of a GRPO step with a reference
model. `shares` is what the FSDP strategy does: the batch is cut by token count and scattered, packed out of band.
`whole` pickles the batch once for every rank. Both go through the same executors to worker processes that read every
column. Seconds are the medians of whole calls: cutting, packing, sending, and the answer; workers and driver share this
machine, so a network is not in it. The last line is `ratio bytes <x> seconds <y>`: whole over shares, at the largest
number of workers on the last executor.
"""

from __future__ import annotations

import argparse
import os
import pickle
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from roll_core.cluster import Executor, LocalExecutor, RayExecutor, WorkerGroup, WorkerSpec
from roll_core.types import Batch
from roll_plugin_fsdp.shares import cut, shares

_LIMIT_S = 120.0


class Sink:
    """A rank that reads what it gets."""

    def share(self, batch: Batch) -> int:
        """Tokens of a batch, every column read."""
        for column in (batch.token_ids, batch.loss_mask, batch.rollout_logprobs, *batch.columns.values()):
            column.sum()
        return len(batch.token_ids)

    def whole(self, pickled: bytes) -> int:
        """The same of a pickled batch."""
        return self.share(pickle.loads(pickled))


def ragged_batch(args: argparse.Namespace) -> Batch:
    """Log-normal response lengths behind prompts of a group's own length."""
    rng = np.random.default_rng(0)
    prompts = np.repeat(rng.integers(64, 512, args.prompts), args.group_size)
    raw = rng.lognormal(np.log(args.mean) - 0.5 * args.sigma**2, args.sigma, len(prompts))
    responses = np.clip(raw, 16, args.max_tokens).astype(np.int64)
    lengths = prompts + responses
    n, b = int(lengths.sum()), len(lengths)
    mask = np.concatenate([np.arange(length) >= prompt for length, prompt in zip(lengths, prompts, strict=True)])
    batch = Batch(
        token_ids=rng.integers(0, 150_000, n, dtype=np.int32),
        offsets=np.concatenate([[0], np.cumsum(lengths)]),
        response_mask=mask,
        loss_mask=mask.copy(),
        rollout_logprobs=rng.normal(size=n).astype(np.float32),
        segment_rollout=np.arange(b),
        rollout_group=np.repeat(np.arange(args.prompts), args.group_size),
        rollout_domain=np.zeros(b, np.int64),
        domains=("bench",),
        rewards=np.zeros(b, np.float32),
        scores=np.zeros(b, np.float32),
    )
    for name in ("old_logprobs", "ref_logprobs", "advantages"):
        batch.add(name, rng.normal(size=n).astype(np.float32))
    return batch


def send_shares(batch: Batch, group: WorkerGroup) -> list[int]:
    """Each rank its share; returns tokens a rank."""
    parts = shares(batch, np.arange(batch.n_segments, dtype=np.int64), group.size)
    return group.scatter("share", [(cut(batch, part),) for part in parts], timeout_s=_LIMIT_S, what="a share")


def send_whole(batch: Batch, group: WorkerGroup) -> list[int]:
    """Each rank the batch, pickled for it."""
    pickled = [(pickle.dumps(batch),) for _ in range(group.size)]
    return group.scatter("whole", pickled, timeout_s=_LIMIT_S, what="the whole batch")


def measure(
    send: Callable[[Batch, WorkerGroup], list[int]], batch: Batch, group: WorkerGroup, executor: Executor, repeat: int
) -> tuple[float, float, float, list[int]]:
    """Bytes of one call, its seconds, the driver's seconds for moving, and tokens a rank."""
    send(batch, group)
    executor.transfers.take_metrics()
    seconds: list[float] = []
    tokens: list[int] = []
    for _ in range(repeat):
        start = time.perf_counter()
        tokens = send(batch, group)
        seconds.append(time.perf_counter() - start)
    moved = executor.transfers.take_metrics()
    nbytes = sum(value for name, value in moved.items() if name.endswith("_bytes")) / repeat
    moving = sum(value for name, value in moved.items() if name.endswith("_s")) / repeat
    return nbytes, statistics.median(seconds), moving, tokens


@contextmanager
def executors() -> Iterator[list[Executor]]:
    """The local one, and a Ray of this machine."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    with warnings.catch_warnings(), LocalExecutor() as local:
        warnings.simplefilter("ignore")
        with RayExecutor() as ray:
            yield [local, ray]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--mean", type=float, default=1500.0)
    parser.add_argument("--sigma", type=float, default=0.8)
    parser.add_argument("--max-tokens", type=int, default=8192)
    parser.add_argument("--workers", default="2,4")
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    batch = ragged_batch(args)
    print(f"batch: {batch.n_segments} rollouts, {len(batch.token_ids):,} tokens, {len(pickle.dumps(batch)):,} bytes")
    print(f"{'executor':<9} {'workers':>7} {'what':<7} {'bytes':>13} {'seconds':>8} {'moving':>8} {'fullest/mean':>12}")
    ratios = ""
    with executors() as running:
        for executor in running:
            for count in map(int, args.workers.split(",")):
                spec = WorkerSpec("rank", "transfers:Sink", count, cpus=0.2)
                group = executor.start(spec, timeout_s=_LIMIT_S)
                found = {}
                for name, send in (("shares", send_shares), ("whole", send_whole)):
                    found[name] = nbytes, seconds, moving, tokens = measure(send, batch, group, executor, args.repeat)
                    balance = max(tokens) * count / sum(tokens)
                    print(f"{executor.name:<9} {count:>7} {name:<7} {nbytes:>13,.0f} {seconds:>8.3f} {moving:>8.3f} "
                          f"{balance:>12.4f}")  # fmt: skip
                group.close()
                whole, own = found["whole"], found["shares"]
                ratios = f"ratio bytes {whole[0] / own[0]:.2f} seconds {whole[1] / own[1]:.2f}"
                print(f"{executor.name:<9} {count:>7} {ratios}")
    print(ratios)


if __name__ == "__main__":
    main()
