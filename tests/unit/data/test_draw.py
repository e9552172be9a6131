from __future__ import annotations

import json
from collections import Counter

import pytest

from roll_core.config.schema import DataConfig
from roll_core.data import DomainStream, Draw, PromptBuilder
from roll_core.errors import ComponentError, ConfigError


class Letters:
    """A tokenizer of characters."""

    bos_token_id = None

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [ord(c) for c in text]}


class Cycle:
    """A mixer that goes round."""

    def __init__(self):
        self.count = 0

    def weights(self, step):
        return {}

    def draw(self, count, *, step, available):
        names = [available[(self.count + i) % len(available)] for i in range(count)]
        self.count += count
        return names

    def observe(self, groups):
        pass

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def stream(domain="math", *, rows=10, seed=0, long=(), **config):
    data = DataConfig(chat=False, **config)
    source = [{"prompt": "x" * 50 if i in long else f"{domain}{i}", "reference": i} for i in range(rows)]
    return DomainStream(PromptBuilder(domain, data, source, Letters(), max_prompt_tokens=20), seed=seed)


def references(walk, count):
    return [walk.draw()[1].reference for _ in range(count)]


def test_every_epoch_is_a_new_permutation_of_all_rows():
    walk = stream()
    epochs = [references(walk, 10) for _ in range(4)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert (walk.position, walk.epoch, walk.ended) == (40, 4, False)


def test_the_order_depends_on_seed_and_domain_alone():
    assert references(stream(), 20) == references(stream(), 20)
    assert references(stream(), 20) != references(stream(seed=1), 20)
    assert references(stream(), 20) != references(stream("code"), 20)
    assert references(stream(shuffle=False), 12) == [*range(10), 0, 1]


def test_positions_count_on_over_epochs():
    walk = stream(rows=3)
    assert [walk.draw()[0] for _ in range(8)] == list(range(8))


def test_rows_that_do_not_fit_are_passed_over_and_counted():
    walk = stream(rows=6, long={1, 4, 5}, shuffle=False)
    assert [(position, prompt.reference) for position, prompt in (walk.draw() for _ in range(5))] == [
        (0, 0),
        (2, 2),
        (3, 3),
        (6, 0),
        (8, 2),
    ]
    assert walk.skipped == {"too_long": 4}


def test_a_domain_that_does_not_repeat_ends_even_behind_unusable_rows():
    walk = stream(rows=4, long={3}, shuffle=False, repeat=False)
    assert references(walk, 3) == [0, 1, 2]
    assert walk.ended
    with pytest.raises(IndexError, match="domain 'math' has ended"):
        walk.draw()


@pytest.mark.parametrize("taken", [0, 1, 7, 10, 23])
def test_a_stream_resumes_where_it_stood(taken):
    walk = stream(long={2, 3})
    references(walk, taken)
    state = json.loads(json.dumps(walk.state_dict()))
    resumed = stream(long={2, 3})
    resumed.load_state_dict(state)
    assert [resumed.draw() for _ in range(15)] == [walk.draw() for _ in range(15)]
    assert resumed.skipped == walk.skipped


def test_resuming_costs_the_same_at_any_position():
    walk = stream(rows=1000)
    walk.load_state_dict({"position": 10**15 + 7, "rows": 1000, "skipped": {}})
    assert walk.draw()[0] == 10**15 + 7


def test_a_changed_data_set_is_refused():
    with pytest.raises(ConfigError, match=r"domains\.math\.data has 9 rows, the checkpoint was made with 10"):
        stream(rows=9).load_state_dict(stream(rows=10).state_dict())


def draw(**streams):
    return Draw(streams or {"a": stream("a"), "b": stream("b")}, Cycle())


def test_tickets_count_on_over_the_run():
    made = draw()
    drawn = made.draw(3, 0) + made.draw(4, 1)
    assert [ticket.id for ticket, _ in drawn] == list(range(7))
    assert [ticket.domain for ticket, _ in drawn] == list("abababa")
    assert all((t.prompt_id, t.domain) == (p.id, p.domain) for t, p in drawn)
    assert [ticket.position for ticket, _ in drawn if ticket.domain == "a"] == [0, 1, 2, 3]


def test_ended_domains_are_not_offered_and_the_rest_fills_the_draw():
    made = draw(a=stream("a", rows=2, repeat=False), b=stream("b"))
    assert Counter(ticket.domain for ticket, _ in made.draw(9, 0)) == {"a": 2, "b": 7}
    assert made.available == ["b"]


def test_when_all_domains_end_the_draw_is_short():
    made = draw(a=stream("a", rows=2, repeat=False), b=stream("b", rows=3, repeat=False))
    assert len(made.draw(4, 0)) == 4
    assert not made.ended
    assert len(made.draw(4, 1)) == 1
    assert made.ended
    assert made.draw(4, 2) == []


def test_a_draw_resumes_exactly():
    made = draw()
    made.draw(5, 0)
    state = json.loads(json.dumps(made.state_dict()))
    resumed = draw()
    resumed.load_state_dict(state)
    assert resumed.draw(30, 1) == made.draw(30, 1)


def test_domains_may_be_added_but_not_removed_on_resume():
    old = draw()
    old.draw(4, 0)
    bigger = draw(a=stream("a"), b=stream("b"), c=stream("c"))
    bigger.load_state_dict(old.state_dict())
    drawn = bigger.draw(3, 1)
    assert [ticket.id for ticket, _ in drawn] == [4, 5, 6]
    assert next(ticket.position for ticket, _ in drawn if ticket.domain == "c") == 0
    message = r"made with domains a, b, c, but the config lacks b, c; did you mean 'bb'\?|may add domains"
    with pytest.raises(ConfigError, match=message):
        draw(a=stream("a"), bb=stream("bb")).load_state_dict(bigger.state_dict())


@pytest.mark.parametrize(
    ("names", "message"),
    [(["a"], r"mixer Fixed named 1 domains, asked for 2"), (["a", "z"], r"named z; available domains: a, b")],
)
def test_a_mixer_that_breaks_its_contract(names, message):
    class Fixed(Cycle):
        def draw(self, count, *, step, available):
            return names

    with pytest.raises(ComponentError, match=message):
        Draw({"a": stream("a"), "b": stream("b")}, Fixed()).draw(2, 0)
