from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.data import Ledger, LedgerError, TicketState
from roll_core.types import Ticket


def ledger(count=4):
    made = Ledger(["a", "b"])
    made.draw(Ticket(i, "ab"[i % 2], f"p{i}", i // 2) for i in range(count))
    return made


def advance(made, ticket_id, to):
    steps = ["run", "score", "admit"]
    for name in steps[: steps.index(to) + 1]:
        getattr(made, name)(ticket_id)


def test_the_life_of_a_ticket():
    made = ledger()
    assert made.state_of(0) is TicketState.DRAWN
    assert made.run(0) == 0
    made.score(0)
    made.admit(0)
    assert made.state_of(0) is TicketState.ADMITTED
    made.train(0, 30)
    assert made.state_of(0) is None


@pytest.mark.parametrize(
    ("before", "action"),
    [
        (None, lambda made: made.score(0)),
        (None, lambda made: made.admit(0)),
        (None, lambda made: made.train(0, 1)),
        ("run", lambda made: made.admit(0)),
        ("score", lambda made: made.run(0)),
        ("score", lambda made: made.train(0, 1)),
        ("admit", lambda made: made.score(0)),
        ("admit", lambda made: made.admit(0)),
    ],
)
def test_illegal_moves_raise_and_change_nothing(before, action):
    made = ledger()
    if before:
        advance(made, 0, before)
    state = made.state_dict()
    with pytest.raises(LedgerError, match=r"ticket 0 of domain 'a' is '\w+' and cannot become '\w+'"):
        action(made)
    assert made.state_dict() == state


@pytest.mark.parametrize("before", [None, "run", "score", "admit"])
def test_a_ticket_may_be_dropped_until_it_is_trained(before):
    made = ledger()
    if before:
        advance(made, 0, before)
    made.drop(0, "stale")
    with pytest.raises(LedgerError, match="ticket 0 cannot become 'running': it is trained or dropped already"):
        made.run(0)


def test_other_bad_calls():
    made = ledger()
    with pytest.raises(LedgerError, match="ticket 9 cannot become 'running': it was never drawn"):
        made.run(9)
    with pytest.raises(LedgerError, match="ticket 3 was drawn before; the next new one is 4"):
        made.draw([Ticket(3, "a", "p")])
    with pytest.raises(LedgerError, match="of domain 'z', which the ledger does not know"):
        made.draw([Ticket(4, "z", "p")])
    with pytest.raises(LedgerError, match="without a reason"):
        made.drop(0, "")
    advance(made, 0, "admit")
    with pytest.raises(LedgerError, match="cannot be trained on -1 tokens"):
        made.train(0, -1)


def test_stale_attempts_are_refused():
    made = ledger()
    assert [made.run(0), made.run(0)] == [0, 1]
    with pytest.raises(LedgerError, match="results of attempt 0 of ticket 0 are stale: 1 is current"):
        made.score(0, attempt=0)
    made.score(0, attempt=1)


def test_report_and_shares():
    made = ledger(5)  # a: 0, 2, 4; b: 1, 3
    for ticket_id, tokens in ((0, 30), (1, 10)):
        advance(made, ticket_id, "admit")
        made.train(ticket_id, tokens)
    advance(made, 2, "score")
    made.drop(2, "all_equal")
    report = made.close(0, {"a": 0.5, "b": 0.5})
    assert report.carried == {"a": 1, "b": 1}
    assert report.tallies["a"].dropped == {"all_equal": 1}
    assert report.mix_metrics() == pytest.approx(
        {
            "mixer/target/a": 0.5,
            "mixer/target/b": 0.5,
            "mixer/dispatched/a": 0.6,
            "mixer/dispatched/b": 0.4,
            "mixer/admitted/a": 0.5,
            "mixer/admitted/b": 0.5,
            "mixer/trained_tokens/a": 0.75,
            "mixer/trained_tokens/b": 0.25,
            "mixer/run_dispatched/a": 0.6,
            "mixer/run_dispatched/b": 0.4,
            "mixer/run_admitted/a": 0.5,
            "mixer/run_admitted/b": 0.5,
            "mixer/run_trained_tokens/a": 0.75,
            "mixer/run_trained_tokens/b": 0.25,
            "mixer/dropped/a/all_equal": 1.0,
            "mixer/carried/a": 1.0,
            "mixer/carried/b": 1.0,
        }
    )


def test_a_step_counts_only_itself_and_the_run_everything():
    made = ledger(4)
    for ticket_id in (0, 1, 2, 3):
        made.drop(ticket_id, "surplus")
    first = made.close(0, {})
    made.draw([Ticket(4, "a", "p")])
    advance(made, 4, "admit")
    made.train(4, 8)
    report = made.close(1, {})
    metrics = report.mix_metrics()
    assert first.tallies["a"].drawn == 2
    assert (metrics["mixer/dispatched/a"], metrics["mixer/run_dispatched/a"]) == (1.0, 0.6)
    assert report.tallies["a"].dropped == {}
    assert report.totals["a"].dropped == {"surplus": 2}
    assert not any("nan" in str(value) for value in metrics.values())
    assert "mixer/dispatched/a" not in made.close(2, {}).mix_metrics()


def test_books_that_do_not_close_are_an_error():
    made = ledger()
    state = made.state_dict()
    state["open"] = state["open"][:-1]
    broken = Ledger(["a", "b"])
    broken.load_state_dict(state)
    message = r"books of domain 'b' do not close at step 3: 2 drawn, but 0 trained \+ 0 dropped \+ 1 carried = 1"
    with pytest.raises(LedgerError, match=message):
        broken.close(3, {})


def test_state_is_json_and_resumes_exactly():
    made = ledger(6)
    made.run(1)
    made.drop(2, "unscored")
    made.close(0, {})
    advance(made, 0, "score")
    resumed = Ledger(["a", "b", "new"])
    resumed.load_state_dict(json.loads(json.dumps(made.state_dict())))
    for each in (made, resumed):
        assert each.run(1) == 1
        each.admit(0)
        each.train(0, 5)
    known, other = made.close(1, {}), resumed.close(1, {})
    assert {k: other.totals[k] for k in "ab"} == known.totals
    assert {k: other.tallies[k] for k in "ab"} == known.tallies
    with pytest.raises(LedgerError, match="domains this run lacks: b"):
        Ledger(["a"]).load_state_dict(made.state_dict())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 11), st.sampled_from(["run", "score", "admit", "train", "drop", "close"]))))
def test_books_close_whatever_is_tried(moves):
    made = ledger(12)
    for ticket_id, move in moves:
        try:
            if move == "train":
                made.train(ticket_id, 3)
            elif move == "drop":
                made.drop(ticket_id, "x")
            elif move == "close":
                made.close(0, {})
            else:
                getattr(made, move)(ticket_id)
        except LedgerError as error:
            assert "close" not in str(error)
    report = made.close(1, {})
    assert sum(t.drawn for t in report.totals.values()) == 12


def test_errors_survive_pickling():
    error = pickle.loads(pickle.dumps(LedgerError("x")))
    assert isinstance(error, RuntimeError)
    assert str(error) == "x"
