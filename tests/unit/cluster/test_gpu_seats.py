"""What only a machine with NVIDIA devices can show: `pytest -m gpu tests/unit/cluster`."""

from __future__ import annotations

import pytest

from roll_core.cluster import LocalExecutor, RayExecutor, Seat, WorkerSpec
from roll_core.cluster.choice import local_devices
from roll_core.cluster.devices import visible_devices

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not visible_devices(), reason="this machine has no NVIDIA device"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

ASK = {"timeout_s": 120.0, "what": "a test"}


def test_found_devices_are_those_of_torch():
    torch = pytest.importorskip("torch")
    found = local_devices()
    assert len(found) == torch.cuda.device_count()
    for device in found:
        # the driver keeps some of the memory that it reports
        assert torch.cuda.get_device_properties(device.index).total_memory == pytest.approx(device.memory, rel=0.05)


@pytest.mark.parametrize("kind", [LocalExecutor, RayExecutor])
def test_a_worker_computes_on_its_device_alone(kind):
    last = len(visible_devices()) - 1
    with kind(seats={"train": (Seat(0, (last,)),), "rollout": (Seat(0, (last,)),)}) as executor:
        for role in ("train", "rollout"):  # they share it
            spec = WorkerSpec(role, "cluster_workers:Worker", 1, seats=executor.seats(role))
            group = executor.start(spec, timeout_s=300)
            assert group.call("cuda_sum", 1000, **ASK) == [(1, 1000.0)]
        assert [len(worker.devices) for worker in executor.health()] == [1, 1]
