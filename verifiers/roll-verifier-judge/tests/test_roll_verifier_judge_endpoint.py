from __future__ import annotations

import asyncio
import email.utils
import gc
import logging
import pickle
import time

import pytest

from roll_core import ConfigError
from roll_verifier_judge.asking import JudgeRejectedError, JudgeUnreachableError, Reply, StructuredRefusedError
from roll_verifier_judge.endpoint import EndpointClient
from roll_verifier_judge.options import Limits, Sampling
from roll_verifier_judge.pacing import TokenBucket, backoff_s, retry_after_s

MESSAGES = [{"role": "user", "content": "hello"}]
SCHEMA = {"type": "object"}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr("roll_verifier_judge.endpoint.backoff_s", lambda attempt, most: 0.01)


def client(endpoint, structured="off", extra=None, api_key_env=None, **limits):
    return EndpointClient(
        model="judge-1", base_url=endpoint.url, api_key_env=api_key_env, structured=structured,
        limits=Limits(**limits), extra=extra or {},
    )  # fmt: skip


def ask(one, count=1, schema=None, sampling=None):
    async def run():
        calls = [one.complete(MESSAGES, sampling or Sampling(), schema) for _ in range(count)]
        return await asyncio.gather(*calls)

    return asyncio.run(run())


def test_a_request_holds_model_messages_and_sampling(endpoint):
    endpoint.says("fine")
    sampling = Sampling(temperature=0.3, top_p=0.9, max_tokens=7, seed=5)
    assert ask(client(endpoint), sampling=sampling) == [Reply("fine", "stop")]
    assert endpoint.requests == [
        {"model": "judge-1", "messages": MESSAGES, "temperature": 0.3, "top_p": 0.9, "max_tokens": 7, "seed": 5}
    ]
    assert "authorization" not in endpoint.headers[0]


def test_extra_members_are_merged_and_null_takes_one_out(endpoint):
    ask(client(endpoint, extra={"max_tokens": None, "max_completion_tokens": 9, "seed": None}))
    assert "max_tokens" not in endpoint.requests[0]
    assert "seed" not in endpoint.requests[0]
    assert endpoint.requests[0]["max_completion_tokens"] == 9


def test_the_key_is_sent_and_kept_nowhere(endpoint, monkeypatch, caplog, make_answer):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigError, match="JUDGE_KEY"):
        client(endpoint, api_key_env="JUDGE_KEY")
    monkeypatch.setenv("JUDGE_KEY", "sk-very-secret")
    one = client(endpoint, api_key_env="JUDGE_KEY", retries=0)
    ask(one)
    assert endpoint.headers[0]["authorization"] == "Bearer sk-very-secret"
    endpoint.says(make_answer(status=401, text="no"))
    with pytest.raises(JudgeRejectedError) as caught:
        ask(one)
    for text in (caplog.text, str(caught.value), repr(one.__dict__), repr(pickle.dumps(one))):
        assert "secret" not in text


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504, 529])
def test_failures_that_may_pass_are_tried_again(endpoint, make_answer, status):
    endpoint.says(make_answer(status=status), make_answer(status=status), "fine")
    assert ask(client(endpoint))[0].text == "fine"
    assert len(endpoint.requests) == 3


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 422, 501])
def test_other_failures_are_final(endpoint, make_answer, status):
    endpoint.says(make_answer("it is broken", status=status))
    with pytest.raises(JudgeRejectedError, match=rf"status {status}.*it is broken"):
        ask(client(endpoint))
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>502</html>",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"message": 3}]}',
        b'{"choices": [{"message": {"content": [1]}}]}',
    ],
)
def test_an_answer_that_is_no_completion_is_tried_again(endpoint, make_answer, body):
    endpoint.says(make_answer(body=body), "fine")
    assert ask(client(endpoint))[0].text == "fine"
    endpoint.says(make_answer(body=body))
    with pytest.raises(JudgeUnreachableError, match=r"2 tries.*no chat completion"):
        ask(client(endpoint, retries=1))


def test_what_ends_a_reply_is_told(endpoint, make_answer):
    endpoint.says(make_answer("Score: 1", finish="length"), make_answer(None), make_answer(None, refusal="no"))
    assert [ask(client(endpoint))[0] for _ in range(3)] == [
        Reply("Score: 1", "length"), Reply("", "stop"), Reply("no", "refusal")
    ]  # fmt: skip


def test_tries_are_bounded(endpoint, make_answer):
    endpoint.says(make_answer(status=503))
    with pytest.raises(JudgeUnreachableError, match=r"3 tries.*status 503"):
        ask(client(endpoint, retries=2))
    assert len(endpoint.requests) == 3


def test_a_dead_endpoint_and_a_slow_one_are_unreachable(endpoint, make_answer):
    endpoint.says(make_answer("late", delay_s=0.5))
    with pytest.raises(JudgeUnreachableError, match=r"no answer within 0\.1 s"):
        ask(client(endpoint, retries=1, timeout_s=0.1))
    assert len(endpoint.requests) == 2
    endpoint.url = "http://127.0.0.1:9/v1"
    with pytest.raises(JudgeUnreachableError, match="ConnectError"):
        ask(client(endpoint, retries=1))


def test_a_pause_that_the_endpoint_asks_for_is_kept(endpoint, make_answer):
    endpoint.says(make_answer(status=429, headers={"retry-after": "0.3"}), "fine")
    ask(client(endpoint))
    assert endpoint.times[1] - endpoint.times[0] >= 0.3
    endpoint.says(make_answer(status=429, headers={"retry-after": "900"}))
    with pytest.raises(JudgeUnreachableError, match="pause of 900 s"):
        ask(client(endpoint))


def test_structured_output_is_asked_for_until_it_is_refused(endpoint, make_answer):
    endpoint.says(make_answer("what is response_format?", status=400), "fine")
    one = client(endpoint, structured="auto")
    with pytest.raises(StructuredRefusedError):
        ask(one, schema=SCHEMA)
    sent = endpoint.requests[0]["response_format"]
    assert sent == {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": SCHEMA}}
    assert not one.is_structured
    ask(one, schema=SCHEMA)
    assert "response_format" not in endpoint.requests[1]
    with pytest.raises(JudgeRejectedError):
        endpoint.says(make_answer(status=400))
        ask(client(endpoint, structured="on"), schema=SCHEMA)


def test_concurrency_is_bounded(endpoint, make_answer):
    endpoint.says(make_answer("fine", delay_s=0.03))
    ask(client(endpoint, concurrency=3), count=12)
    assert endpoint.most_busy == 3


def test_the_rate_is_bounded(endpoint):
    endpoint.says("fine")
    started = time.monotonic()
    ask(client(endpoint, requests_per_minute=1200), count=25)  # 20 a second, of which 20 at once
    assert 0.2 <= time.monotonic() - started < 5


def test_a_token_bucket_spreads_requests():
    now = [0.0]
    bucket = TokenBucket(60, clock=lambda: now[0])
    assert [bucket.reserve() for _ in range(4)] == [0.0, 1.0, 2.0, 3.0]
    now[0] = 10.0
    assert bucket.reserve() == 0.0
    assert bucket.reserve() == 1.0


def test_pauses_grow_within_their_bound():
    for attempt in range(12):
        pauses = [backoff_s(attempt, 8.0) for _ in range(50)]
        ceiling = min(8.0, 0.5 * 2**attempt)
        assert all(ceiling / 2 <= pause <= ceiling for pause in pauses)
    assert len({backoff_s(3, 60) for _ in range(20)}) > 10


def test_retry_after_is_seconds_or_a_date():
    assert retry_after_s("7") == 7.0
    assert retry_after_s("-3") == 0.0
    assert retry_after_s("soon") is None
    assert retry_after_s(None) is None
    assert retry_after_s(email.utils.formatdate(time.time() + 30, usegmt=True)) == pytest.approx(30, abs=2)
    assert retry_after_s(email.utils.formatdate(time.time() - 30, usegmt=True)) == 0.0


def test_connections_end_with_their_loop_and_a_copy_starts_anew(endpoint):
    endpoint.says("fine")
    one = client(endpoint, requests_per_minute=6000)
    for _ in range(3):
        ask(one, count=4)  # a loop of its own each time; unclosed sockets would be warnings, hence errors
    assert ask(pickle.loads(pickle.dumps(one)))[0].text == "fine"
    gc.collect()

    async def close_and_go_on():
        await one.complete(MESSAGES, Sampling(), None)
        await one.close()
        await one.close()
        return await one.complete(MESSAGES, Sampling(), None)

    assert asyncio.run(close_and_go_on()).text == "fine"


def test_a_cancelled_request_frees_its_place(endpoint, make_answer):
    endpoint.says(make_answer("slow", delay_s=0.3), "fine")
    one = client(endpoint, concurrency=1)

    async def run():
        task = asyncio.create_task(one.complete(MESSAGES, Sampling(), None))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return await asyncio.wait_for(one.complete(MESSAGES, Sampling(), None), 3)

    assert asyncio.run(run()).text == "fine"
