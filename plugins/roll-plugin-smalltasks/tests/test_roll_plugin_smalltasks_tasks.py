from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.contracts import Source
from roll_core.errors import ConfigError, DataError
from roll_plugin_smalltasks import (
    AddNumbers,
    JsonPeople,
    LargerNumber,
    MaxOfFour,
    ShortDescription,
    SortNumbers,
    best_constant_answer,
    constant_answer_rate,
)
from roll_plugin_smalltasks.plugin import roll_register_sources
from roll_plugin_smalltasks.words import NAMES, SUBJECTS

TASKS = [AddNumbers, LargerNumber, MaxOfFour, SortNumbers, JsonPeople, ShortDescription]


def numbers(text):
    return [int(n) for n in re.findall(r"-?\d+", text)]


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_splits_share_no_question_whatever_their_seed(task):
    train = [row for seed in (0, 7) for row in task(seed=seed)]
    held_out = [row for seed in (0, 8) for row in task(split="heldout", seed=seed)]
    assert not {row["prompt"] for row in train} & {row["prompt"] for row in held_out}
    assert not {row["id"] for row in train} & {row["id"] for row in held_out}
    assert held_out


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_rows_are_distinct_and_complete(task):
    rows = list(task())
    assert isinstance(task(), Source)
    assert len({row["prompt"] for row in rows}) == len({row["id"] for row in rows}) == len(rows)
    assert all(row["task"] == task.name and {"prompt", "reference", "id"} <= set(row) for row in rows)
    assert json.loads(json.dumps(rows)) == rows


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t.name)
def test_the_held_out_share_is_near_a_quarter(task):
    options = {} if task.__init__.__kwdefaults__.get("high") is None else {"low": 1, "high": 9}
    train, held_out = len(task(**options)), len(task(split="heldout", **options))
    if max(train, held_out) < 1000:
        assert 0.15 < held_out / (train + held_out) < 0.35


def test_splits_stay_disjoint_when_ranges_differ_and_order_does_not_matter():
    train = {frozenset((row["a"], row["b"])) for row in AddNumbers(high=15)}
    held_out = {frozenset((row["a"], row["b"])) for row in AddNumbers(split="heldout", high=30)}
    assert not train & held_out


def test_people_of_the_splits_share_no_name():
    train, held_out = ({row["name"] for row in JsonPeople(split=split)} for split in ("train", "heldout"))
    assert not train & held_out
    assert len(train | held_out) == len(NAMES) == len(set(NAMES))


def test_subjects_are_many_and_distinct():
    assert len(set(SUBJECTS)) == len(SUBJECTS) >= 180
    assert len(ShortDescription(split="heldout")) >= 30


@settings(max_examples=25, deadline=None)
@given(low=st.integers(-20, 60), width=st.integers(6, 300), seed=st.integers(0, 99))
def test_references_are_right(low, width, seed):
    options = {"low": low, "high": low + width, "size": 3, "seed": seed}
    for row in AddNumbers(**options):
        assert row["prompt"] == f"What is {row['a']} + {row['b']}? Answer with only the number."
        assert int(row["reference"]) == row["a"] + row["b"]
    for row in LargerNumber(**options):
        assert int(row["reference"]) == max(numbers(row["prompt"]))
        assert row["a"] != row["b"]
    for row in MaxOfFour(**options):
        assert int(row["reference"]) == max(numbers(row["prompt"]))
        assert len(set(row["numbers"])) == 4
    for row in SortNumbers(length=4, **options):
        assert numbers(row["reference"]) == sorted(row["numbers"]) != row["numbers"]
    assert all(low <= n <= low + width for row in MaxOfFour(**options) for n in row["numbers"])


def test_the_larger_number_stands_first_as_often_as_second():
    rows = list(LargerNumber(size=1000))
    assert 0.45 < sum(row["a"] > row["b"] for row in rows) / 1000 < 0.55


def test_json_people_says_what_the_reference_holds():
    row = JsonPeople(size=1, min_age=30, max_age=31)[0]
    assert set(row["reference"]) == {"name", "age", "city"}
    assert all(str(value) in row["prompt"] for value in row["reference"].values())
    assert row["reference"]["age"] in (30, 31)


def test_size_and_seed_choose_among_the_instances():
    assert [r["id"] for r in AddNumbers(size=10)] == [r["id"] for r in AddNumbers()][:10]
    assert [r["id"] for r in AddNumbers(seed=1)] != [r["id"] for r in AddNumbers(seed=2)]
    assert {r["id"] for r in AddNumbers(seed=1)} == {r["id"] for r in AddNumbers(seed=2)}


def test_known_rows_never_change():
    assert AddNumbers(size=1)[0]["prompt"] == "What is 1 + 1? Answer with only the number."
    assert MaxOfFour(size=1)[0]["numbers"] == [41, 86, 57, 85]
    assert JsonPeople(size=1, split="heldout")[0]["reference"] == {"name": "Felix", "age": 57, "city": "Nairobi"}


def test_baselines():
    assert constant_answer_rate(AddNumbers()) == pytest.approx(8 / 78)
    assert constant_answer_rate(ShortDescription()) == 1.0
    assert constant_answer_rate(JsonPeople()) < 0.01
    assert constant_answer_rate(MaxOfFour(split="heldout")) < 0.06
    rows = [{"gold": {"a": 1, "b": 2}}, {"gold": {"b": 2, "a": 1}}, {"gold": 3}]
    assert best_constant_answer(rows, reference="gold") == ({"a": 1, "b": 2}, pytest.approx(2 / 3))


def test_a_set_without_references_has_no_baseline():
    with pytest.raises(DataError, match="row 0 has no column 'reference'; columns: text"):
        constant_answer_rate([{"text": "x"}])
    with pytest.raises(DataError, match="without rows"):
        constant_answer_rate([])


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AddNumbers(size=200), r"split 'train' holds 78 distinct instances in this range, 200 are needed"),
        (lambda: AddNumbers(size=0), r"size is 0"),
        (lambda: AddNumbers(low=5, high=4), r"low=5 to high=4 holds fewer than 2"),
        (lambda: MaxOfFour(low=1, high=3), r"holds fewer than 4 different numbers"),
        (lambda: SortNumbers(length=1), r"nothing to sort"),
        (lambda: JsonPeople(min_age=50, max_age=40), r"ages from 50 to 40"),
        (lambda: ShortDescription(max_words=0), r"max_words is 0"),
        (lambda: AddNumbers(split="test"), r"split 'test' does not exist; it is one of train, heldout"),
    ],
)
def test_bad_options_are_config_errors(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


def test_components_build_by_name():
    components = {component.name: component for component in roll_register_sources()}
    assert set(components) == {task.name for task in TASKS}
    assert len(components["add_numbers"].build({"size": 5, "split": "heldout", "high": 12})) == 5
    with pytest.raises(ValueError, match="hihg"):
        components["add_numbers"].build({"hihg": 12})


def test_the_plugin_module_loads_nothing_heavy():
    code = (
        "import sys, roll_plugin_smalltasks.plugin, roll_plugin_smalltasks as p; p.AddNumbers();"
        "print(sorted({'torch', 'transformers', 'datasets', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
