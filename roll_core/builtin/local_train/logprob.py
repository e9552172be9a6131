"""Log-probabilities of target tokens from hidden states, without the full [n, V] logits ever existing.

`token_logprobs` works in chunks of rows. A chunk's logits are computed in the format of the weights into a buffer
that is kept and reused; softmax and everything after it run in float32 over a few rows at a time, which stay in
cache. The backward pass computes each chunk again, except the last one where it is still in the buffer, turns the
logits into their gradient in place, and multiplies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

_CPU_BLOCK = 1 << 20
_GPU_BLOCK = 1 << 26
_WEIGHT_BLOCK = 4096
"""Rows of the head whose gradient is computed at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class KeptSets:
    """The vocabulary that truncated sampling kept, per target: target i's ids are `ids[offsets[i]:offsets[i + 1]]`.

    ids [sum of counts]; offsets [m + 1] on the CPU. A target without ids was drawn from the whole vocabulary.
    """

    ids: Tensor
    offsets: Tensor

    def block(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Ids [r, k] of targets `start:stop` padded to the longest set, and which are real [r, k]."""
        offsets = self.offsets[start : stop + 1]
        counts = offsets.diff()
        columns = torch.arange(max(1, int(counts.max())))
        valid = columns < counts[:, None]
        places = torch.where(valid, offsets[:-1, None] + columns, 0).to(self.ids.device)
        ids = self.ids[places] if len(self.ids) else torch.zeros_like(places)
        return ids, valid.to(self.ids.device)


@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """What is to be scored: token_ids [m]; temperatures [m] float32, None where all are 1; kept sets or None."""

    token_ids: Tensor
    temperatures: Tensor | None = None
    kept: KeptSets | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """logits = cap(scale * (hidden @ weight.T + bias)), cap(x) = softcap * tanh(x / softcap).

    `weight_grad` returns the float32 buffer that the gradient of the weight is added to, in place of handing it to
    autograd, which would build it in the weight's format first.
    """

    weight: Tensor
    bias: Tensor | None = None
    scale: float = 1.0
    softcap: float | None = None
    weight_grad: Callable[[], Tensor] | None = None


@dataclass(slots=True, eq=False)
class Workspace:
    """The one buffer of logits, reused by every call; `stamp` tells whether it still holds what a call left there."""

    chunk: int
    stamp: int = 0
    buffer: Tensor | None = field(default=None, repr=False)

    def logits(self, rows: int, vocabulary: int, like: Tensor) -> Tensor:
        """An uninitialised [rows, vocabulary] in the format and on the device of `like`."""
        buffer = self.buffer
        size = rows * vocabulary
        if buffer is None or buffer.numel() < size or buffer.dtype != like.dtype or buffer.device != like.device:
            buffer = self.buffer = torch.empty(size, dtype=like.dtype, device=like.device)
        self.stamp += 1
        return buffer[:size].view(rows, vocabulary)


@dataclass(frozen=True, slots=True, eq=False)
class TokenScores:
    """Of each target [m], in float32.

    logprobs: under the distribution it was sampled from; full_logprobs: under the full softmax at the same
    temperature; entropy: of the latter, None unless asked for.
    """

    logprobs: Tensor
    full_logprobs: Tensor
    entropy: Tensor | None


def token_logprobs(
    hidden: Tensor, head: Head, targets: Targets, workspace: Workspace, *, entropy: bool = False
) -> TokenScores:
    """Score `targets` from the hidden states that predict them.

    Args:
        hidden: [m, H], in the format of the head's weight.
        head: the output layer, weight [V, H].
        targets: m tokens with their temperatures and kept sets.
        workspace: buffer; its `chunk` is the largest number of rows whose logits exist at once.
        entropy: whether the entropies are wanted.
    """
    weight = head.weight if head.weight_grad is None else head.weight.detach()
    full, kept, entropies = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]  # torch's stub
        hidden, weight, head.bias, head, targets, workspace, entropy
    )
    return TokenScores(full if kept is None else kept, full, entropies)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


class _TokenLogprobs(torch.autograd.Function):
    """-> (full log-probs [m], log-probs over the kept sets [m] or None, entropies [m] or None)."""

    @staticmethod
    def forward(  # noqa: PLR0917  # torch passes them by position
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        head: Head,
        targets: Targets,
        workspace: Workspace,
        entropy: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(hidden, weight, bias)
        ctx.head, ctx.targets, ctx.workspace = head, targets, workspace
        rows = len(hidden)
        full = torch.empty(rows, dtype=_accumulator(hidden.dtype), device=hidden.device)
        kept = torch.empty_like(full) if targets.kept is not None else None
        entropies = torch.empty_like(full) if entropy else None
        for start in range(0, rows, workspace.chunk):
            logits = _logits(hidden[start : start + workspace.chunk], weight, bias, workspace)
            for block in _blocks(start, logits):
                _score_block(block, head, targets, (full, kept, entropies))
        ctx.stamp = workspace.stamp
        return full, kept, entropies

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias = ctx.saved_tensors
        workspace: Workspace = ctx.workspace
        d_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        d_bias = torch.zeros_like(bias, dtype=torch.float32) if bias is not None and ctx.needs_input_grad[2] else None
        sink = ctx.head.weight_grad
        d_weight = sink() if sink is not None else None
        if sink is None and ctx.needs_input_grad[1]:
            d_weight = torch.zeros_like(weight, dtype=_accumulator(weight.dtype))
        starts = list(range(0, len(hidden), workspace.chunk))
        for start in reversed(starts):
            part = hidden[start : start + workspace.chunk]
            if start == starts[-1] and ctx.stamp == workspace.stamp and workspace.buffer is not None:
                logits = workspace.logits(len(part), len(weight), weight)
            else:
                logits = _logits(part, weight, bias, workspace)
            for block in _blocks(start, logits):
                _grad_block(block, ctx.head, ctx.targets, grads)
            if d_hidden is not None:
                torch.mm(logits, weight, out=d_hidden[start : start + workspace.chunk])
            if d_bias is not None:
                d_bias += logits.sum(0, dtype=torch.float32)
            if d_weight is not None:
                for low in range(0, len(weight), _WEIGHT_BLOCK):
                    d_weight[low : low + _WEIGHT_BLOCK].add_(logits[:, low : low + _WEIGHT_BLOCK].t() @ part)
        returned = d_weight.to(weight.dtype) if d_weight is not None and sink is None else None
        return d_hidden, returned, d_bias.to(bias.dtype) if d_bias is not None else None, None, None, None, None


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None, workspace: Workspace) -> Tensor:
    logits = workspace.logits(len(hidden), len(weight), weight)
    torch.mm(hidden, weight.t(), out=logits)
    return logits if bias is None else logits.add_(bias)


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """A few rows of a chunk: `logits` [r, V] is a view into the workspace, `start:stop` their targets."""

    start: int
    stop: int
    logits: Tensor


def _blocks(start: int, logits: Tensor) -> Iterator[_Block]:
    rows, vocabulary = logits.shape
    step = max(1, (_CPU_BLOCK if logits.device.type == "cpu" else _GPU_BLOCK) // vocabulary)
    for low in range(0, rows, step):
        high = min(rows, low + step)
        yield _Block(start + low, start + high, logits[low:high])


def _distribution(block: _Block, head: Head, targets: Targets) -> tuple[Tensor, Tensor | None]:
    """Logits of the full distribution at temperature [r, V] in float32, and the slope of the soft cap if any."""
    z = block.logits.to(_accumulator(block.logits.dtype), copy=True)
    slope = None
    if head.scale != 1.0:
        z.mul_(head.scale)
    if head.softcap is not None:
        z.div_(head.softcap).tanh_()
        slope = 1 - z * z
        z.mul_(head.softcap)
    if targets.temperatures is not None:
        z.div_(targets.temperatures[block.start : block.stop, None])
    return z, slope


def _score_block(
    block: _Block, head: Head, targets: Targets, outs: tuple[Tensor, Tensor | None, Tensor | None]
) -> None:
    full, kept, entropies = outs
    rows = slice(block.start, block.stop)
    z, _ = _distribution(block, head, targets)
    logp = torch.log_softmax(z, dim=-1)
    full[rows] = logp.gather(1, targets.token_ids[rows, None])[:, 0]
    if entropies is not None:
        entropies[rows] = torch.special.entr(logp.exp()).sum(-1)
    if kept is not None and targets.kept is not None:
        ids, valid = targets.kept.block(block.start, block.stop)
        mass = logp.gather(1, ids).masked_fill_(~valid, float("-inf")).logsumexp(-1)
        kept[rows] = full[rows] - torch.where(valid[:, 0], mass, 0.0)


def _grad_block(block: _Block, head: Head, targets: Targets, grads: tuple[Tensor | None, ...]) -> None:
    """Turn the block's logits into the gradient of the loss with respect to them, in place."""
    rows = slice(block.start, block.stop)
    g_full, g_kept, g_entropy = (g[rows] if g is not None else None for g in grads)
    z, slope = _distribution(block, head, targets)
    p = torch.softmax(z, dim=-1)
    ids_valid = targets.kept.block(block.start, block.stop) if g_kept is not None and targets.kept else None
    total = torch.zeros_like(p[:, 0]) if g_full is None else g_full.clone()
    through_softmax = total
    if ids_valid is not None and g_kept is not None:
        through_softmax = total + torch.where(ids_valid[1][:, 0], 0.0, g_kept)
        total = total + g_kept
    if g_entropy is not None:
        entr = torch.special.entr(p)
        d = torch.addcmul(entr, p, entr.sum(-1, keepdim=True), value=-1.0).mul_(g_entropy[:, None])
        d.addcmul_(p, through_softmax[:, None], value=-1.0)
    else:
        d = p.mul_(-through_softmax[:, None])
    if ids_valid is not None and g_kept is not None:
        ids, valid = ids_valid
        share = torch.softmax(z.gather(1, ids).masked_fill_(~valid, torch.finfo(z.dtype).min), dim=-1)
        d.scatter_add_(1, ids, share.mul_(valid).mul_(-g_kept[:, None]))
    d.scatter_add_(1, targets.token_ids[rows, None], total[:, None])
    if targets.temperatures is not None:
        d.div_(targets.temperatures[rows, None])
    if slope is not None:
        d.mul_(slope)
    if head.scale != 1.0:
        d.mul_(head.scale)
    block.logits.copy_(d)
