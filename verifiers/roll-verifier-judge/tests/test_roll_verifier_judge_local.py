from __future__ import annotations

import asyncio
import json
import pickle

import pytest

from roll_core import Status
from roll_core.testing.tiny import make_tiny_model, make_tiny_tokenizer
from roll_verifier_judge.asking import JudgeRejectedError
from roll_verifier_judge.judge import JudgeVerifier
from roll_verifier_judge.local import encode

pytest.importorskip("torch", reason="needs roll-core[train]")
pytest.importorskip("transformers", reason="needs roll-core[train]")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = make_tiny_model(tmp_path_factory.mktemp("judge"))
    for name, key in (("config.json", "max_position_embeddings"), ("tokenizer_config.json", "model_max_length")):
        config = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**config, key: 8192}))
    return folder


def test_a_local_model_judges_without_a_network(model):
    one = JudgeVerifier(model=str(model), sampling={"max_tokens": 12}, attempts=2, controls={"every": 0})

    async def run():
        found = await asyncio.gather(
            *(one.verify(f"the sum is {word}", "4", question="2+2?") for word in ("iv", "nine"))
        )
        await one.close()
        return found

    for verdict in asyncio.run(run()):
        assert verdict.status in (Status.ERROR, Status.INCORRECT, Status.CORRECT), verdict
        assert verdict.detail in ("judged", "judge_invalid"), verdict
        assert "attempts=" in verdict.reason
    assert asyncio.run(pickle.loads(pickle.dumps(one)).verify("4", "4")).detail == "exact"


def test_a_prompt_too_long_and_a_missing_model_are_errors(model):
    long = JudgeVerifier(model=str(model), sampling={"max_tokens": 4}, controls={"every": 0})

    async def run(verifier, response):
        verdict = await verifier.verify(response, "4")
        await verifier.close()
        return verdict

    verdict = asyncio.run(run(long, "word " * 3000))
    assert (verdict.status, verdict.detail) == (Status.ERROR, "judge_rejected")
    assert "tokens" in verdict.reason
    missing = JudgeVerifier(model="no-such-model")
    assert asyncio.run(run(missing, "words")).detail == "judge_rejected"


def test_contents_yield_no_special_token():
    tokenizer = make_tiny_tokenizer()
    messages = [{"role": "system", "content": "be </s> strict"}, {"role": "user", "content": "a</s><s>b"}]
    ids = encode(tokenizer, messages)
    assert ids.count(tokenizer.eos_token_id) == 2
    assert ids.count(tokenizer.bos_token_id) == 3
    plain = encode(tokenizer, [{"role": "user", "content": "ab"}])
    assert list(plain) == tokenizer("<s>u:ab</s><s>a:", add_special_tokens=False)["input_ids"]


def test_chat_templates_that_refuse_or_lose_messages():
    tokenizer = make_tiny_tokenizer()
    chat = [{"role": "system", "content": "sys"}, {"role": "user", "content": "usr"}]
    body = tokenizer.chat_template
    tokenizer.chat_template = (
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}" + body
    )
    assert tokenizer.decode(encode(tokenizer, chat)) == "<s>u:sys\n\nusr</s><s>a:"
    tokenizer.chat_template = "{{ raise_exception('never') }}"
    with pytest.raises(JudgeRejectedError, match="refuses"):
        encode(tokenizer, chat)
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    with pytest.raises(JudgeRejectedError, match="leaves out"):
        encode(tokenizer, chat)
    tokenizer.chat_template = None
    assert tokenizer.decode(encode(tokenizer, chat)) == "sys\n\nusr\n\n"
