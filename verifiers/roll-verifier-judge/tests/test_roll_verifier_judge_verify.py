from __future__ import annotations

import asyncio
import json
import logging
import pickle
import re

import pytest
from pydantic import ValidationError

from roll_core import ConfigError, Status, load_verifier
from roll_core.plugin.host import Host
from roll_core.scoring.pool import VerifierPool
from roll_core.types import Prompt
from roll_verifier_judge.judge import JudgeVerifier

OFF = {"every": 0}
LABELS = {"scale": {"type": "label", "labels": ["right", "partly right", "wrong"]},
          "scores": {"right": 1.0, "partly right": 0.5, "wrong": 0.0}}  # fmt: skip
QUESTION, REFERENCE = "What is 17*23?", "391"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr("roll_verifier_judge.endpoint.backoff_s", lambda attempt, most: 0.01)


def judge(endpoint, **options):
    return JudgeVerifier(**{"model": "judge-1", "base_url": endpoint.url, "controls": OFF, **options})


def ask(verifier, response="some words", reference=REFERENCE, **options):
    return asyncio.run(verifier.verify(response, reference, **{"question": QUESTION, **options}))


@pytest.mark.parametrize(
    ("options", "reply", "status", "score"),
    [
        ({}, '{"score": 10}', Status.CORRECT, 1.0),
        ({}, '{"score": 7.5}', Status.INCORRECT, 0.75),
        ({}, "Score: 0", Status.INCORRECT, 0.0),
        ({"scale": {"type": "number", "min": 1, "max": 5}}, "Score: 1", Status.INCORRECT, 0.0),
        ({"scale": {"type": "number", "min": 1, "max": 5}}, "[[5]]", Status.CORRECT, 1.0),
        ({"scale": {"type": "bool", "key": "match"}}, '{"match": true}', Status.CORRECT, 1.0),
        ({"scale": {"type": "bool", "key": "match"}}, '{"match": "false"}', Status.INCORRECT, 0.0),
        (LABELS, "Verdict: right", Status.CORRECT, 1.0),
        (LABELS, '{"verdict": "Partly right"}', Status.INCORRECT, 0.5),
        (LABELS, "wrong", Status.INCORRECT, 0.0),
    ],
)
def test_a_verdict_becomes_a_score(endpoint, options, reply, status, score):
    endpoint.says(reply)
    verdict = ask(judge(endpoint, **options))
    assert (verdict.status, verdict.score, verdict.detail) == (status, pytest.approx(score), "judged")


def test_a_verdict_records_model_prompt_and_sampling(endpoint):
    endpoint.says('{"score": 3}')
    one = judge(endpoint, sampling={"temperature": 0.2, "seed": 9})
    found = [ask(one).reason, ask(one, "other words", "other").reason]
    sampling = r"temperature=0\.2 top_p=1 max_tokens=1024 seed=9"
    pattern = rf"the judge says 3 \[model=judge-1 prompt=([0-9a-f]{{12}}) {sampling} attempts=1\]"
    hashes = [re.fullmatch(pattern, reason)[1] for reason in found]
    assert hashes[0] == hashes[1]  # the data are no part of it
    other = ask(judge(endpoint, instructions="Be kind."))
    assert f"prompt={hashes[0]}" not in other.reason


CRITERIA = [
    {"name": "names chlorophyll", "weight": 2},
    {"name": "tone", "text": "is it polite?", "verdicts": {"poor": 0.0, "fair": 0.5, "good": 1.0}},
]


def verdicts(**found):
    names = {"chlorophyll": "names chlorophyll", "tone": "tone"}
    return json.dumps({"verdicts": [{"name": names[name], "verdict": verdict} for name, verdict in found.items()]})


def test_a_rubric_is_a_weighted_mean(endpoint):
    one = judge(endpoint, rubric=CRITERIA)
    for reply, score in (
        (verdicts(chlorophyll="yes", tone="good"), 1.0),
        (verdicts(chlorophyll="yes", tone="fair"), 2.5 / 3),
        (verdicts(chlorophyll="no", tone="good"), 1 / 3),
        (verdicts(chlorophyll="no", tone="poor"), 0.0),
    ):
        endpoint.says(reply)
        assert ask(one, reference=None).score == pytest.approx(score)
    assert "is it polite?" in endpoint.shown
    endpoint.says(verdicts(tone="good"))
    assert ask(one, reference=None).detail == "judge_invalid"


def test_a_task_may_bring_its_own_rubric(endpoint):
    endpoint.says(verdicts(chlorophyll="yes", tone="good"))
    one = judge(endpoint, rubric="be brief")
    assert ask(one, reference={"question": "Q", "rubric": CRITERIA}).score == 1.0
    endpoint.says("Score: 4")
    assert ask(one, reference={"rubric": "names CO2"}).score == pytest.approx(0.4)
    assert "names CO2" in endpoint.shown
    assert "be brief" not in endpoint.shown
    ask(one, reference=None)
    assert "be brief" in endpoint.shown


@pytest.mark.parametrize("reference", [None, "", "  ", {"question": "Q"}, {"rubric": []}, {"rubric": [{"weight": 1}]},
                                       {"rubric": [{"name": "a"}, {"name": "A"}]}, {"rubric": 5}])  # fmt: skip
def test_without_anything_to_judge_by_it_is_undecided(endpoint, reference):
    verdict = ask(judge(endpoint), reference=reference)
    assert (verdict.status, verdict.detail) == (Status.UNDECIDED, "bad_reference")
    assert not endpoint.requests


def test_the_question_comes_from_the_prompt(endpoint):
    prompt = Prompt("p", "d", messages=({"role": "system", "content": "S"}, {"role": "user", "content": "Why so?"}))
    asyncio.run(judge(endpoint).verify("words", {"x": 1}, prompt=prompt))
    assert "Why so?" in endpoint.shown
    assert '{"x": 1}' in endpoint.shown
    asyncio.run(judge(endpoint).verify("words", 5, prompt=Prompt("p", "d", text="Raw text")))
    assert "Raw text" in endpoint.shown


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_reply_without_a_verdict_is_asked_for_again(endpoint):
    endpoint.says("hm", "Score: 7 or 8", '{"score": 10}')
    verdict = ask(judge(endpoint))
    assert verdict.score == 1.0
    assert "temperature=0.5" in verdict.reason
    assert "seed=2 attempts=3" in verdict.reason
    assert [request["seed"] for request in endpoint.requests] == [0, 1, 2]
    assert [request["temperature"] for request in endpoint.requests] == [0.0, 0.5, 0.5]


def test_a_judge_that_never_gives_a_verdict_is_an_error_without_a_score(endpoint, make_answer):
    for answer in (
        "hm",
        make_answer("Score: 10", finish="length"),
        make_answer(None),
        make_answer("", refusal="I refuse"),
    ):
        endpoint.requests.clear()
        endpoint.says(answer)
        verdict = ask(judge(endpoint, attempts=2))
        assert (verdict.status, verdict.score, verdict.detail) == (Status.ERROR, None, "judge_invalid")
        assert len(endpoint.requests) == 2


def test_a_judge_that_cannot_be_reached_is_an_error_without_a_score(endpoint, make_answer):
    endpoint.says(make_answer(status=503))
    verdict = ask(judge(endpoint, limits={"retries": 1}))
    assert (verdict.status, verdict.score, verdict.detail) == (Status.ERROR, None, "judge_unreachable")
    endpoint.says(make_answer(status=401))
    assert ask(judge(endpoint)).detail == "judge_rejected"


def test_free_text_is_read_where_structured_output_is_refused(endpoint, make_answer):
    endpoint.says(make_answer(status=400), "It is right.\nScore: 10")
    one = judge(endpoint)
    assert ask(one).score == 1.0
    assert "response_format" in endpoint.requests[0]
    assert "JSON" in endpoint.requests[0]["messages"][1]["content"]
    assert "response_format" not in endpoint.requests[1]
    assert '"Score:"' in endpoint.requests[1]["messages"][1]["content"]


# --- the cache --------------------------------------------------------------------------------------------------------


def test_replies_are_kept_by_what_was_asked(endpoint, tmp_path):
    endpoint.says('{"score": 4}')
    folder = tmp_path / "a" / "cache"
    assert ask(judge(endpoint, cache=folder)).score == pytest.approx(0.4)
    assert ask(judge(endpoint, cache=folder)).score == pytest.approx(0.4)
    assert len(endpoint.requests) == 1
    changes = [
        {"model": "judge-2"},
        {"sampling": {"temperature": 1.0}},
        {"scale": {"type": "number", "min": 0, "max": 8}},
        {"instructions": "Be kind."},
        {"extra": {"top_k": 1}},
    ]
    for count, change in enumerate(changes, 2):
        ask(judge(endpoint, cache=folder, **change))
        assert len(endpoint.requests) == count, change
    ask(judge(endpoint, cache=folder), "other words")
    ask(judge(endpoint, cache=folder), question="Other?")
    assert len(endpoint.requests) == len(changes) + 3
    assert not [path for path in folder.rglob("*") if path.name.startswith(".")]


def test_only_verdicts_are_kept(endpoint, tmp_path):
    endpoint.says("hm")
    assert ask(judge(endpoint, cache=tmp_path, attempts=1)).detail == "judge_invalid"
    assert not list(tmp_path.iterdir())


def test_a_spoilt_file_is_asked_for_again(endpoint, tmp_path, caplog):
    endpoint.says('{"score": 4}')
    ask(judge(endpoint, cache=tmp_path))
    (file,) = tmp_path.rglob("*.json")
    for text in ("", "{", '{"reply": 5}', '{"reply": "no verdict"}', "[]"):
        file.write_text(text)
        assert ask(judge(endpoint, cache=tmp_path)).score == pytest.approx(0.4)
    assert len(endpoint.requests) == 6
    assert "unusable" in caplog.text


def test_a_folder_that_cannot_be_written_costs_no_verdict(endpoint, tmp_path, caplog):
    (tmp_path / "file").write_text("")
    endpoint.says('{"score": 4}')
    assert ask(judge(endpoint, cache=tmp_path / "file")).score == pytest.approx(0.4)
    assert "not kept" in caplog.text


# --- controls ---------------------------------------------------------------------------------------------------------


def by_response(**scores):
    """A judge that scores by the response it is shown."""

    def answer(body):
        shown = re.search(r"BEGIN RESPONSE \w+\n`+\n(.*?)\n`+\nEND", body["messages"][1]["content"], re.DOTALL)[1]
        return json.dumps({"score": scores.get(shown.split()[0], scores["other"])})

    return answer


def many(verifier, count):
    async def run():
        return await asyncio.gather(
            *(verifier.verify(f"words {i}", REFERENCE, question=QUESTION) for i in range(count))
        )

    return asyncio.run(run())


def test_controls_go_along_with_every_batch(endpoint, make_answer, caplog):
    answer = by_response(**{"391": 10, "words": 5}, other=0)
    endpoint.answer = lambda body: make_answer(answer(body))
    one = judge(endpoint, controls={"every": 4})
    assert [verdict.score for verdict in many(one, 9)] == [0.5] * 9
    assert len(endpoint.requests) == 9 + 3 * 2
    assert (one.controls.total, one.controls.failures, one.controls.has_alarm) == (6, 0, False)
    assert not caplog.records


def test_a_judge_that_pays_everything_raises_the_alarm_once_per_window(endpoint, caplog):
    endpoint.says('{"score": 10}')
    one = judge(endpoint, controls={"every": 1, "window": 8})
    assert all(verdict.score == 1.0 for verdict in many(one, 12))
    assert (one.controls.total, one.controls.failures) == (24, 12)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 3
    assert "judge 'judge-1' fails its controls" in warnings[0].getMessage()


def test_verdicts_can_be_withheld_until_the_controls_pass_again(endpoint, make_answer):
    endpoint.says('{"score": 10}')
    one = judge(endpoint, controls={"every": 50, "window": 4, "on_failure": "error"})
    verdict = ask(one)
    assert (verdict.status, verdict.detail, verdict.score) == (Status.ERROR, "controls_failed", None)
    answer = by_response(**{"391": 10, "words": 5}, other=0)
    endpoint.answer = lambda body: make_answer(answer(body))
    assert [ask(one, f"words {i}").detail for i in range(4)] == ["controls_failed", "judged", "judged", "judged"]
    assert one.controls.total == 6


def test_controls_of_the_users_own(endpoint, make_answer):
    answer = by_response(fine=10, words=5, other=0)
    endpoint.answer = lambda body: make_answer(answer(body))
    good = [{"question": "q", "response": "fine thing", "rubric": "be fine"}]
    bad = [{"question": "q", "response": "poor thing", "rubric": "be fine"}]
    one = judge(endpoint, rubric="be nice", controls={"every": 1, "good": good, "bad": bad})
    ask(one, "words", reference=None)
    assert (one.controls.total, one.controls.failures) == (2, 0)
    assert len(endpoint.requests) == 3


def test_controls_are_never_taken_from_the_cache_and_a_silent_judge_has_not_failed_them(endpoint, tmp_path):
    endpoint.says('{"score": 10}')
    one = judge(endpoint, cache=tmp_path, controls={"every": 1})
    ask(one)
    ask(one)
    assert len(endpoint.requests) == 1 + 2 * 2
    endpoint.says("hm")
    one = judge(endpoint, controls={"every": 1}, attempts=1)
    assert ask(one).detail == "judge_invalid"
    assert one.controls.total == 0


# --- options and life -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "ftp://x"},
        {"api_key_env": "X", "base_url": None},
        {"scores": {"a": 1.0}},
        {"scale": {"type": "label", "labels": ["a", "b"]}},
        {"scale": {"type": "label", "labels": ["a", "b"]}, "scores": {"a": 1.0, "b": 1.5}},
        {"scale": {"type": "rubric", "criteria": {"a": ["x", "y"]}}},
        {"scale": {"type": "number", "min": 3, "max": 3}},
        {"attempts": 0},
        {"sampling": {"temperatur": 1}},
        {"controls": {"on_failure": "ignore"}},
        {"rubric": [{"name": "a", "weight": 0}]},
        {"surprise": 1},
    ],
)
def test_options_that_make_no_sense_are_refused(endpoint, options):
    with pytest.raises((ValidationError, ConfigError)):
        judge(endpoint, **options)


def test_load_verifier_and_pickling(endpoint):
    endpoint.says('{"score": 10}')
    loaded = load_verifier("judge", model="judge-1", base_url=endpoint.url, controls=OFF)
    assert loaded("words", REFERENCE).score == 1.0
    assert loaded("391", REFERENCE).detail == "exact"
    copy = pickle.loads(pickle.dumps(loaded.verifier))
    assert ask(copy).score == 1.0
    assert len(endpoint.requests) == 2


def test_many_verdicts_run_at_once_in_the_scoring_pool(endpoint, make_answer):
    endpoint.says(make_answer('{"score": 10}', delay_s=0.05))
    options = {"model": "judge-1", "base_url": endpoint.url, "controls": OFF}
    spec = Host.discover().spec("verifiers", "judge", options)

    async def run():
        async with VerifierPool({"d": spec}, workers=1, timeout_s=20) as pool:
            return await asyncio.gather(*(pool.verify("d", f"words {i}", REFERENCE) for i in range(24)))

    assert [verdict.score for verdict in asyncio.run(run())] == [1.0] * 24
    assert endpoint.most_busy > 4
