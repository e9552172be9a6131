"""The same on GPUs: one rank a device over NCCL. `pytest -m gpu` runs it where there are any."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fsdp_cases import build_batch, local_gradients, objective, published, same_gradients

from roll_core.cluster import LocalExecutor, Seat
from roll_core.contracts import OptimSettings
from roll_plugin_fsdp.options import FsdpOptions
from roll_plugin_fsdp.strategy import FsdpStrategy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
DEVICES = max(torch.cuda.device_count(), 1)


@pytest.fixture(scope="module", autouse=True)
def exact_products():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("options", [{}, {"cpu_offload": True}, {"gradient_checkpointing": True}], ids=str)
def test_gradients_are_those_of_one_process(start, local, make_setup, tmp_path, options) -> None:
    batch = build_batch()
    setup = make_setup(optim=OptimSettings(lr=1e-3, clip_norm=0.1))
    single = local(setup, device="cpu")
    many = start(setup, DEVICES, executor=None, device="cuda", micro_tokens=40, **options)
    a, b = single.update(batch, [objective(batch)]), many.update(batch, [objective(batch)])
    assert b["train/grad_norm"] == pytest.approx(a["train/grad_norm"], rel=1e-4)
    same_gradients(many.gradients(), local_gradients(single), 1e-4)
    many.begin_save(tmp_path)
    after = many.update(batch, [objective(batch)])
    many.finish_save()
    many.load(tmp_path)
    assert many.update(batch, [objective(batch)]) == after


def test_ranks_sit_where_the_placement_says(make_setup) -> None:
    seats = {"train": [Seat(0, (index,)) for index in range(DEVICES)]}
    with LocalExecutor(seats=seats) as executor:
        strategy = FsdpStrategy(make_setup(), FsdpOptions(), executor)
        assert strategy.team.mesh.size == DEVICES
        assert len({worker.devices for worker in executor.health()}) == DEVICES
        strategy.compute(build_batch(), frozenset({"old_logprobs"}))


def test_without_an_executor_every_device_is_taken(make_setup) -> None:
    strategy = FsdpStrategy(make_setup(), FsdpOptions())
    assert strategy.team.mesh.size == DEVICES
    strategy.compute(build_batch(), frozenset({"old_logprobs"}))
    strategy.close()


@pytest.mark.skipif(DEVICES < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("mesh", [{"replicate": 2}, {"tensor_parallel": 2}], ids=str)
def test_bfloat16_with_copies_or_split_matrices(start, local, make_setup, mesh) -> None:
    batch = build_batch()
    setup = make_setup(optim=OptimSettings(lr=1e-3))
    single = local(setup, precision="bfloat16", device="cpu")
    many = start(setup, 2, executor=None, device="cuda", precision="bfloat16", **mesh)
    a, b = single.update(batch, [objective(batch)]), many.update(batch, [objective(batch)])
    assert b["train/grad_norm"] == pytest.approx(a["train/grad_norm"], rel=0.05)
    theirs = published(many)
    for name, tensor in published(single).items():
        np.testing.assert_allclose(theirs[name].float(), tensor.float(), atol=0.01, err_msg=name)
