from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from fake_verifiers import Spec

from roll_core.errors import ComponentError, UnknownNameError
from roll_core.scoring import VerifierPool
from roll_core.types import Prompt, Rollout, Segment, Status, Ticket, Verdict

DEADLINE_S = 0.7
MARGIN_S = 3.0


def children() -> set[int]:
    """Processes whose parent is this one, zombies included."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid():
            found.add(int(stat.parent.name))
    return found


@pytest.fixture(autouse=True)
def no_process_left():
    before = children()
    yield
    assert children() - before == set()


def pool(workers: int = 1, **specs: Spec) -> VerifierPool:
    return VerifierPool(specs or {"k": Spec()}, workers=workers, timeout_s=DEADLINE_S, start_timeout_s=30)


def run(responses: list[str], workers: int = 1, **specs: Spec) -> list[Verdict]:
    async def body() -> list[Verdict]:
        async with pool(workers, **specs) as p:
            return [await p.verify("k", response, None) for response in responses]

    return asyncio.run(body())


def test_verdicts_are_stamped():
    right, wrong, other = run(["right", "wrong", "?"])
    assert (right.status, right.score, right.answer) == (Status.CORRECT, 1.0, "right")
    assert (wrong.status, other.status) == (Status.INCORRECT, Status.INVALID)
    assert (right.verifier, right.version) == ("faulty", "1.2")
    assert 0 <= right.seconds < DEADLINE_S


@pytest.mark.parametrize(
    ("fault", "detail", "text"),
    [
        ("hang", "timeout", "0.7 s"),
        ("spin", "timeout", "0.7 s"),
        ("exit", "crashed", "exited with code 3"),
        ("segfault", "crashed", "SIGSEGV"),
        ("sysexit", "raised", "SystemExit"),
        ("raise", "raised", "ValueError: no such thing"),
        ("nan", "raised", "nan"),
        ("float", "bad_result", "float nan"),
        ("none", "bad_result", "NoneType"),
        ("memory", "raised", "MemoryError"),
    ],
)
def test_a_fault_is_an_error_without_score_and_the_next_verdict_works(fault, detail, text):
    failed, after = run([fault, "right"])
    assert (failed.status, failed.score, failed.detail) == (Status.ERROR, None, detail)
    assert text in failed.reason
    assert failed.verifier == "faulty"
    assert after.status is Status.CORRECT


def test_an_overrun_is_answered_in_time():
    async def body() -> float:
        async with pool() as p:
            started = time.monotonic()
            await p.verify("k", "hang", None)
            return time.monotonic() - started

    assert DEADLINE_S <= asyncio.run(body()) < DEADLINE_S + MARGIN_S


def test_deadlines_hold_and_stay_fair_while_the_event_loop_is_blocked():
    async def body() -> list[Verdict]:
        async with pool() as p:
            tasks = [asyncio.create_task(p.verify("k", response, None)) for response in ("right", "hang", "right:2")]
            await asyncio.sleep(0)
            time.sleep(2 * DEADLINE_S)
            return await asyncio.gather(*tasks)

    first, second, third = asyncio.run(body())
    assert (first.status, second.detail, third.status) == (Status.CORRECT, "timeout", Status.CORRECT)


def test_200_mixed_verdicts_with_faults_all_end():
    rng = random.Random(0)
    responses = ["right"] * 95 + ["wrong"] * 95 + ["hang", "hang", "exit", "exit", "raise", "raise", "nan", "float"]
    responses += ["segfault", "none"]
    rng.shuffle(responses)
    expected = {
        "right": Status.CORRECT,
        "wrong": Status.INCORRECT,
    }

    async def body() -> tuple[list[Verdict], int]:
        async with pool(2) as p:
            verdicts = await asyncio.gather(*(p.verify("k", response, None) for response in responses))
            return verdicts, p.replaced

    verdicts, replaced = asyncio.run(asyncio.wait_for(body(), 60))
    assert [v.status for v in verdicts] == [expected.get(r, Status.ERROR) for r in responses]
    assert replaced == 5
    assert all(v.seconds < DEADLINE_S + MARGIN_S for v in verdicts)


def test_a_verdict_whose_worker_is_killed_from_outside_is_asked_for_again():
    async def body() -> tuple[list[Verdict], int]:
        async with pool(1) as p:
            before = await p.verify("k", "pid", None)
            os.kill(int(before.answer), signal.SIGKILL)  # an idle worker
            idle = await p.verify("k", "pid", None)
            later = asyncio.create_task(p.verify("k", "nap", None))
            await asyncio.sleep(0.15)
            os.kill(int(idle.answer), signal.SIGKILL)  # one at work
            return [idle, await later], p.replaced

    verdicts, replaced = asyncio.run(body())
    assert [v.status for v in verdicts] == [Status.CORRECT, Status.CORRECT]
    assert replaced == 2


def test_what_a_crashed_verifier_started_dies_with_it():
    run(["child"])
    sleepers = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            sleepers += [file] if file.read_bytes() == b"sleep\x0036001\x00" else []
    assert sleepers == []


def test_prints_of_a_verifier_do_not_reach_the_terminal(capfd):
    assert run(["print", "print"])[1].status is Status.CORRECT
    assert capfd.readouterr().out == ""


def test_prompt_rollout_and_options_arrive_without_extra_columns():
    ticket = Ticket(7, "d", "p1")
    ids = np.arange(4, dtype=np.int32)
    mask = np.array([False, False, True, True])
    segment = Segment(ids, mask, mask, np.zeros(4, np.float32), columns={"huge": np.zeros(10)})
    rollout = Rollout(ticket, 3, Prompt("p1", "d"), [segment], "prompt", "stop")

    async def body() -> Verdict:
        async with pool() as p:
            return await p.verify("k", "prompt", None, prompt=rollout.prompt, rollout=rollout, mode="strict")

    assert asyncio.run(body()).answer == "p1 3 1 strict"
    assert "huge" in segment.columns


def test_what_cannot_be_sent_is_an_error_verdict():
    async def body() -> tuple[Verdict, Verdict]:
        async with pool() as p:
            return await p.verify("k", "right", lambda: 1), await p.verify("k", "right", None)

    failed, after = asyncio.run(body())
    assert (failed.status, failed.detail) == (Status.ERROR, "machinery")
    assert after.status is Status.CORRECT


def test_large_responses_and_lone_surrogates_pass():
    assert [v.status for v in run(["right:" + "x" * 3_000_000, "right:\ud800"])] == [Status.CORRECT] * 2


# --- building ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("factory", "text"), [("Broken", "No module named 'sumpy'"), ("NoVerify", "no method 'verify'")]
)
def test_a_verifier_that_does_not_build_stops_the_start(workers, factory, text):
    with pytest.raises(ComponentError, match=text) as caught:
        run([], workers, k=Spec(factory, name="sick"))
    assert "'sick' (k)" in str(caught.value)


def test_a_verifier_that_is_never_built_stops_the_start():
    async def body() -> None:
        async with VerifierPool({"k": Spec("Stuck")}, workers=1, timeout_s=1, start_timeout_s=1.5):
            pass

    with pytest.raises(ComponentError, match=r"not built within 1\.5 s"):
        asyncio.run(body())


def test_unknown_keys_and_use_outside_its_life_are_refused():
    async def body() -> None:
        p = pool()
        with pytest.raises(RuntimeError, match="is new"):
            await p.verify("k", "right", None)
        async with p:
            with pytest.raises(UnknownNameError, match="no verifier key named 'kk'"):
                await p.verify("kk", "right", None)
        with pytest.raises(RuntimeError, match="is closed"):
            await p.verify("k", "right", None)

    asyncio.run(body())


# --- in the driver ----------------------------------------------------------------------------------------------------


def test_without_workers_a_thread_answers_in_time():
    async def body() -> list[Verdict]:
        async with VerifierPool({"k": Spec()}, workers=0, timeout_s=DEADLINE_S) as p:
            return [await p.verify("k", response, None) for response in ("right", "raise", "pid")]

    right, raised, pid = asyncio.run(body())
    assert (right.status, raised.detail, pid.answer) == (Status.CORRECT, "raised", str(os.getpid()))


def test_what_cannot_be_pickled_runs_in_a_thread_with_a_warning(caplog):
    class Local(Spec):
        pass

    failed, right = run(["raise", "right"], k=Local(name="notebook"))
    assert (failed.detail, right.status) == ("raised", Status.CORRECT)
    assert "verifier 'notebook' (k) cannot be sent to a worker process" in caplog.text


# --- async verifiers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_async_verifiers_run_together_in_the_loop(workers):
    async def body() -> tuple[list[Verdict], float]:
        async with pool(workers, a=Spec("Slow", name="judge"), k=Spec()) as p:
            started = time.monotonic()
            verdicts = await asyncio.gather(*(p.verify("a", str(i), None) for i in range(40)))
            return verdicts, time.monotonic() - started

    verdicts, seconds = asyncio.run(body())
    assert [v.answer for v in verdicts] == [str(i) for i in range(40)]
    assert {v.verifier for v in verdicts} == {"judge"}
    assert seconds < 40 * 0.05


def test_the_number_of_async_verdicts_under_way_is_bounded():
    async def body() -> float:
        async with VerifierPool({"a": Spec("Slow")}, workers=0, timeout_s=5, concurrency=2) as p:
            started = time.monotonic()
            await asyncio.gather(*(p.verify("a", str(i), None) for i in range(8)))
            return time.monotonic() - started

    assert asyncio.run(body()) >= 4 * 0.05


@pytest.mark.parametrize(
    ("fault", "detail"),
    [("hang", "timeout"), ("stubborn", "timeout"), ("raise", "raised"), ("float", "bad_result")],
)
def test_faults_of_async_verifiers(fault, detail):
    async def body() -> tuple[Verdict, float]:
        async with pool(0, a=Spec("Slow")) as p:
            started = time.monotonic()
            verdict = await p.verify("a", fault, None)
            return verdict, time.monotonic() - started

    verdict, seconds = asyncio.run(body())
    assert (verdict.status, verdict.detail) == (Status.ERROR, detail)
    assert seconds < DEADLINE_S + MARGIN_S  # "stubborn" goes on for 4 s more


# --- the end ----------------------------------------------------------------------------------------------------------


def test_close_answers_every_waiter():
    async def body() -> list[Verdict]:
        p = VerifierPool({"k": Spec(), "a": Spec("Slow")}, workers=1, timeout_s=30)
        await p.start()
        responses = [("k", "hang"), ("k", "right"), ("k", "right"), ("a", "hang")]
        tasks = [asyncio.create_task(p.verify(key, response, None)) for key, response in responses]
        await asyncio.sleep(0.2)
        await p.close()
        await p.close()
        return await asyncio.wait_for(asyncio.gather(*tasks), 5)

    assert [(v.status, v.detail) for v in asyncio.run(body())] == [(Status.ERROR, "closed")] * 4


def test_a_cancelled_waiter_frees_its_place_in_the_queue():
    async def body() -> Verdict:
        async with pool() as p:
            hanging = asyncio.create_task(p.verify("k", "hang", None))
            queued = [asyncio.create_task(p.verify("k", "hang", None)) for _ in range(50)]
            await asyncio.sleep(0.05)
            for task in queued:
                task.cancel()
            verdict = await asyncio.wait_for(p.verify("k", "right", None), DEADLINE_S + MARGIN_S)
            assert (await hanging).detail == "timeout"
            return verdict

    assert asyncio.run(body()).status is Status.CORRECT


SCRIPT = """
import asyncio, os, signal, sys
from fake_verifiers import Spec
from roll_core.scoring import VerifierPool

print("main runs", flush=True)

async def body():
    p = VerifierPool({"k": Spec()}, workers=1, timeout_s=60)
    await p.start()
    print((await p.verify("k", "pid", None)).answer, flush=True)
    task = asyncio.create_task(p.verify("k", "hang" if sys.argv[1] != "idle" else "right", None))
    await asyncio.sleep(0.1)
    if sys.argv[1] != "exit":
        os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(5)

asyncio.run(body())
"""


MAIN_SCRIPT = """
import asyncio, os
from roll_core.scoring import VerifierPool
from roll_core.types import Verdict

class Spec:
    name, version = "notebook", "0"
    def build(self):
        return self
    def verify(self, response, reference, *, prompt=None, rollout=None):
        return Verdict.correct(str(os.getpid() == DRIVER))

DRIVER = os.getpid()

async def body():
    async with VerifierPool({"k": Spec()}, workers=1, timeout_s=5) as p:
        print((await p.verify("k", "", None)).answer)

asyncio.run(body())
"""


def test_a_verifier_of_the_main_script_runs_in_the_driver(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(MAIN_SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.stdout == "True\n", done.stderr
    assert "defined in the main script" in done.stderr


@pytest.mark.parametrize(("how", "code"), [("exit", 5), ("idle", -signal.SIGKILL)])
def test_no_worker_outlives_a_driver_that_did_not_close(tmp_path, how, code):
    script = tmp_path / "script.py"  # has no `if __name__ == "__main__"` guard: it must run once only
    script.write_text(SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, script, how], capture_output=True, text=True, env=env, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    lines = done.stdout.split("\n")
    assert lines[0] == "main runs"
    worker = int(lines[1])
    for _ in range(100):
        if not Path(f"/proc/{worker}").exists() or " Z " in Path(f"/proc/{worker}/stat").read_text():
            return
        time.sleep(0.02)
    pytest.fail(f"worker {worker} is still alive")


def test_an_async_verifier_is_ready_before_the_first_verdict_and_closed_after_the_last():
    from fake_verifiers import Host

    Host.log.clear()
    run(["a"], k=Spec("Host"))
    assert Host.log == ["ready", "a", "closed"]


@pytest.mark.parametrize(("name", "text"), [("Unready", "no jail holds"), ("UnreadyAsync", "no model here")])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_verifier_that_cannot_get_ready_stops_the_start(name, text, workers):
    with pytest.raises(ComponentError, match=text):
        run(["a"], workers, k=Spec(name))


@pytest.mark.parametrize("name", ["Patient", "PatientAsync"])
def test_a_verifier_that_may_honestly_take_longer_gets_its_own_deadline(name):
    (verdict,) = run(["a"], k=Spec(name))
    assert verdict.status is Status.CORRECT and verdict.seconds > DEADLINE_S
