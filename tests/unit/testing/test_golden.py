"""Golden tables and the rates measured on them."""

import json

import pytest
from click.testing import CliRunner

from roll_core.cli.main import cli
from roll_core.errors import PluginError
from roll_core.plugin.component import Component
from roll_core.testing.cases import VerifierCases
from roll_core.testing.error_rates import Rate, as_markdown, fill_blocks, rates
from roll_core.testing.golden import GoldenRow, Judged, judge_rows, read_golden
from roll_core.types import Verdict


class Parity:
    def __init__(self, lenient: bool = False) -> None:
        self.lenient = lenient

    def verify(self, response, reference, *, prompt=None, rollout=None, flip=False):
        if reference is None:
            return Verdict.error("no reference")
        right = (int(response) % 2 == reference) is not flip or self.lenient
        return Verdict.correct() if right else Verdict.incorrect(detail="odd")


def row(ident, response, reference, expected, kind="k", **more):
    return GoldenRow(str(ident), kind, response, reference, expected, **more)


def judge(*rows):
    component = Component("parity", Parity)
    return list(judge_rows(component, VerifierCases(gold=()), rows))


def test_rows_are_judged_with_their_config_and_options():
    rows = [
        row(1, "2", 0, True),
        row(2, "3", 0, True, config={"lenient": True}),
        row(3, "3", 0, True, options={"flip": True}),
        row(4, "3", 0, False),
        row(5, "3", None, None),
    ]
    found = judge(*rows)
    assert [one.found for one in found] == [True, True, True, False, None]
    assert [one.said for one in found] == ["correct", "correct", "correct", "incorrect/odd", "error"]
    assert not any(one.is_error for one in found)


def test_rates_count_each_kind_of_error_and_leave_disputed_rows_out():
    found = [
        Judged(row(1, "", 0, False, "a"), True, 0.0),
        Judged(row(2, "", 0, False, "a"), False, 0.0),
        Judged(row(3, "", 0, True, "a"), None, 0.0),
        Judged(row(4, "", 0, True, "b"), False, 0.0),
        Judged(row(5, "", 0, None, "b"), None, 0.0),
        Judged(row(6, "", 0, False, "b", disputed=True), True, 0.0),
    ]
    a, b, total = rates(found)
    assert (a.kind, a.false_positives, a.false_negatives, a.unscored) == ("a", Rate(1, 2), Rate(1, 1), 1)
    assert (b.false_positives, b.false_negatives, b.unscored) == (Rate(0, 1), Rate(1, 1), 0)
    assert (total.kind, total.false_positives, total.false_negatives) == ("all", Rate(1, 3), Rate(2, 2))
    assert "5 labelled answers" in as_markdown("x", found) and "1 disputed" in as_markdown("x", found)


@pytest.mark.parametrize(
    ("errors", "total", "low", "high"), [(0, 10, 0.0, 0.27753), (5, 10, 0.23659, 0.76341), (10, 10, 0.72247, 1.0)]
)
def test_wilson_interval(errors, total, low, high):
    assert Rate(errors, total).interval == pytest.approx((low, high), abs=1e-5)


def test_a_readme_keeps_all_but_its_blocks():
    text = "# T\n<!-- rates:parity -->\nold\n<!-- /rates -->\nrest <!-- rates:other -->\nx\n<!-- /rates -->\n"
    filled = fill_blocks(text, {"parity": judge(row(1, "2", 0, True))})
    assert "old" not in filled and filled.startswith("# T\n<!-- rates:parity -->\n")
    assert filled.endswith("rest <!-- rates:other -->\nx\n<!-- /rates -->\n")
    assert fill_blocks(filled, {"parity": judge(row(1, "2", 0, True))}) == filled


@pytest.mark.parametrize(
    "line", ["{", '{"id": "1"}', '{"id": "1", "kind": "k", "response": 3, "reference": 0, "expected": true}']
)
def test_a_bad_row_is_named_with_its_line(line, tmp_path, monkeypatch):
    package = tmp_path / "roll_golden_probe"
    package.mkdir()
    (package / "__init__.py").write_text("def make(): ...\n")
    (package / "t.jsonl").write_text("\n" + line)
    monkeypatch.syspath_prepend(str(tmp_path))
    component = Component("probe", "roll_golden_probe:make")
    with pytest.raises(PluginError, match=r"roll_golden_probe/t.jsonl:2"):
        read_golden(component, VerifierCases(gold=(), golden="t.jsonl"))
    with pytest.raises(PluginError, match="cannot be read"):
        read_golden(component, VerifierCases(gold=(), golden="missing.jsonl"))


def test_the_command_prints_and_writes(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("<!-- rates:word_limit -->\n<!-- /rates -->\n")
    result = CliRunner().invoke(cli, ["plugins", "rates", "--json", "--readme", str(readme)])
    assert result.exit_code == 0, result.output
    measured = json.loads(result.stdout)["word_limit"]
    assert measured["errors"] == [] and measured["kinds"][-1]["kind"] == "all"
    assert "| too_long |" in readme.read_text()


def test_the_command_names_what_is_missing(tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("nothing here")
    result = CliRunner().invoke(cli, ["plugins", "rates", "word_limit", "--readme", str(readme)])
    assert result.exit_code == 1 and "holds no block" in result.output
    result = CliRunner().invoke(cli, ["plugins", "rates", "word_limt"])
    assert result.exit_code == 1 and "word_limit" in result.output
