"""Verdicts of hosts: the same as of a pool in the driver, whatever becomes of the hosts."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections import Counter
from dataclasses import replace

import pytest
from fake_verifiers import Spec
from role_handlers import QUICK
from role_verifiers import DeadlySpec, Threshold

from roll_core.cluster import RayExecutor, WorkerLost
from roll_core.cluster.processes import is_running
from roll_core.errors import ComponentError, UnknownNameError
from roll_core.plugin.host import Host
from roll_core.roles import HostedVerifierPool, host_spec
from roll_core.scoring import DomainScoring, Scorer, VerifierPool
from roll_core.types import Status

DEADLINE_S = 5.0
LONGEST_S = 150.0
TOTAL = 500
SPECS = {"k": Spec(), "slow": Spec("Slow", "judge"), "deadly": DeadlySpec()}


def hosted(executor, specs=SPECS, hosts=2, limits=QUICK, timeout_s=DEADLINE_S, **options):
    times = {"timeout_s": timeout_s, "start_timeout_s": 40}
    return HostedVerifierPool(specs, executor, hosts=hosts, workers=1, host_cpus=0.5, limits=limits, **times, **options)


def run(pool, body):
    async def whole():
        async def inner():
            try:
                await pool.start()
                return await body(pool)
            finally:
                await pool.close()

        return await asyncio.wait_for(inner(), LONGEST_S)

    return asyncio.run(whole())


async def verdicts(pool, *asked):
    return await asyncio.gather(*(pool.verify(key, response, None) for key, response in asked))


def hosts_of(executor):
    return {w.index: w.pid for w in executor.health() if w.role == "verifiers" and w.is_alive and w.pid}


async def until(condition):
    while not condition():
        await asyncio.sleep(0.02)


def test_verdicts_are_those_of_a_pool_in_the_driver(executor):
    asked = [
        ("k", text) for text in ("right", "wrong", "?", "raise", "nan", "none", "sysexit", "exit", "hang", "print")
    ]
    asked += [("slow", "fine"), ("slow", "raise"), ("slow", "float"), ("deadly", "leave:now")]

    async def body(pool):
        found = await verdicts(pool, *asked)
        await until(lambda: pool.replaced == 2)
        return found, pool.take_metrics()

    ours, metrics = run(hosted(executor, timeout_s=1.0), body)
    theirs, plain = run(VerifierPool(SPECS, workers=1, timeout_s=1.0), body)
    assert [replace(v, seconds=0.0) for v in ours] == [replace(v, seconds=0.0) for v in theirs]
    assert {v.detail for v in ours} >= {"raised", "bad_result", "crashed", "timeout"}
    assert all(v.verifier and v.version and v.seconds > 0 for v in ours)
    assert metrics["scoring/workers_replaced"] == plain["scoring/workers_replaced"] == 2
    assert metrics["scoring/host_verdicts/0"] + metrics["scoring/host_verdicts/1"] == len(asked)
    assert (metrics["scoring/hosts_live"], metrics["scoring/hosts_lost"], metrics["scoring/verdicts_lost"]) == (2, 0, 0)


def judge_while(executor, harms, prepared=lambda: None):
    """Ask for 500 verdicts and do one harm after the other meanwhile; returns what has to hold in any case, checked."""
    rng = random.Random(0)
    keys = [rng.choice(["k", "k", "deadly"]) for _ in range(TOTAL)]
    asked = [(key, "right" if key == "k" else f"sleep:0.3{number:03d}") for number, key in enumerate(keys)]
    answered = Counter()

    async def one(pool, number):
        verdict = await pool.verify(*asked[number], None)
        answered[number] += 1
        return verdict

    async def body(pool):
        await asyncio.to_thread(prepared)

        async def do_harm():
            for number, harm in enumerate(harms):
                await until(lambda least=60 + 80 * number: answered.total() > least)
                await until(lambda: pool.take_metrics()["scoring/hosts_live"] == 3)
                await asyncio.to_thread(harm, rng)
                await until(lambda number=number: pool.take_metrics()["scoring/hosts_lost"] > number)

        found, _ = await asyncio.gather(asyncio.gather(*(one(pool, number) for number in range(TOTAL))), do_harm())
        await until(lambda: pool.take_metrics()["scoring/hosts_live"] == 3)
        return found, pool.take_metrics()

    found, metrics = run(hosted(executor, hosts=3, limits=replace(QUICK, failures=10), concurrency=4), body)
    assert answered == Counter(range(TOTAL))
    lost = [verdict for verdict in found if verdict.status is Status.ERROR]
    right = [(v.answer, text) for v, (_, text) in zip(found, asked, strict=True) if v.status is Status.CORRECT]
    assert len(lost) + len(right) == TOTAL and all(answer == text for answer, text in right)
    assert {verdict.detail for verdict in lost} <= {"host_lost"}
    assert metrics["scoring/verdicts_lost"] == len(lost) < TOTAL // 4
    assert metrics["scoring/hosts_restarted"] == metrics["scoring/hosts_lost"] >= len(harms)
    assert metrics["scoring/verdicts_retried"] > 0


def kill_one(executor):
    return lambda rng: os.kill(rng.choice(sorted(hosts_of(executor).values())), signal.SIGKILL)


def test_500_verdicts_while_hosts_are_killed_at_random(local):
    judge_while(local, [kill_one(local)] * 4)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_500_verdicts_while_a_host_is_killed_and_a_machine_goes(ray_cluster):
    with warnings.catch_warnings(), RayExecutor(address=ray_cluster.address, placement_timeout_s=30) as executor:
        warnings.simplefilter("ignore", ResourceWarning)
        holding = host_spec("holding", "role_handlers:open_toy", 1, {}, cpus=3.2)
        room = executor.start(holding, timeout_s=60)  # leaves room for one verifier host on the first machine
        node = ray_cluster.add_node(num_cpus=4, object_store_memory=100_000_000)

        def remove(_):
            ray_cluster.remove_node(node, allow_graceful=False)

        judge_while(executor, [kill_one(executor), remove, kill_one(executor)], prepared=room.close)


def test_a_verdict_that_ends_its_hosts_becomes_an_error_and_others_do_not(local):
    async def body(pool):
        return await verdicts(pool, ("deadly", "exit"), *[("k", "right")] * 30), pool.take_metrics()

    found, metrics = run(hosted(local), body)
    assert (found[0].status, found[0].detail, found[0].verifier) == (Status.ERROR, "host_lost", "deadly")
    assert found[0].score is None and "its host was lost (2 times)" in found[0].reason
    assert {v.status for v in found[1:]} == {Status.CORRECT}
    assert metrics["scoring/verdicts_lost"] == 1


def test_the_workers_of_a_host_end_with_it(local):
    async def body(pool):
        before = {int((await pool.verify("k", "pid", None)).answer) for _ in range(20)}
        hanging = asyncio.create_task(pool.verify("k", "spin", None))
        await asyncio.sleep(0.3)
        for pid in hosts_of(local).values():
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not any(is_running(pid) for pid in before))
        hanging.cancel()
        return before

    assert len(run(hosted(local, timeout_s=100.0), body)) == 2


def test_with_no_host_left_verdicts_become_errors_and_the_run_stops(local):
    limits = replace(QUICK, failures=1)

    async def body(pool):
        asked = [asyncio.create_task(pool.verify("k", "hang", None)) for _ in range(6)]
        await asyncio.sleep(0.3)
        os.kill(*hosts_of(local).values(), signal.SIGKILL)
        found = await asyncio.gather(*asked)
        with pytest.raises(WorkerLost, match="no host of role 'verifiers' is left"):
            await pool.verify("k", "right", None)
        with pytest.raises(WorkerLost, match="none could be put in its place"):
            Scorer({"d": DomainScoring("k", [])}, pool).alarms([])
        return found

    found = run(hosted(local, hosts=1, limits=limits, timeout_s=100.0), body)
    assert {(v.status, v.detail, v.score) for v in found} == {(Status.ERROR, "host_lost", None)}


def test_closing_answers_those_who_wait(local):
    pool = hosted(local)

    async def body(pool):
        asked = [asyncio.create_task(pool.verify(key, "hang", None)) for key in ("k", "slow") * 10]
        await asyncio.sleep(0.2)
        await pool.close()
        with pytest.raises(RuntimeError, match="the verifier pool is closed"):
            await pool.verify("k", "right", None)
        return await asyncio.gather(*asked)

    assert {(v.status, v.detail) for v in run(pool, body)} == {(Status.ERROR, "closed")}
    asyncio.run(pool.close())
    assert not hosts_of(local)


def test_what_is_wrong_at_the_start_says_which_verifier(local):
    with pytest.raises(ComponentError, match="verifier 'faulty' \\(k\\) could not be built: ModuleNotFoundError"):
        run(hosted(local, {"k": Spec("Broken")}), verdicts)
    with pytest.raises(ComponentError, match="could not get ready"):
        run(hosted(local, {"k": Spec("UnreadyAsync")}), verdicts)
    assert not hosts_of(local)


def test_calls_that_make_no_sense(local):
    async def body(pool):
        with pytest.raises(UnknownNameError):
            await pool.verify("q", "right", None)
        return await pool.verify("k", "right", threading.Lock())

    with pytest.raises(RuntimeError, match="the verifier pool is new"):
        asyncio.run(hosted(local).verify("k", "right", None))
    assert run(hosted(local, {"k": Spec()}, hosts=1), body).detail == "machinery"
    with pytest.raises(ValueError, match="at least 1"):
        hosted(local, hosts=0)


ROLLFILE = """
import roll_core as roll

@roll.verifier
def shout(response: str, reference: str) -> bool:
    return response == reference.upper()
"""


def test_verifiers_from_python_and_a_rollfile_reach_the_hosts(executor, tmp_path):
    file = tmp_path / "rollfile.py"
    file.write_text(ROLLFILE)
    host = Host.discover(rollfile=file)
    least = 3

    def long_enough(response: str, reference: str) -> bool:
        return len(response) >= least

    specs = {
        "closure": host.spec("verifiers", long_enough, {}),
        "lambda": host.spec("verifiers", lambda response, reference: float(response == reference), {}),
        "object": host.spec("verifiers", Threshold(0.5), {}),
        "rollfile": host.spec("verifiers", "shout", {}),
        "installed": host.spec("verifiers", "math", {}),
    }
    asked = [
        ("closure", "abc", ""), ("lambda", "a", "b"), ("object", "0.7", None), ("rollfile", "HEY", "hey"),
        ("installed", "\\boxed{4}", "4"),
    ]  # fmt: skip

    async def body(pool):
        return await asyncio.gather(*(pool.verify(*one) for one in asked))

    found = run(hosted(executor, specs, hosts=1), body)
    assert [v.score for v in found] == [1.0, 0.0, 1.0, 1.0, 1.0]


MAIN_SCRIPT = """
import asyncio, os
from roll_core.cluster import LocalExecutor
from roll_core.roles import HostedVerifierPool, host_spec
from roll_core.types import Verdict
from fake_verifiers import Spec as Other

class Spec:
    name, version = "notebook", "0"
    def build(self):
        return self
    def verify(self, response, reference, *, prompt=None, rollout=None):
        return Verdict.correct(str(os.getpid() == DRIVER))

DRIVER = os.getpid()

async def body():
    with LocalExecutor() as executor:
        pool = HostedVerifierPool({"k": Spec(), "other": Other()}, executor, hosts=1, workers=1, timeout_s=30)
        await pool.start()
        print((await pool.verify("k", "", None)).answer, (await pool.verify("other", "right", None)).answer)
        print(pool.replaced)
        await pool.close()

asyncio.run(body())
"""


def test_a_verifier_of_the_main_script_runs_in_the_driver(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(MAIN_SCRIPT)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=env, timeout=120, check=False)
    assert done.stdout == "True right\n0\n", done.stderr
    assert "defined in the main script" in done.stderr


def test_importing_roles_loads_nothing_heavy():
    code = "import sys, roll_core.roles; print(*(m for m in ('torch', 'ray', 'transformers') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == ""
