"""What runs inside vLLM's worker processes, through its `worker_extension_cls`.

Importing this module registers the weight-transfer engine, since a worker imports the extension before it builds one.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from roll_plugin_vllm.asks import position_seed
from roll_plugin_vllm.lifeline import end_with
from roll_plugin_vllm.routes import identifier
from roll_plugin_vllm.transfer import register

SEED, POSITION = "roll_seed", "roll_position"
"""Names of a request's extra arguments: seed of its stream, and the position of its first new token there."""


class PositionedSampler(torch.nn.Module):
    """Draws the token at each position of a response with a seed of its own.

    vLLM's first model runner gives a request one generator that starts anew when the request is sent again; with a
    seed a position, a response that is resumed, preempted or moved to another replica goes on as it would have gone
    on. The second model runner draws by position itself.

    Args:
        inner: vLLM's sampler of top-k, top-p and token.
        runner: the model runner; it knows the requests of each row.
    """

    def __init__(self, inner: torch.nn.Module, runner: Any) -> None:
        super().__init__()
        self._inner = inner
        self._runner = runner

    def forward(
        self, logits: Tensor, generators: dict[int, torch.Generator], k: Tensor | None, p: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """As vLLM's own `TopKTopPSampler.forward`."""
        own = dict(generators)
        for row, request_id in enumerate(self._runner.input_batch.req_ids[: logits.shape[0]]):
            state = self._runner.requests[request_id]
            extra = state.sampling_params.extra_args or {}
            if SEED in extra:
                position = extra[POSITION] + len(state.output_token_ids)
                own[row] = torch.Generator(device=logits.device)
                own[row].manual_seed(position_seed(extra[SEED], position))
        drawn: tuple[Tensor, Tensor | None] = self._inner(logits, own, k, p)
        return drawn


class WorkerExtension:
    """Methods added to vLLM's worker, called through `collective_rpc`."""

    model_runner: Any
    device: torch.device
    use_v2_model_runner: bool

    def roll_prepare(self, owner: int) -> tuple[bool, str]:
        """Make draws depend on their position, and tie this process to the replica's.

        Args:
            owner: process id of the replica.

        Returns:
            Whether the model runner draws by position itself; what names the worker's device, empty on CPUs.
        """
        threading.Thread(target=end_with, args=(owner,), name="roll-lifeline", daemon=True).start()
        if self.use_v2_model_runner:
            return True, identifier(self.device)
        sampler = self.model_runner.sampler
        if not isinstance(sampler.topk_topp_sampler, PositionedSampler):
            sampler.topk_topp_sampler = PositionedSampler(sampler.topk_topp_sampler, self.model_runner)
        return False, identifier(self.device)


register()
