from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from roll_core.cli.config import config_group
from roll_core.cli.context import GlobalOptions
from roll_core.config.explain import explain
from roll_core.config.json_schema import json_schema
from roll_core.config.load import check_config, load_config


@pytest.fixture
def cli(host, tmp_path, monkeypatch):
    monkeypatch.setattr(GlobalOptions, "host", lambda self, **_: host)
    monkeypatch.chdir(tmp_path)
    return CliRunner()


def test_explain_shows_values_sources_and_sizes(cli, issue_yaml):
    Path("run.yaml").write_text(issue_yaml)
    result = cli.invoke(config_group, ["explain", "run.yaml", "steps=7"])
    assert result.exit_code == 0, result.output
    lines = [re.sub(r"\s+", " ", line).strip() for line in result.output.splitlines()]
    assert "steps: 7 # override 'steps=7'" in lines
    assert 'path: "smollm2-135m" # run.yaml:1' in lines
    assert "clip_high: 0.28 # run.yaml:6" in lines
    assert "eps: 1e-06 # default of grpo" in lines
    assert "weight: 0.1 # run.yaml:3" in lines
    assert "epochs: 1 # default" in lines
    assert any(line.startswith("# rollouts 64 a step = 8 prompts x 8 each") for line in lines)


def test_explain_shows_what_results_for_a_domain(cli, small):
    Path("run.yaml").write_text(small + "    algorithm: {loss: {use: gspo}}\nalgorithm: {kl: {coef: 0.1}}\n")
    result = cli.invoke(config_group, ["explain", "run.yaml", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["domains"]["math"]["algorithm"]["loss"] == {"use": "gspo"}
    assert found["domains"]["math"]["algorithm"]["kl"]["coef"] == 0.1
    assert found["config"]["domains"]["math"]["algorithm"] == {"loss": {"use": "gspo"}}
    assert found["config"]["algorithm"]["loss"] == {"use": "ppo_clip", "clip_low": 0.2, "clip_high": 0.2}
    assert found["sources"]["domains.math.algorithm.loss.use"] == "run.yaml:6"
    assert found["sources"]["algorithm.loss.use"] == "default"
    assert found["plan"]["rollouts"] == 64
    text = cli.invoke(config_group, ["explain", "run.yaml"]).output
    assert "# domain 'math', resolved" in text


def test_explain_marks_idle_keys_and_python_objects(host):
    base = {
        "model": {"path": "m"},
        "domains": {"d": {"data": [{"prompt": "a"}], "verifier": re.compile}},
        "algorithm": {"kl": {"coef": 0.1, "estimator": "k1"}},
    }
    loaded = load_config(None, ["algorithm.kl.coef=0"], base=base)
    found = explain(loaded, check_config(loaded, host), host)
    assert found.config["domains"]["d"]["verifier"] == {"use": "<re.compile>"}
    assert found.sources["algorithm.kl.estimator"] == "python (idle)"
    json.dumps(found.as_dict(), allow_nan=False)


def test_explain_reports_mistakes(cli, small):
    Path("run.yaml").write_text(small + "stpes: 3\n")
    result = cli.invoke(config_group, ["explain", "run.yaml"])
    assert result.exit_code != 0
    assert "did you mean 'steps'" in str(result.exception)


# --- schema -----------------------------------------------------------------------------------------------------------


def violations(value: Any, schema: Any, root: dict[str, Any], at: str = "") -> list[str]:
    """The part of JSON Schema 2020-12 that our schema uses."""
    if "$ref" in schema:
        node = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            node = node[part]
        found = violations(value, node, root, at)
    else:
        found = []
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    kind = schema.get("type")
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    if kind in ("number", "integer"):
        fits = numeric and (kind == "number" or float(value).is_integer())
    else:
        fits = kind is None or isinstance(value, types[kind])
    if not fits:
        return [*found, f"{at}: not {kind}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{at}: not {schema['const']}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: not among {schema['enum']}")
    if "pattern" in schema and isinstance(value, str) and not re.search(schema["pattern"], value):
        found.append(f"{at}: not like {schema['pattern']}")
    if numeric and value < schema.get("minimum", value):
        found.append(f"{at}: too small")
    if isinstance(value, dict):
        known = schema.get("properties", {})
        found += [f"{at}: lacks {key}" for key in schema.get("required", []) if key not in value]
        rest = schema.get("additionalProperties", True)
        for key, item in value.items():
            if key in known:
                found += violations(item, known[key], root, f"{at}.{key}")
            elif rest is False:
                found.append(f"{at}: unknown {key}")
            elif isinstance(rest, dict):
                found += violations(item, rest, root, f"{at}.{key}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            found += violations(item, schema.get("items", {}), root, f"{at}.{index}")
    for part in schema.get("allOf", []):
        found += violations(value, part, root, at)
    if "anyOf" in schema:
        tried = [violations(value, part, root, at) for part in schema["anyOf"]]
        if all(tried):
            found += [error for errors in tried for error in errors]
    if "if" in schema and not violations(value, schema["if"], root, at):
        found += violations(value, schema["then"], root, at)
    return found


def check(text: str, host: Any) -> list[str]:
    from roll_core.config.yaml_tree import parse_yaml

    schema = json_schema(host)
    return violations(parse_yaml(text, "x")[0], schema, schema)


def test_the_schema_accepts_what_loads(host, small, issue_yaml):
    assert check(issue_yaml, host) == []
    assert check(small, host) == []
    assert check(small + "    algorithm: {loss: {clip_high: 0.3}, kl: {coef: 0.1}}\nextends: base.yaml\n", host) == []
    assert check(small + "train: {strategy: {micro_tokens: 8192}}\nfilters: [owner/mine]\n", host) == []


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("stpes: 1", ": unknown stpes"),
        ("steps: 0", ".steps: too small"),
        ("mixer: {use: rtio}", ".mixer.use: not among ['ratio']"),
        ("mixer: {weigths: {}}", ".mixer: unknown weigths"),
        ("algorithm: {advantage: {use: grpo, eps: x}}", ".algorithm.advantage.eps: not number"),
        ("algorithm: {advantage: {eps: x}}", ".algorithm.advantage.eps: not number"),
        ("algorithm: {loss: {use: gspo, eps: 1}}", ".algorithm.loss: unknown eps"),
        ("filters: [nope]", ".filters.0: not among ['informative_groups']"),
        ("algorithm: {agg: mean}", ".algorithm.agg: not among"),
    ],
)
def test_the_schema_refuses_what_does_not(host, small, extra, expected):
    assert any(found.startswith(expected) for found in check(f"{small}{extra}\n", host))


def test_the_schema_describes_and_resolves_everything(host):
    schema = json_schema(host)
    text = json.dumps(schema)
    assert "x-roll-kind" not in text
    for target in set(re.findall(r'"\$ref": "#/\$defs/([^"]+)"', text)):
        assert target in schema["$defs"]
    assert schema["$defs"]["BatchConfig"]["properties"]["group_size"]["description"] == "Rollouts of one prompt (G)."
    assert schema["$schema"].endswith("2020-12/schema")


def test_schema_command(cli):
    printed = cli.invoke(config_group, ["schema"])
    written = cli.invoke(config_group, ["schema", "--out", "run.schema.json"])
    assert printed.exit_code == written.exit_code == 0
    assert json.loads(printed.output) == json.loads(Path("run.schema.json").read_text())
    assert cli.invoke(config_group, ["schema", "--out", "no/where.json"]).exit_code == 1
