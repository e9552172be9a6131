"""Verifiers as reward functions of TRL, verl and PrimeIntellect rubrics."""

import asyncio
import inspect
import os
import pickle
import threading

import pytest
from roll_adapter_moody import Moody

from roll_core.adapters import rubric_reward, trl_reward, verl_score
from roll_core.adapters.batch import text_of
from roll_core.adapters.verl import UnscoredError
from roll_core.errors import ConfigError, DataError, UnknownNameError


@pytest.fixture
def closing():
    """Closes what a test made."""
    made = []
    yield lambda adapter: made.append(adapter) or adapter
    for adapter in made:
        adapter.close()


# --- TRL ---


def test_trl_scores_text_and_conversations(closing):
    reward = closing(trl_reward("math", reference="answer", workers=1))
    chat = [[{"role": "assistant", "content": "So \\boxed{4}."}], [{"role": "assistant", "content": None}]]
    prompts = [[{"role": "user", "content": "2+2?"}]] * 2
    assert reward(prompts=prompts, completions=chat, answer=["4", "4"], completion_ids=[[1], [2]]) == [1.0, 0.0]
    assert reward(prompts=["2+2?"], completions=["\\boxed{5}"], answer=["4"]) == [0.0]
    assert reward.__name__ == "math"


def test_trl_leaves_out_what_the_machinery_failed_to_judge(closing, caplog):
    reward = closing(trl_reward(Moody, workers=1, timeout_s=1.0))
    logged = []
    found = reward(
        prompts=["p"] * 5,
        completions=["a", "raise", "die", "hang", "b"],
        reference=["a"] * 5,
        log_metric=lambda name, value: logged.append((name, value)),
    )
    assert found == [1.0, None, None, None, 0.0]
    assert logged == [("moody/unscored_rate", 0.6)]
    assert "no score for 3 of 5" in caplog.text


def test_trl_hands_over_columns_and_prompts(closing):
    reward = closing(trl_reward(Moody, columns={"bonus": "extra"}, workers=0))
    assert reward(prompts=["p", "q"], completions=["x", "x"], reference=["y", "y"], extra=[0.25, 0.5]) == [0.25, 0.5]
    assert reward(prompts=["why?"], completions=["prompt"], reference=["y"], extra=[0.0]) == [1.0]
    with pytest.raises(DataError, match="no column 'extra'; did you mean 'extr'"):
        reward(prompts=["p"], completions=["x"], reference=["y"], extr=[1])


def test_an_unknown_verifier_or_option_is_refused_at_once():
    with pytest.raises(UnknownNameError, match="did you mean 'math'"):
        trl_reward("mth")
    with pytest.raises(ConfigError, match="form"):
        trl_reward("math", form="anser")


# --- verl ---


def test_verl_chooses_the_verifier_by_data_source(closing):
    score = closing(verl_score({"gsm8k": "math", "*": {"use": "word_limit", "min_words": 1}}, workers=1))
    right = score(data_source="gsm8k", solution_str="\\boxed{4}", ground_truth="4", extra_info={"index": 3})
    assert (right["score"], right["acc"], right["pred"], right["unscored"]) == (1.0, 1.0, "4", 0.0)
    assert score("other", "one two", {"max_words": 1})["detail"] == "too_long"
    with pytest.raises(UnknownNameError, match="data source named 'x'"):
        closing(verl_score({"gsm8k": "math"}, workers=1))("x", "1", "1")


def test_verl_takes_options_from_the_row(closing):
    score = closing(verl_score({"m": Moody}, options=("bonus",), workers=0))
    assert score("m", "x", "y", {"bonus": 0.5, "index": 1}, reward_router_address=None)["score"] == 0.5
    assert score("m", "x", "y")["score"] == 0.0


def test_verl_does_not_invent_a_reward(closing):
    strict = closing(verl_score({"m": Moody}, workers=0, retries=0))
    with pytest.raises(UnscoredError, match="gave no score"):
        strict("m", "raise", "y")
    chosen = closing(verl_score({"m": Moody}, workers=0, retries=0, unscored=0.25))
    found = chosen("m", "raise", "y")
    assert (found["score"], found["unscored"], found["status"]) == (0.25, 1.0, "error")


def test_verl_is_called_from_many_threads_and_travels(closing):
    score = closing(verl_score({"gsm8k": "math"}, workers=2))
    found = []
    threads = [
        threading.Thread(target=lambda n=n: found.append((n, score("gsm8k", f"\\boxed{{{n}}}", "3")["score"])))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [(n, float(n == 3)) for n in range(8)]
    copy = closing(pickle.loads(pickle.dumps(score)))
    assert copy("gsm8k", "\\boxed{3}", "3")["score"] == 1.0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_starts_its_own_workers(closing):
    score = closing(verl_score({"gsm8k": "math"}, workers=1))
    assert score("gsm8k", "\\boxed{3}", "3")["score"] == 1.0
    child = os.fork()
    if child == 0:
        right = score("gsm8k", "\\boxed{3}", "3")["score"] == 1.0
        score.close()
        os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert score("gsm8k", "\\boxed{4}", "3")["score"] == 0.0


# --- rubrics ---


def test_a_rubric_reward_scores_a_group(closing):
    reward = closing(rubric_reward("math", workers=1))
    states = [{}, {}, {}]
    completions = [[{"role": "assistant", "content": f"\\boxed{{{n}}}"}] for n in (3, 4, 3)]
    assert asyncio.run(reward(completions=completions, answers=["3"] * 3, states=states)) == [1.0, 0.0, 1.0]
    assert states == [{}, {}, {}]
    assert set(inspect.signature(reward).parameters) == {"completions", "answers", "states"}


def test_a_failure_gets_the_mean_of_its_group_and_is_marked(closing):
    reward = closing(rubric_reward(Moody, workers=0))
    states = [{}, {}, {}]
    found = asyncio.run(reward(completions=["a", "raise", "b"], answers=["a"] * 3, states=states))
    assert found == [1.0, 0.5, 0.0]
    assert "broken judge" in states[1]["unscored"] and not states[0]
    assert asyncio.run(reward(completions=["raise"], answers=["a"], states=[{}])) == [0.0]


@pytest.mark.parametrize(
    ("completion", "text"),
    [
        ("plain", "plain"),
        ([{"role": "assistant", "content": "one"}, {"role": "tool", "content": "x"}], "one"),
        ([{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}], "two"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "ab"),
        ([], ""),
    ],
)
def test_the_text_of_a_completion(completion, text):
    assert text_of(completion) == text


def test_what_is_no_completion_is_refused():
    with pytest.raises(TypeError, match="text or a list of messages"):
        text_of(3)
