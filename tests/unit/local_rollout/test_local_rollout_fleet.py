"""The driver's side of replicas, over replicas that have no process."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, cast

import numpy as np
import pytest
import torch

from roll_core.builtin.local_rollout.limits import Limits
from roll_core.builtin.local_rollout.replicas.fleet import Bounds, Fleet
from roll_core.builtin.local_rollout.replicas.member import Flight
from roll_core.builtin.local_rollout.replicas.parcel import Parcel
from roll_core.builtin.local_rollout.replicas.worker import Facts, News
from roll_core.cluster import LocalExecutor, Reference, Router, WorkerGroup, WorkerLost
from roll_core.contracts import TensorInfo
from roll_core.errors import BackendError
from roll_core.types import Completion, GenerateRequest, SamplingParams

LONG_S = 120.0
FACTS = Facts(Limits(100, 50), "float32")


class Group:
    """Behaves as a worker group of one with a replica; a call is carried out where it is made."""

    def __init__(self, role: str, able: Facts = FACTS) -> None:
        self.role = role
        self.able = able
        self.is_dead = False
        self.holds = False
        """Makes steps, but no request ends."""
        self.is_mute = False
        """Makes no step and ends no request."""
        self.is_broken = False
        """Every restart fails."""
        self.poison = ""
        """A request whose id begins so ends the process."""
        self.errors: dict[str, Exception] = {}
        """Raised by the method of that name."""
        self.restarts = 0
        self.taken: list[str] = []
        self.versions: list[int] = []
        self.held: list[str] = []
        self.is_closed = False
        self._ended: list[tuple[str, Completion]] = []
        self._steps = 0

    def submit(self, index: int, method: str, *args: Any, timeout_s: float, what: str) -> Future[Any]:
        assert index == 0
        assert timeout_s > 0
        assert what
        future: Future[Any] = Future()
        try:
            if self.is_dead:
                raise WorkerLost(f"{self.role}[0] was killed by SIGKILL", self.role, 0)
            if method in self.errors:
                raise self.errors[method]
            future.set_result(getattr(self, method)(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def facts(self) -> Facts:
        return self.able

    def take(self, request: GenerateRequest) -> None:
        self.taken.append(request.request_id)
        if self.poison and request.request_id.startswith(self.poison):
            self.is_dead = True
        elif self.holds or self.is_mute:
            self.held.append(request.request_id)
        else:
            self._end(request.request_id, "stop")

    def abort(self, key: str) -> None:
        self.held.remove(key)
        self._end(key, "abort")

    def drop(self, key: str) -> None:
        self.held.remove(key)

    def pull(self, wait_s: float) -> News:
        time.sleep(0.005)
        self._steps += not self.is_mute
        ended, self._ended = tuple(self._ended), []
        return News(ended, self._steps)

    def sync(self, parcel: Any, version: int) -> None:
        self.versions.append(version)

    def restart(self, index: int) -> None:
        self.restarts += 1
        if self.is_broken:
            raise WorkerLost(f"{self.role}[0] does not start", self.role, 0)
        self.is_dead = self.is_mute = False
        self.errors, self.held, self._ended, self.versions = {}, [], [], []

    def stacks(self) -> dict[str, str]:
        return {f"{self.role}[0]": "it stands in the middle of nowhere"}

    def close(self) -> None:
        self.is_closed = self.is_dead = True

    def _end(self, key: str, reason: Any) -> None:
        self._ended.append((key, Completion(key, np.zeros(1, np.int32), np.zeros(1, np.float32), (), reason)))


@pytest.fixture
def gone() -> list[str]:
    return []


@pytest.fixture
def fleet(gone: list[str]) -> Iterator[Fleet]:
    made = Fleet(Bounds(start_s=LONG_S, silence_s=0.3, restarts=2), gone.append)
    yield made
    made.close()
    assert not made._members


def join(fleet: Fleet, *names: str) -> list[Group]:
    groups = [Group(name) for name in names]
    for group in groups:
        fleet.join(cast(WorkerGroup, group))
    return groups


def ask(fleet: Fleet, name: str, group_key: str = "") -> Flight:
    flight = Flight(GenerateRequest((1,), SamplingParams(max_new_tokens=5), 1, name, group_key), 5)
    fleet.dispatch(flight)
    return flight


def wait_for(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.01)


def weights() -> Reference:
    return Reference([b""], 0)


def test_a_request_of_a_lost_replica_begins_anew_on_another(fleet: Fleet) -> None:
    first, second = join(fleet, "r0", "r1")
    first.holds = True
    flight = ask(fleet, "x")
    assert first.held == [flight.key]
    first.is_dead = True
    assert flight.future.result(LONG_S).request_id == "x"
    assert second.taken
    wait_for(lambda: first.restarts == 1 and fleet.loads()["r0"] == 0)
    counts = {"rollout/replicas_live": 2, "rollout/replicas_lost": 1, "rollout/requests_redone": 1}
    assert fleet.metrics() == counts


def test_requests_wait_while_no_replica_serves(fleet: Fleet) -> None:
    (only,) = join(fleet, "r0")
    only.is_dead = True
    flights = [ask(fleet, str(i)) for i in range(3)]
    assert [flight.future.result(LONG_S).finish_reason for flight in flights] == ["stop"] * 3


def test_a_replica_that_makes_no_step_is_replaced_and_its_stacks_are_told(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    first, _ = join(fleet, "r0", "r1")
    first.is_mute = True
    assert ask(fleet, "x").future.result(LONG_S)
    wait_for(lambda: first.restarts == 1)
    assert "made no step for" in caplog.text
    assert "in the middle of nowhere" in caplog.text


def test_a_slow_request_is_no_reason_to_replace_a_replica(fleet: Fleet) -> None:
    (only,) = join(fleet, "r0")
    only.holds = True
    flight = ask(fleet, "x")
    time.sleep(1.0)
    assert (only.restarts, flight.future.done()) == (0, False)
    fleet.abort(flight)
    assert flight.future.result(LONG_S).finish_reason == "abort"


def test_a_request_that_ends_every_replica_fails(fleet: Fleet) -> None:
    groups = join(fleet, "r0", "r1", "r2", "r3")
    for group in groups:
        group.poison = "bad"
    with pytest.raises(WorkerLost, match="request 'bad' was with 8 replicas that were lost"):
        ask(fleet, "bad").future.result(LONG_S)
    assert ask(fleet, "good").future.result(LONG_S)


def test_a_replica_that_keeps_failing_is_given_up_and_with_the_last_one_the_run(fleet: Fleet, gone: list[str]) -> None:
    first, second = join(fleet, "r0", "r1")
    first.is_broken = first.is_dead = True
    wait_for(lambda: gone == ["r0"])
    assert (first.restarts, first.is_closed) == (2, True)
    assert ask(fleet, "x").future.result(LONG_S)
    second.holds = True
    waiting = ask(fleet, "y")
    second.is_broken = second.is_dead = True
    for flight in (waiting, ask(fleet, "z")):
        with pytest.raises(WorkerLost, match="every rollout replica is lost"):
            flight.future.result(LONG_S)
    with pytest.raises(WorkerLost, match="every rollout replica is lost"):
        fleet.publish(weights(), 1)


def test_requests_that_end_forgive_earlier_losses(fleet: Fleet) -> None:
    (only,) = join(fleet, "r0")
    for i in range(5):
        only.is_dead = True
        assert ask(fleet, str(i)).future.result(LONG_S)
    assert only.restarts == 5


def test_a_replica_that_differs_does_not_join(fleet: Fleet) -> None:
    join(fleet, "r0")
    with pytest.raises(BackendError, match="r1 differs from the other replicas"):
        fleet.join(cast(WorkerGroup, Group("r1", Facts(Limits(100, 50), "bfloat16"))))
    assert set(fleet.loads()) == {"r0"}


def test_weights_are_taken_over_by_all_or_whoever_did_not_is_replaced(fleet: Fleet) -> None:
    first, second = join(fleet, "r0", "r1")
    old = weights()
    fleet.publish(old, 1)
    assert first.versions == second.versions == [1]
    for error in (BackendError("out of memory"), WorkerLost("killed", "r1", 0)):
        second.errors["sync"] = error
        fleet.publish(weights(), 2)
        assert fleet.weights.version == 2
        wait_for(lambda: fleet.loads()["r1"] == 0)
        assert second.versions == [2]  # before it serves
    assert old.handle is None
    assert second.restarts == 2


def test_weights_that_all_refuse_change_nothing(fleet: Fleet) -> None:
    groups = join(fleet, "r0", "r1")
    kept = weights()
    fleet.publish(kept, 1)
    for group in groups:
        group.errors["sync"] = BackendError("these weights do not fit")
    with pytest.raises(BackendError, match="do not fit"):
        fleet.publish(weights(), 2)
    assert (fleet.weights.version, kept.handle, [group.restarts for group in groups]) == (1, [b""], [0, 0])


def test_weights_wait_for_a_replica_when_all_are_lost(fleet: Fleet) -> None:
    (only,) = join(fleet, "r0")
    only.errors["sync"] = WorkerLost("killed in the middle", "r0", 0)
    fleet.publish(weights(), 3)
    assert (only.restarts, only.versions, fleet.weights.version) == (1, [3], 3)


def test_a_replica_that_takes_no_calls_is_replaced(fleet: Fleet) -> None:
    first, _ = join(fleet, "r0", "r1")
    first.errors["take"] = TypeError("the arguments cannot be read")
    assert ask(fleet, "x").future.result(LONG_S)
    wait_for(lambda: first.restarts == 1)


def test_one_that_leaves_hands_its_requests_on(fleet: Fleet, gone: list[str]) -> None:
    first, second = join(fleet, "r0", "r1")
    first.holds = True
    flight = ask(fleet, "x")
    fleet.leave("r0")
    fleet.leave("r0")  # given up meanwhile
    assert flight.future.result(LONG_S)
    assert (gone, first.is_closed, first.restarts, len(second.taken)) == (["r0"], True, 0, 1)


def test_dropped_and_aborted_requests_leave_no_load(fleet: Fleet) -> None:
    (only,) = join(fleet, "r0")
    only.holds = True
    dropped, aborted = ask(fleet, "d"), ask(fleet, "a")
    fleet.drop(dropped)
    fleet.drop(dropped)
    fleet.abort(aborted)
    assert aborted.future.result(LONG_S).finish_reason == "abort"
    assert (fleet.loads(), only.held) == ({"r0": 0}, [])
    only.is_broken = only.is_dead = True
    late = ask(fleet, "late")
    fleet.abort(late)  # it waits, or is told of the loss already
    assert isinstance(late.future.exception(LONG_S), WorkerLost | None)


def test_closing_fails_what_is_open(gone: list[str]) -> None:
    fleet = Fleet(Bounds(start_s=LONG_S, silence_s=LONG_S, restarts=2), gone.append)
    (only,) = join(fleet, "r0")
    only.holds = True
    flight = ask(fleet, "x")
    fleet.close()
    for one in (flight, ask(fleet, "y")):
        with pytest.raises(BackendError, match="was closed"):
            one.future.result(LONG_S)
    assert (only.is_closed, gone) == (True, ["r0"])


def test_a_group_stays_together_unless_others_are_idle() -> None:
    router = Router(slack=8)
    assert router.choose("g", 1) is None
    for name in "abc":
        router.join(name)
    homes = [router.choose(f"g{i // 4}", 1) for i in range(12)]
    assert sorted(set(homes)) == ["a", "b", "c"]
    assert all(len(set(homes[i : i + 4])) == 1 for i in (0, 4, 8))
    assert {router.choose("large", 1) for _ in range(24)} == {"a", "b", "c"}
    router.leave("a")
    assert router.load("a") == 0
    assert router.choose("g0", 1) in {"b", "c"}
    router.release("a", 1)


def test_a_parcel_carries_every_format_bit_for_bit() -> None:
    made = {
        "half": torch.randn(3, 5).to(torch.bfloat16),
        "turned": torch.randn(4, 6).t(),
        "number": torch.tensor(3, dtype=torch.int64),
        "none": torch.empty(0, 4),
    }

    class Source:
        def manifest(self) -> list[TensorInfo]:
            raise AssertionError("what is delivered counts")

        def tensors(self) -> Any:
            yield from made.items()

    with LocalExecutor() as executor:
        parts = executor.put(Parcel.of(Source())).handle
    arrived: Parcel = pickle.loads(parts[0], buffers=[memoryview(part).toreadonly() for part in parts[1:]])
    assert arrived.manifest()[0] == TensorInfo("half", "bfloat16", (3, 5))
    for (name, tensor), (expected_name, expected) in zip(arrived.tensors(), made.items(), strict=True):
        assert name == expected_name
        assert tensor.dtype == expected.dtype
        assert torch.equal(tensor, expected)
