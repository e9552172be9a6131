"""TRL's GRPOTrainer and ours on the same task, side by side.

Both train SmolLM2-135M with float32 master weights and bfloat16 compute on "What is a + b?", 8 prompts x 8 samples a
step, at most 32 new tokens, constant learning rate, no KL, temperature 1. Each measurement runs in a process of its
own, the two engines alternating; peak memory is the process's largest resident set.

    python benchmarks/vs_trl.py                      # speed, memory, and time until a step's mean reward reaches 0.9
    python benchmarks/vs_trl.py --until 0            # without the last, which takes TRL some ten minutes

The last line is `ratio <ours/TRL samples per second> memory <ours/TRL> time_to_0.9 <ours/TRL>` for full fine-tuning
(nan for the last figure with --until 0). Memory counts the trainer's process and its verifier processes. Needs
`pip install trl==1.16.0` beside roll-core[train].
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROMPTS, GROUP, NEW_TOKENS = 8, 8, 32
LEARNING_RATE = {"full": 2e-5, "lora": 2e-4}
LORA_RANK = 16


def questions(count: int, seed: int) -> list[dict[str, Any]]:
    """Rows with `prompt` and `answer`."""
    draw = random.Random(seed)
    pairs = [(draw.randint(1, 9), draw.randint(1, 9)) for _ in range(count)]
    return [{"prompt": f"What is {a} + {b}? Answer with a number.", "answer": a + b} for a, b in pairs]


def is_right(text: str, answer: int) -> float:
    """1 when the last number in the text is the answer."""
    numbers = re.findall(r"-?\d+", text)
    return float(bool(numbers) and int(numbers[-1]) == answer)


class Recorder:
    """What each step took: seconds since the start, mean reward, seconds spent generating, tokens sampled."""

    def __init__(self) -> None:
        self.started = time.perf_counter()
        self.rows: list[dict[str, float]] = []
        self.children_gib = 0.0

    def step(self, reward: float, rollout_s: float, tokens: float) -> None:
        """A step has ended."""
        seconds = time.perf_counter() - self.started
        self.rows.append({"seconds": seconds, "reward": reward, "rollout_s": rollout_s, "tokens": tokens})
        self.children_gib = max(self.children_gib, children_gib())

    def report(self) -> None:
        """Print the record as one JSON line."""
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({"rows": self.rows, "peak_gib": own + self.children_gib}))


def children_gib() -> float:
    """Peak memory of this process's living children, from /proc (rusage would count the parent's at their birth)."""
    total = 0.0
    for file in Path("/proc/self/task").glob("*/children"):
        for child in file.read_text().split():
            status = Path(f"/proc/{child}/status").read_text()
            total += next(float(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 2**20
    return total


def run_trl(model: str, mode: str, steps: int, seed: int) -> None:
    """Measure TRL in this process."""
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    record = Recorder()
    last = {"reward": 0.0, "rollout_s": 0.0, "tokens": 0.0}

    def reward(completions: list[Any], answer: list[int], completion_ids: list[Any], **_: Any) -> list[float]:
        texts = [c[0]["content"] for c in completions]
        values = [is_right(t, a) for t, a in zip(texts, answer, strict=True)]
        last.update(reward=statistics.mean(values), tokens=float(sum(map(len, completion_ids))))
        return values

    class TimedTrainer(GRPOTrainer):  # type: ignore[misc]  # trl is not typed
        def _generate(self, *args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            result = super()._generate(*args, **kwargs)
            last["rollout_s"] = time.perf_counter() - started
            return result

    class OnStep(TrainerCallback):  # type: ignore[misc]
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            if not record.rows:
                record.started = time.perf_counter()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            record.step(**last)

    rows = questions(PROMPTS * steps, seed)
    data = Dataset.from_list(
        [{"prompt": [{"role": "user", "content": r["prompt"]}], "answer": r["answer"]} for r in rows]
    )
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(
            output_dir=folder, per_device_train_batch_size=PROMPTS * GROUP, num_generations=GROUP, max_steps=steps,
            max_completion_length=NEW_TOKENS, learning_rate=LEARNING_RATE[mode], lr_scheduler_type="constant", beta=0.0,
            temperature=1.0, top_k=0, bf16=True, use_cpu=not torch.cuda.is_available(), gradient_checkpointing=False,
            report_to="none", save_strategy="no", logging_steps=1000, seed=seed, disable_tqdm=True,
        )  # fmt: skip
        trainer = TimedTrainer(
            model=AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32),
            processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
            reward_funcs=reward, args=config, train_dataset=data, callbacks=[OnStep()],
            peft_config=LoraConfig(r=LORA_RANK, lora_alpha=2 * LORA_RANK, target_modules="all-linear")
            if mode == "lora" else None,
        )  # fmt: skip
        trainer.train()
    record.report()


def run_ours(model: str, mode: str, steps: int, seed: int) -> None:
    """Measure this engine in this process."""
    import roll_core as roll

    record = Recorder()

    def last_number(response: str, reference: Any) -> float:
        return is_right(response, reference)

    class OnStep:
        def start(self, run: Any) -> None:
            record.started = time.perf_counter()

        def log(self, step: int, metrics: dict[str, float]) -> None:
            tokens = metrics["rollout/response_tokens_mean"] * PROMPTS * GROUP
            record.step(metrics["reward/score/sums"], metrics["time/rollout_s"], tokens)

        def log_rollouts(self, step: int, groups: Any) -> None:
            pass

        def finish(self, status: str) -> None:
            pass

    rows = [{"prompt": r["prompt"], "reference": r["answer"]} for r in questions(PROMPTS * steps, seed)]
    with tempfile.TemporaryDirectory() as folder:
        roll.train(
            name="vs_trl", folder=folder, seed=seed, steps=steps,
            model={"path": model} | ({"lora": {"rank": LORA_RANK, "alpha": 2 * LORA_RANK}} if mode == "lora" else {}),
            domains={"sums": {"data": {"use": "rows", "rows": rows}, "verifier": last_number}},
            mixer={"use": "ratio", "weights": {"sums": 1}},
            rollout={"sampling": {"max_new_tokens": NEW_TOKENS}},
            batch={"prompts": PROMPTS, "group_size": GROUP},
            train={"optim": {"lr": LEARNING_RATE[mode]}},
            eval={"at_start": False, "at_end": False}, checkpoint={"every": 0, "at_end": False}, trackers=[OnStep()],
        )  # fmt: skip
    record.report()


def measure(engine: str, args: argparse.Namespace, mode: str, steps: int) -> dict[str, Any]:
    """Run one engine in a process of its own."""
    command = [sys.executable, __file__, "--worker", engine, "--mode", mode, "--steps", str(steps)]
    command += ["--model", args.model, "--seed", str(args.seed)]
    environment = {"GOMP_SPINCOUNT": "10000"} | os.environ  # what `roll` sets; the same for both
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{engine} failed:\n{done.stderr[-4000:]}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def steps_of(run: dict[str, Any]) -> list[dict[str, float]]:
    """Each step's own seconds beside what was recorded; the first step (warm-up) is left out."""
    pairs = itertools.pairwise(run["rows"])
    return [row | {"step_s": row["seconds"] - before["seconds"]} for before, row in pairs]


def step_seconds(run: dict[str, Any]) -> float:
    """Median seconds a step."""
    return statistics.median(row["step_s"] for row in steps_of(run))


def rates(run: dict[str, Any]) -> tuple[float, float]:
    """Median tokens per second: sampled tokens over the time generating, and over the rest of the step."""
    rows = steps_of(run)
    rollout = statistics.median(r["tokens"] / r["rollout_s"] for r in rows)
    return rollout, statistics.median(r["tokens"] / (r["step_s"] - r["rollout_s"]) for r in rows)


def seconds_until(run: dict[str, Any], reward: float) -> float:
    """Seconds until a step's mean reward reaches `reward`; nan when it never did."""
    return next((row["seconds"] for row in run["rows"] if row["reward"] >= reward), math.nan)


def compare(args: argparse.Namespace, mode: str) -> tuple[float, float]:
    """Alternate both engines; print and return (samples per second ratio, memory ratio), ours over TRL's."""
    runs: dict[str, list[dict[str, Any]]] = {"trl": [], "ours": []}
    for _ in range(args.rounds):
        for engine, found in runs.items():
            found.append(measure(engine, args, mode, args.steps))
            last = found[-1]
            rollout, train = rates(last)
            print(
                f"{mode} {engine}: {step_seconds(last):.2f} s/step, rollout {rollout:.0f} tokens/s, train {train:.0f} "
                f"tokens/s, peak {last['peak_gib']:.2f} GiB",
                flush=True,
            )
    speed = [step_seconds(t) / step_seconds(o) for t, o in zip(runs["trl"], runs["ours"], strict=True)]
    memory = [o["peak_gib"] / t["peak_gib"] for t, o in zip(runs["trl"], runs["ours"], strict=True)]
    print(
        f"{mode}: samples per second {statistics.median(speed):.2f} times TRL's, memory {statistics.median(memory):.2f}"
    )
    return statistics.median(speed), statistics.median(memory)


def time_to(args: argparse.Namespace) -> float:
    """Print and return ours over TRL's time until the reward, full fine-tuning."""
    seconds = {}
    for engine in ("ours", "trl"):
        run = measure(engine, args, "full", args.max_steps)
        seconds[engine] = seconds_until(run, args.until)
        curve = " ".join(f"{row['reward']:.2f}" for row in run["rows"])
        print(f"{engine}: reward {args.until} after {seconds[engine]:.0f} s; by step: {curve}", flush=True)
    return seconds["ours"] / seconds["trl"]


def main() -> None:
    """Parse arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m", help="Hugging Face folder, or a model name of ours")
    parser.add_argument("--modes", nargs="+", default=["full", "lora"], choices=["full", "lora"])
    parser.add_argument("--steps", type=int, default=3, help="steps a measurement, the first left out")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--until", type=float, default=0.9, help="measure the time until this reward; 0 leaves it out")
    parser.add_argument("--max-steps", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", choices=["trl", "ours"], help=argparse.SUPPRESS)
    parser.add_argument("--mode", default="full", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        {"trl": run_trl, "ours": run_ours}[args.worker](args.model, args.mode, args.steps, args.seed)
        return
    from roll_core.models import resolve_model

    args.model = str(resolve_model(args.model))
    ratios = {mode: compare(args, mode) for mode in args.modes}
    speed, memory = ratios.get("full", next(iter(ratios.values())))
    until = time_to(args) if args.until else math.nan
    print(f"ratio {speed:.2f} memory {memory:.2f} time_to_0.9 {until:.3f}")


if __name__ == "__main__":
    main()
