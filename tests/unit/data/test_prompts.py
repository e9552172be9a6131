from __future__ import annotations

import logging

import pytest

from roll_core.builtin.sources.rows import RowsSource
from roll_core.config.schema import DataConfig
from roll_core.data import HeldOut, PromptBuilder
from roll_core.data.template import Template
from roll_core.errors import DataError
from roll_core.testing.tiny import make_tiny_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    pytest.importorskip("transformers")
    return make_tiny_tokenizer()


def builder(tokenizer, rows, *, max_prompt_tokens=200, domain="math", **config):
    source = RowsSource(rows=[{"prompt": row, "reference": "1"} if isinstance(row, str) else row for row in rows])
    data = DataConfig(use="rows", **config)
    return PromptBuilder(domain, data, source, tokenizer, max_prompt_tokens=max_prompt_tokens)


def text(tokenizer, prompt):
    return tokenizer.decode(prompt.token_ids)


def test_chat_prompt(tokenizer):
    rows = [{"prompt": "1+1", "reference": "2", "level": 3}]
    prompt = builder(tokenizer, rows, system="be brief", template="say {prompt} ({level})").build(0)
    assert text(tokenizer, prompt) == "<s>s:be brief</s><s>u:say 1+1 (3)</s><s>a:"
    assert all(isinstance(token, int) for token in prompt.token_ids)
    assert prompt.messages == (
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "say 1+1 (3)"},
    )
    assert (prompt.id, prompt.domain, prompt.reference, prompt.info) == ("math/0", "math", "2", {"level": 3})


def test_examples_come_before_the_question(tokenizer):
    examples = [{"user": "0+1", "assistant": "1"}]
    chat = builder(tokenizer, ["1+1"], examples=examples).build(0)
    assert text(tokenizer, chat) == "<s>u:0+1</s><s>a:1</s><s>u:1+1</s><s>a:"
    raw = builder(
        tokenizer, ["1+1"], examples=[{"user": "q: 0+1", "assistant": " = 1"}], template="q: {prompt}", chat=False
    )
    assert raw.build(0).text == "q: 0+1 = 1\n\nq: 1+1"


def test_raw_text_is_tokenized_as_it_is(tokenizer):
    prompt = builder(tokenizer, ["1+1="], chat=False).build(0)
    assert prompt.text == text(tokenizer, prompt) == "1+1="
    assert prompt.messages == ()


def test_raw_text_begins_as_the_tokenizer_begins_text(tokenizer):
    class WithBeginning:
        bos_token_id = 1
        chat_template = None

        def __call__(self, text, add_special_tokens=True):
            ids = [ord(c) for c in text]
            return {"input_ids": [1, *ids, 2] if add_special_tokens else ids}

    prompt = builder(WithBeginning(), ["ab"], chat=False).build(0)
    assert prompt.token_ids == (1, 97, 98)  # and no end token behind the prompt


def test_messages_in_the_prompt_column_are_used_as_they_are(tokenizer):
    own = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "x"}]
    made = builder(tokenizer, [{"prompt": own, "reference": "1"}])
    assert text(tokenizer, made.build(0)) == "<s>u:hi</s><s>a:ho</s><s>u:x</s><s>a:"
    with_system = [{"role": "system", "content": "mine"}, *own]
    made = builder(tokenizer, [{"prompt": own, "reference": 1}, {"prompt": with_system, "reference": 1}], system="s")
    assert [made.build(i).messages[0]["content"] for i in (0, 1)] == ["s", "mine"]
    with pytest.raises(DataError, match="holds messages, which need 'chat: true' and no template"):
        builder(tokenizer, [{"prompt": own, "reference": "1"}], template="q: {prompt}")
    with pytest.raises(DataError, match="holds messages, which need 'chat: true'"):
        builder(tokenizer, [{"prompt": own, "reference": "1"}], chat=False)
    with pytest.raises(DataError, match="messages with a 'role'"):
        builder(tokenizer, [{"prompt": [{"content": "x"}], "reference": "1"}])


def test_columns_are_mapped_and_ids_stable(tokenizer):
    rows = [{"question": "q", "answer": {"n": 1}, "uid": 17, "prompt": "not this"}]
    made = builder(tokenizer, rows, columns={"prompt": "question", "reference": "answer", "id": "uid"})
    prompt = made.build(0)
    assert text(tokenizer, prompt) == "<s>u:q</s><s>a:"
    assert (prompt.id, prompt.reference, prompt.info) == ("17", {"n": 1}, {"prompt": "not this"})


def test_a_template_may_do_without_a_prompt_column(tokenizer):
    made = builder(tokenizer, [{"a": 1, "b": 2}], template="{a}+{b}", columns={"reference": None})
    assert made.question(0) == "1+2"
    assert made.build(0).reference is None


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"columns": {"prompt": "questoin"}},
            r"row 0 has no column 'questoin' \(named by columns\.prompt\); did you mean 'question'\? columns: ques",
        ),
        ({"columns": {"prompt": "question"}}, r"no column 'reference' \(named by columns\.reference\)"),
        (
            {"columns": {"prompt": "question", "reference": "answer", "id": "uid"}},
            r"no column 'uid' \(named by columns\.id\)",
        ),
        ({"template": "{question} {hint}"}, r"no column 'hint' \(named by template\)"),
        ({"template": "{question"}, r"domains\.math\.data\.template: expected '}'"),
        ({"template": '{"a": {question}}'}, r"is not the name of a column; write \{\{ and \}\}"),
        ({"template": "{question.upper}"}, r"'\{question\.upper\}' .*is not the name of a column"),
        ({"template": "hello"}, r"names no column"),
        ({"template": "{question:d}", "columns": {"reference": "answer"}}, r"does not fit '\{question:d\}'"),
        ({"template": "{level}", "columns": {"reference": "answer"}}, r"no column 'level'"),
    ],
)
def test_wrong_columns_and_templates(tokenizer, config, message):
    with pytest.raises(DataError, match=message):
        builder(tokenizer, [{"question": "q", "answer": "1"}], **config)


def test_literal_braces():
    assert Template.parse('{{"a": {x}}}', "here").fill({"x": "{y}"}) == '{"a": {y}}'


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": None, "reference": "1"}, "column 'prompt' of row 1 is empty"),
        ({"prompt": "", "reference": "1"}, "column 'prompt' of row 1 is empty"),
        ({"prompt": 5, "reference": "1"}, "row 1 must hold text or a list of messages, not int"),
        ({"prompt": "q", "reference": None}, "column 'reference' of row 1 is empty; set"),
    ],
)
def test_bad_rows_are_errors_at_the_start_and_counted_later(tokenizer, row, message, caplog):
    with pytest.raises(DataError, match=message):
        builder(tokenizer, ["q", row])
    with caplog.at_level(logging.WARNING):
        made = builder(tokenizer, ["q"] * 20 + [row, row, "r"])
        assert [made.build(i) is None for i in (20, 21, 22)] == [True, True, False]
    assert made.left_out_counts == {"bad_row": 2}
    assert len(caplog.records) == 1
    assert "row 20 is left out (bad_row)" in caplog.text


def test_long_prompts_are_left_out_and_counted(tokenizer):
    made = builder(tokenizer, ["1", "1" * 50, "22", "1" * 60], max_prompt_tokens=20)
    assert [(index, prompt.id) for index, prompt in made.usable()] == [(0, "math/0"), (2, "math/2")]
    assert made.left_out_counts == {"too_long": 2}
    assert made.left_out[3].tokens == len("u:a:") + 3 + 60
    assert len(made) == 4


def test_a_prompt_of_exactly_the_limit_fits(tokenizer):
    length = len(builder(tokenizer, ["12345"]).build(0).token_ids)
    assert builder(tokenizer, ["12345"], max_prompt_tokens=length).build(0) is not None
    with pytest.raises(DataError):
        builder(tokenizer, ["12345"], max_prompt_tokens=length - 1)


def test_nothing_left_is_an_error_with_the_lengths(tokenizer):
    message = (
        r"domains\.math\.data: no usable prompt is left of 20 rows; 20 are longer than the limit of 10 tokens "
        r"\(shortest 17, longest 36\): raise batch\.max_prompt_tokens"
    )
    with pytest.raises(DataError, match=message):
        builder(tokenizer, ["1" * n for n in range(10, 30)], max_prompt_tokens=10)


def test_one_usable_row_far_down_is_enough(tokenizer):
    made = builder(tokenizer, ["1" * 50] * 30 + ["1"], max_prompt_tokens=20)
    assert [index for index, _ in made.usable()] == [30]


def test_limit_takes_the_first_rows(tokenizer):
    assert len(builder(tokenizer, ["a", "b", "c"], limit=2)) == 2
    assert len(builder(tokenizer, ["a", "b", "c"], limit=9)) == 3


def test_an_empty_source(tokenizer):
    with pytest.raises(DataError, match="data set of domain 'math' holds no rows"):
        PromptBuilder("math", DataConfig(), [], tokenizer, max_prompt_tokens=9)


def test_a_tokenizer_without_chat_template():
    with pytest.raises(DataError, match="no chat template; set 'chat: false'"):
        builder(object(), ["q"])


def test_a_chat_template_that_refuses(tokenizer):
    class Refuses:
        chat_template = "x"

        def apply_chat_template(self, messages, **kwargs):
            raise ValueError("System role not supported")

    with pytest.raises(DataError, match=r"refuses row 0 \(roles: system, user\): System role not supported"):
        builder(Refuses(), ["q"], system="s")


def test_held_out_prompts_in_order(tokenizer):
    rows = [{"prompt": p, "reference": "1"} for p in ("a", "1" * 90, "b", "c")]
    held_out = HeldOut("math", DataConfig(), rows, tokenizer, max_prompt_tokens=20, limit=2)
    assert [prompt.id for prompt in held_out.prompts] == ["math/held_out/0", "math/held_out/2"]
    assert len(held_out) == 2
    with pytest.raises(DataError, match=r"domains\.math\.eval_data: row 0 has no column 'reference'"):
        HeldOut("math", DataConfig(), [{"prompt": "x"}], tokenizer, max_prompt_tokens=20)


def test_overlap_with_training_rows(tokenizer):
    train = builder(tokenizer, ["a", "b", "c"], system="s")
    rows = [{"prompt": p, "reference": "1"} for p in ("b", "x", "b", "c")]
    held_out = HeldOut("math", DataConfig(), rows, tokenizer, max_prompt_tokens=20)
    overlap = held_out.overlap(train)
    assert (overlap.shared, overlap.held_out, overlap.rows) == (3, 4, 3)
    assert held_out.overlap(train, max_rows=1).shared == 0
