"""`roll verify`: verdicts in order, a summary, a second opinion, and clear errors."""

import json

import pytest
from click.testing import CliRunner

from roll_core.cli.main import cli

ROWS = [
    {"response": "So \\boxed{4}.", "gold": "4", "id": "a"},
    {"response": "It is 5, \\boxed{5}.", "gold": "4", "id": "b"},
    {"response": "", "gold": "4", "id": "c"},
    {"response": "\\boxed{7} or so, 4", "gold": "4", "id": "d"},
]


@pytest.fixture
def answers(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def run(*arguments):
    return CliRunner().invoke(cli, ["verify", *map(str, arguments), "--workers", "1"])


def test_verdicts_come_in_order_with_the_verifier_named(answers):
    result = run("math", "--input", answers, "--reference", "gold")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["index"] for line in lines] == [0, 1, 2, 3]
    assert [line["status"] for line in lines] == ["correct", "incorrect", "invalid", "incorrect"]
    assert all(line["verifier"] == "math" and line["version"] and line["seconds"] >= 0 for line in lines)
    assert "4 answers, 4 scored, mean score 0.250" in result.stderr
    assert "slowest: #" in result.stderr


def test_a_second_verifier_shows_where_the_two_disagree(answers, tmp_path):
    output = tmp_path / "out.jsonl"
    second = ("--against", "math", "--against-option", "extract=last")
    result = run("math", "extract=boxed", "--input", answers, "--reference", "gold", *second, "--output", output)
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["disputed"] for line in lines] == [False, False, False, True]
    assert "1 of 4 answers are judged otherwise by math" in result.stdout
    assert "#3 math incorrect, math correct" in result.stdout


def test_a_single_answer_needs_no_file():
    result = run("math", "form=answer", "--response", "0.5", "--reference", "1/2")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["status"] == "correct"
    assert "slowest" not in result.output


def test_columns_are_handed_over_and_rows_limited(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text(json.dumps({"response": "a b c d", "reference": {"max_words": 3}}) + "\n" + "{}\n")
    result = run("word_limit", "min_words=1", "--input", path, "-n", "1")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["detail"] == "too_long"


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("mth", "--response", "1", "--reference", "1"), 1, "did you mean 'math'"),
        (("math", "form=anser", "--response", "1", "--reference", "1"), 1, "option 'form'"),
        (("math", "form", "--response", "1", "--reference", "1"), 2, "NAME=VALUE"),
        (("math",), 2, "--input FILE"),
        (("math", "--input", "nowhere.jsonl"), 1, "does not exist"),
        (("math", "--response", "1", "--against-option", "a=b"), 2, "needs --against"),
    ],
)
def test_bad_usage_says_what_to_do(arguments, code, text):
    result = run(*arguments)
    assert result.exit_code == code and text in result.output, result.output


def test_a_missing_column_names_those_there(answers):
    result = run("math", "--input", answers, "--reference", "glod")
    assert result.exit_code == 1 and "did you mean 'gold'" in result.output


def test_a_response_that_is_no_unicode_text_is_written_as_an_escape(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"response": "\\\\boxed{\\ud800}", "reference": "4"}\n')
    result = run("math", "--input", path)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["answer"] == "\ud800"
