"""A rank that fails, dies or hangs: the error says which, and nobody is left waiting."""

from __future__ import annotations

import logging
import os
import sys
import time
import types
from dataclasses import replace

import numpy as np
import pytest
import torch.distributed as dist
from fsdp_cases import build_batch, objective, published
from fsdp_pool import LIMIT_S
from fsdp_ranks import die_where_marked, fail_where_marked, one_value_for_all, sleep_where_marked

from roll_core.cluster import Stuck, WorkerLost
from roll_core.contracts import MiniBatch
from roll_core.errors import BackendError, ComponentError
from roll_core.types import SamplingParams
from roll_plugin_fsdp import team


def marked(batch, segment: int = 5):
    return replace(batch, columns={**batch.columns, "marked": (batch.token_segment == segment).astype(np.float32)})


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


class Borrowed:
    """The pool, in place of an executor of the strategy's own."""

    def __init__(self, pool):
        self.start = pool.start

    def close(self):
        pass


def test_a_loss_that_ranks_cannot_import(start, make_setup, pool, monkeypatch) -> None:
    module = types.ModuleType("roll_rollfile_of_a_test")
    exec("def loss(inputs): return inputs.logprobs", vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(team, "LocalExecutor", lambda: Borrowed(pool))
    ranks = start(make_setup(), 1, executor=None)
    with pytest.raises(ComponentError, match="roll_rollfile_of_a_test") as caught:
        ranks.update(build_batch(), [objective(build_batch(), fn=module.loss)])
    assert "set cluster.executor: local" in caught.value.__notes__[-1]


class FailingExecutor:
    def __init__(self, error):
        self._error = error

    def seats(self, role):
        return None

    def start(self, spec, *, timeout_s):
        raise self._error


def test_what_ranks_refuse_leaves_them_as_they_were(start, make_setup) -> None:
    ranks = start(make_setup(), 2, micro_tokens=40)
    batch = marked(build_batch())
    before = published(ranks)
    good = objective(batch)
    with pytest.raises(BackendError, match="no mini-batch"):
        ranks.update(batch, [])
    with pytest.raises(BackendError, match="without segments"):
        ranks.update(batch, [replace(good, segments=np.zeros(0, np.int64))])
    with pytest.raises(BackendError, match="no critic"):
        ranks.update(batch, [MiniBatch(good.segments, (replace(good.terms[0], needs=frozenset({"values"})),))])
    with pytest.raises(BackendError, match="needs topk"):
        ranks.update(batch, [MiniBatch(good.segments, (replace(good.terms[0], needs=frozenset({"topk"})),))])
    with pytest.raises(BackendError, match="one value for each"):  # on one rank alone
        ranks.update(batch, [objective(batch, fn=one_value_for_all)])
    with pytest.raises(BackendError, match="HasNoPickleError: 7 is bad"):
        ranks.update(batch, [objective(batch, fn=fail_where_marked)])
    with pytest.raises(BackendError, match="cannot be sent to the ranks"):
        ranks.update(batch, [objective(batch, fn=lambda inputs: inputs.logprobs)])
    with pytest.raises(BackendError, match="'even' samples with top_p or top_k"):
        ranks.compute(build_batch(sampling=SamplingParams(top_k=2)), frozenset({"old_logprobs"}))
    with pytest.raises(BackendError, match="more than the 512"):
        ranks.update(build_batch(((3, (600,)), (3, (4,)))), [objective(build_batch(((3, (600,)), (3, (4,)))))])
    with pytest.raises(BackendError, match="'ref_logprobs' was asked for, but no model"):
        ranks.compute(batch, frozenset({"ref_logprobs"}))
    assert "train/grad_norm" not in ranks.update(batch, [MiniBatch(good.segments, ())])
    assert all((tensor == before[name]).all() for name, tensor in published(ranks).items())
    assert ranks.update(batch, [good])["train/skipped_steps"] == 0
    ranks.close()
    with pytest.raises(BackendError, match="gone"):
        ranks.update(batch, [good])


def test_a_rank_that_dies(start, make_setup, caplog) -> None:
    ranks = start(make_setup(), 2, executor=None)
    pids = ranks.ask("process")
    batch = marked(build_batch())
    began = time.monotonic()
    with pytest.raises(WorkerLost, match=r"actor\[[01]\]") as caught:
        ranks.update(batch, [objective(batch, fn=die_where_marked)])
    assert time.monotonic() - began < LIMIT_S / 2
    assert caught.value.code == -9
    assert "my last words" in str(caught.value)
    assert all(is_gone(pid) for pid in pids)
    with pytest.raises(BackendError, match="the ranks are gone"):
        ranks.compute(batch, frozenset({"entropy"}))
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        ranks.close()
    assert not caplog.records


def test_a_rank_that_hangs(start, make_setup) -> None:
    ranks = start(make_setup(), 2, executor=None, step_timeout_s=6)
    pids = ranks.ask("process")
    batch = marked(build_batch())
    with pytest.raises(Stuck) as caught:
        ranks.update(batch, [objective(batch, fn=sleep_where_marked)])
    assert "sleep_where_marked" in str(caught.value)
    assert "1 optimiser steps" in str(caught.value)
    assert all(is_gone(pid) for pid in pids)


def test_ranks_do_not_wait_for_ever_for_one_that_hangs(start, make_setup) -> None:
    """Without the driver's help too: the exchange itself ends, and its error says who had not answered."""
    ranks = start(make_setup(), 2, executor=None, collective_timeout_s=8)
    pids = ranks.ask("process")
    batch = marked(build_batch())
    with pytest.raises(WorkerLost, match="all were ended") as caught:
        ranks.update(batch, [objective(batch, fn=sleep_where_marked)])
    assert "had not answered yet" in str(caught.value)
    assert all(is_gone(pid) for pid in pids)


def test_a_start_that_fails(start, make_setup, tmp_path) -> None:
    with pytest.raises(BackendError, match="no model in"):
        start(make_setup(model=tmp_path), 1)
    with pytest.raises(WorkerLost, match=r"a rank failed in its start.*the store is gone"):
        start(make_setup(), 1, executor=FailingExecutor(dist.DistStoreError("the store is gone")))
    with pytest.raises(BackendError, match=r"a rank failed in its start.*out of memory"):
        start(make_setup(), 1, executor=FailingExecutor(RuntimeError("out of memory")))
