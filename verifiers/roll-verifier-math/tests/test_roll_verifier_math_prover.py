from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from roll_verifier_math.evaluating.prover import PROVER, Prover, packed
from roll_verifier_math.evaluating.symbolic import proved_equal, unpacked
from roll_verifier_math.reading.parse import parse
from roll_verifier_math.verify import MathVerifier, judge

START_S = 60.0


def tree(text):
    return parse(text)


IDENTITY = tree("\\sin 2x"), tree("2\\sin x\\cos x")
BOTTOMLESS = (
    tree("(\\sin x+\\cos y+\\tan z+e^{xyz})^{9}"),
    tree("(\\cos y+\\sin x+e^{zyx}+\\frac{\\sin z}{\\cos z})^{9}"),
)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds=20.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def prover():
    made = Prover()
    assert made.wait_ready(START_S)
    yield made
    made.close()


def pid_of(prover):
    return prover._child.pid


def test_it_proves_identities_and_nothing_else(prover):
    assert prover.prove(*IDENTITY, 5.0)
    assert not prover.prove(tree("\\sin 2x"), tree("2\\sin x"), 5.0)
    assert not prover.prove(tree("\\lfloor x\\rfloor"), tree("x"), 5.0)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("\\sqrt{3+2\\sqrt2}", "1+\\sqrt2"),
        ("\\cos 2x", "1-2\\sin^2 x"),
        ("\\ln 4", "2\\ln 2"),
        ("2e^{i\\pi/3}", "1+\\sqrt3 i"),
        ("\\tan^2 y+1", "\\sec^2 y"),
        ("\\frac{(n+1)!}{n!}", "n+1"),
        ("f(x+1)+1", "1+f(1+x)"),
    ],
)
def test_what_sympy_shows(left, right):
    assert proved_equal(tree(left), tree(right))


def test_trees_survive_the_way_to_the_child():
    for text in ("\\frac{1}{3}x^{2}", "f(x,2)+\\sin\\pi", "10^{-30}"):
        assert unpacked(packed(tree(text))) == tree(text)


def test_a_late_child_is_killed_and_replaced(prover):
    first = pid_of(prover)
    started = time.monotonic()
    assert not prover.prove(*BOTTOMLESS, 0.05)
    assert time.monotonic() - started < 20.0  # its proof would take hours
    assert not is_alive(first)
    assert prover.wait_ready(START_S)
    assert pid_of(prover) != first
    assert prover.prove(*IDENTITY, 5.0)


def test_a_dead_child_is_no_error(prover):
    os.kill(pid_of(prover), signal.SIGKILL)
    prover.prove(*IDENTITY, 0.2)
    assert prover.wait_ready(START_S)
    assert prover.prove(tree("\\cos 2x"), tree("2\\cos^2x-1"), 5.0)


def test_without_an_interpreter_there_is_no_proof(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    made = Prover()
    assert not made.wait_ready(1.0)
    assert not made.prove(*IDENTITY, 1.0)
    monkeypatch.setattr(sys, "executable", "")
    assert not made.prove(*IDENTITY, 1.0)


def test_closing_ends_the_child_and_the_next_proof_starts_another(prover):
    first = pid_of(prover)
    prover.close()
    assert not is_alive(first)
    assert prover.wait_ready(START_S)
    assert pid_of(prover) != first


def test_threads_share_one_child(prover):
    found = []
    texts = [(f"\\sin({n}x)\\cos y", f"\\cos y\\sin({n}x+2\\pi)") for n in range(1, 9)]
    threads = [
        threading.Thread(target=lambda pair=pair: found.append(prover.prove(tree(pair[0]), tree(pair[1]), 30.0)))
        for pair in texts
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * len(texts)


def _in_child(queue, parent_pid):
    prover = PROVER
    assert prover._child is None  # what the parent had is not ours
    verdict = judge("\\cos 2x", "2\\cos^2x-1")
    ready = prover.wait_ready(START_S)
    queue.put((verdict.score, ready, prover._child.pid != parent_pid))
    prover.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_daemon_has_its_own_child_and_spares_ours():
    assert PROVER.wait_ready(START_S)
    ours = pid_of(PROVER)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with PROVER._lock:  # as if another thread were proving something at the moment of the fork
        child = context.Process(target=_in_child, args=(queue, ours), daemon=True)
        child.start()
    assert queue.get(timeout=START_S) == (1.0, True, True)
    child.join(20)
    assert child.exitcode == 0
    gc.collect()
    assert is_alive(ours)
    assert PROVER.prove(tree("\\sin 4x"), tree("2\\sin 2x\\cos 2x"), 10.0)


def test_the_child_ends_with_its_parent_even_when_a_copy_holds_the_pipe():
    code = (
        "import os, sys, time; from roll_verifier_math.evaluating.prover import PROVER\n"
        "assert PROVER.wait_ready(60); print(PROVER._child.pid, flush=True)\n"
        "copy = os.fork()\n"
        "time.sleep(60) if copy == 0 else (print(copy, flush=True), time.sleep(60))\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    child, copy = int(parent.stdout.readline()), int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    wait_until(lambda: not is_alive(child))
    os.kill(copy, signal.SIGKILL)
    parent.stdout.close()


def test_the_verifier_works_in_threads_as_alone():
    pairs = [
        ("\\sqrt2+\\sqrt3", "\\sqrt{5+2\\sqrt6}"),
        ("\\sin 2x", "2\\sin x"),
        ("\\ln 6", "\\ln2+\\ln3"),
        ("x", "y"),
    ] * 12
    bare = MathVerifier(form="answer", prove=False)
    alone = [bare.verify(answer, gold) for gold, answer in pairs]
    found = [None] * len(pairs)

    def work(offset):
        for index in range(offset, len(pairs), 8):
            found[index] = bare.verify(pairs[index][1], pairs[index][0])

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == alone


def test_only_the_detail_depends_on_the_proof():
    assert PROVER.wait_ready(START_S)
    proved = MathVerifier(form="answer").verify("2\\sin x\\cos x", "\\sin 2x")
    bare = MathVerifier(form="answer", prove=False).verify("2\\sin x\\cos x", "\\sin 2x")
    assert (proved.detail, bare.detail) == ("symbolic", "numeric")
    assert proved.score == bare.score == 1.0
