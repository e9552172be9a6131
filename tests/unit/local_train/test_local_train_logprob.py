from __future__ import annotations

import pytest
import torch

from roll_core.builtin.local_train.logprob import Head, KeptSets, Targets, Workspace, token_logprobs

ROWS, HIDDEN, VOCABULARY = 7, 5, 11


def kept_sets(targets: torch.Tensor, counts: list[int]) -> KeptSets:
    ids = []
    for target, count in zip(targets.tolist(), counts, strict=True):
        others = [i for i in torch.randperm(VOCABULARY).tolist() if i != target]
        ids += [target, *others][:count]
    return KeptSets(torch.tensor(ids), torch.tensor([0, *counts]).cumsum(0))


def dense(hidden, weight, bias, head: Head, targets: Targets):
    logits = head.scale * (hidden @ weight.t() + (0 if bias is None else bias))
    if head.softcap is not None:
        logits = head.softcap * torch.tanh(logits / head.softcap)
    if targets.temperatures is not None:
        logits = logits / targets.temperatures[:, None]
    logp = logits.log_softmax(-1)
    full = logp.gather(1, targets.token_ids[:, None])[:, 0]
    entropy = -(logp.exp() * logp).sum(-1)
    if targets.kept is None:
        return full, full, entropy
    kept = []
    for row in range(len(full)):
        ids = targets.kept.ids[targets.kept.offsets[row] : targets.kept.offsets[row + 1]]
        kept.append(full[row] - (logp[row, ids].logsumexp(0) if len(ids) else 0.0))
    return torch.stack(kept), full, entropy


@pytest.fixture(params=["plain", "temperature", "kept", "capped"])
def case(request):
    torch.manual_seed(3)
    hidden, weight = torch.randn(ROWS, HIDDEN).double(), torch.randn(VOCABULARY, HIDDEN).double()
    bias = torch.randn(VOCABULARY).double() if request.param != "plain" else None
    ids = torch.randint(0, VOCABULARY, (ROWS,))
    warm = torch.linspace(0.5, 1.5, ROWS) if request.param != "plain" else None
    kept = kept_sets(ids, [0, 3, 1, 11, 0, 2, 5]) if request.param == "kept" else None
    head = {"scale": 0.6, "softcap": 2.0} if request.param == "capped" else {}
    return hidden, weight, bias, head, Targets(ids, warm, kept)


@pytest.mark.parametrize("chunk", [3, 7, 100])
def test_values_and_gradients_equal_dense_autograd(case, chunk) -> None:
    hidden, weight, bias, options, targets = case
    factors = torch.randn(3, ROWS).double()

    def run(dense_route: bool):
        leaves = [t.clone().requires_grad_() if t is not None else None for t in (hidden, weight, bias)]
        head = Head(leaves[1], leaves[2], **options)
        if dense_route:
            outs = dense(leaves[0], leaves[1], leaves[2], head, targets)
        else:
            scores = token_logprobs(leaves[0], head, targets, Workspace(chunk), entropy=True)
            outs = (scores.logprobs, scores.full_logprobs, scores.entropy)
        sum((out * f).sum() for out, f in zip(outs, factors, strict=True)).backward()
        return outs, [leaf.grad for leaf in leaves if leaf is not None]

    (found, found_gradients), (expected, expected_gradients) = run(False), run(True)
    for a, b in [*zip(found, expected, strict=True), *zip(found_gradients, expected_gradients, strict=True)]:
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_gradcheck(case) -> None:
    hidden, weight, bias, options, targets = case
    leaves = [t.requires_grad_() for t in (hidden, weight, bias) if t is not None]

    def fn(h, w, b=None):
        scores = token_logprobs(h, Head(w, b, **options), targets, Workspace(4), entropy=True)
        return scores.logprobs, scores.full_logprobs, scores.entropy

    assert torch.autograd.gradcheck(fn, leaves)


def test_only_what_is_needed_flows_back(case) -> None:
    hidden, weight, bias, options, targets = case
    hidden.requires_grad_()
    token_logprobs(hidden, Head(weight, bias, **options), targets, Workspace(3)).logprobs.sum().backward()
    assert hidden.grad.abs().max() > 0
    assert weight.grad is None


def test_weight_gradient_goes_into_the_given_buffer(case) -> None:
    hidden, weight, bias, options, targets = case
    plain = weight.clone().requires_grad_()
    token_logprobs(hidden, Head(plain, bias, **options), targets, Workspace(3)).logprobs.sum().backward()
    buffer = torch.ones_like(weight)
    trained = weight.clone().requires_grad_()
    head = Head(trained, bias, **options, weight_grad=lambda: buffer)
    token_logprobs(hidden.clone().requires_grad_(), head, targets, Workspace(3)).logprobs.sum().backward()
    torch.testing.assert_close(buffer, plain.grad + 1)
    assert trained.grad is None


def test_no_more_logits_than_a_chunk_exist() -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(50, 4, requires_grad=True), torch.randn(1000, 4, requires_grad=True)
    sizes: list[int] = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            sizes.extend(t.numel() for t in (out if isinstance(out, tuple) else (out,)) if isinstance(t, torch.Tensor))
            return out

    with Watch():
        scores = token_logprobs(hidden, Head(weight), Targets(torch.arange(50)), Workspace(8), entropy=True)
        (scores.logprobs.sum() + scores.entropy.sum()).backward()
    assert max(sizes) <= 8 * 1000


def test_another_call_in_between_does_not_disturb_the_gradient(case) -> None:
    hidden, weight, bias, options, targets = case
    workspace = Workspace(100)
    leaf = hidden.clone().requires_grad_()
    scores = token_logprobs(leaf, Head(weight, bias, **options), targets, workspace)
    token_logprobs(hidden * 3, Head(weight, bias, **options), targets, workspace)
    scores.logprobs.sum().backward()
    alone = hidden.clone().requires_grad_()
    token_logprobs(alone, Head(weight, bias, **options), targets, Workspace(100)).logprobs.sum().backward()
    torch.testing.assert_close(leaf.grad, alone.grad)


def test_no_target_at_all() -> None:
    hidden = torch.zeros(0, 4, requires_grad=True)
    scores = token_logprobs(hidden, Head(torch.zeros(9, 4)), Targets(torch.zeros(0, dtype=torch.long)), Workspace(8))
    scores.logprobs.sum().backward()
    assert scores.logprobs.shape == (0,)
