from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from roll_core.config.load import check_config, load_config, plain
from roll_core.config.schema import AlgorithmConfig, ComponentRef, DomainConfig, ModelConfig, RunConfig
from roll_core.config.shape import ROOT, Place, Shape, dotted, explicit
from roll_core.config.yaml_tree import parse_yaml
from roll_core.contracts import LoraSettings
from roll_core.errors import ConfigError


def test_the_multi_domain_example_loads(load, issue_yaml):
    config = load(issue_yaml).config
    assert list(config.domains) == ["math", "json"]
    assert config.domains["math"].rewards[1].use == "format_boxed"
    assert config.domains["math"].rewards[1].weight == 0.1
    assert config.domains["json"].data.options == {"path": "json.jsonl"}
    assert config.mixer.options == {"weights": {"math": 0.6, "json": 0.4}}
    assert config.algorithm.loss.options == {"clip_low": 0.2, "clip_high": 0.28}
    assert config.filters[0].use == "informative_groups"


def test_origin_names_line_override_and_nothing_for_defaults(load, small):
    origin = load(small + "batch:\n  prompts: 4\n", "seed=3", "batch.group_size=2").origin
    assert str(origin["model.path"]) == "run.yaml:1"
    assert str(origin["domains.math.data.path"]) == "run.yaml:4"
    assert str(origin["domains.math.verifier.use"]) == "run.yaml:5"
    assert str(origin["batch.prompts"]) == "run.yaml:7"
    assert str(origin["seed"]) == "override 'seed=3'"
    assert str(origin["batch.group_size"]) == "override 'batch.group_size=2'"
    assert "steps" not in origin


def test_raw_loads_to_the_same_config_again(load, issue_yaml):
    first = load(issue_yaml, "steps=7", "trackers.0.use=jsonl")
    assert load_config(None, base=first.raw).config == first.config
    assert load_config(None, base=first.config).config == first.config
    assert load_config(None, base=yaml.safe_load(yaml.safe_dump(first.raw))).config == first.config


# --- scalars ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("-3", -3),
        ("010", 10),
        ("0x10", 16),
        ("0o17", 15),
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2020-01-01", "2020-01-01"),
        ("true", True),
        ("~", None),
        ("null", None),
        ("", None),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("[1, a]", [1, "a"]),
        (".inf", math.inf),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    parsed, _ = parse_yaml(f"key: {text}", "x")
    assert parsed == {"key": value}
    assert type(parsed["key"]) is type(value)


def test_keys_stay_text():
    assert parse_yaml("{1: a, no: b, null: c}", "x")[0] == {"1": "a", "no": "b", "null": "c"}


def test_anchors_and_merge_keys_keep_their_lines():
    value, lines = parse_yaml("a: &a {x: 1, y: 2}\nb:\n  <<: *a\n  x: 3\n", "x")
    assert value["b"] == {"x": 3, "y": 2}
    assert (lines["b", "x"], lines["b", "y"]) == (4, 1)


def test_reading_leaves_pyyaml_as_it_was():
    assert yaml.safe_load("a: no") == {"a": False}


# --- overrides --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "place", "value"),
    [
        ("train.optim.lr=1e-4", lambda c: c.train.optim.lr, 1e-4),
        ("filters.0.use=informative_groups", lambda c: c.filters[0].use, "informative_groups"),
        ("trackers.1=console", lambda c: [t.use for t in c.trackers][:2], ["console", "console"]),
        ("trackers=[jsonl]", lambda c: [t.use for t in c.trackers], ["jsonl"]),
        ("domains.math.verifier.strict=true", lambda c: c.domains["math"].verifier.options, {"strict": True}),
        ("domains.math.rewards.1={use: format_boxed, weight: 2}", lambda c: c.domains["math"].rewards[1].weight, 2.0),
        ("algorithm.advantage.eps=0", lambda c: c.algorithm.advantage, ComponentRef(use="grpo", eps=0)),
        ("domains.math.algorithm.kl.coef=0.1", lambda c: c.domains["math"].algorithm.kl.coef, 0.1),
        ("model.lora.rank=4", lambda c: c.model.lora, LoraSettings(rank=4)),
        ("domains.math.data.template='Q: {prompt}'", lambda c: c.domains["math"].data.template, "Q: {prompt}"),
        ("rollout.sampling.stop.0=END", lambda c: c.rollout.sampling.stop, ("END",)),
        ("domains.extra={data: e.jsonl, verifier: regex}", lambda c: list(c.domains), ["math", "extra"]),
    ],
)
def test_overrides(load, small, override, place, value):
    assert place(load(small, override, host=None).config) == value


def test_naming_another_component_drops_its_file_options_only(load, small):
    text = small + "algorithm: {loss: {use: ppo_clip, clip_low: 0.1}}\n"
    loss = load(text, "algorithm.loss.use=gspo", "algorithm.loss.clip_high=0.3").config.algorithm.loss
    assert loss == ComponentRef(use="gspo", clip_high=0.3)
    loss = load(text, "algorithm.loss.use=ppo_clip").config.algorithm.loss
    assert loss == ComponentRef(use="ppo_clip", clip_low=0.1)


def test_replacing_a_source_keeps_what_belongs_to_the_row(load, small):
    text = small.replace("data: math.jsonl", "data: {path: math.jsonl, template: '{q}'}")
    data = load(text, "domains.math.data.use=rows", host=None).config.domains["math"].data
    assert (data.use, data.template, data.options) == ("rows", "{q}", {})


def _leaves(shape: Shape, place: Place = ()) -> list[tuple[Place, Any]]:
    found: list[tuple[Place, Any]] = []
    for key in shape.keys:
        child = shape.child(key)
        assert child is not None
        if child.form == "section" and child.component is None:
            found += _leaves(child, (*place, key))
        elif child.form in ("value", "list") and not repr(child.default).startswith("PydanticUndefined"):
            found.append(((*place, key), child.default))
    return found


LEAVES = _leaves(ROOT)


def test_there_are_leaves_to_override():
    places = {dotted(place) for place, _ in LEAVES}
    assert {"steps", "batch.prompts", "train.optim.lr", "algorithm.kl.coef", "scoring.timeout_s", "trackers"} <= places


@settings(max_examples=60, deadline=None)
@given(leaf=st.sampled_from(LEAVES))
def test_overriding_a_default_with_itself_changes_nothing_or_is_a_noop(leaf):
    place, _ = leaf
    base = {"model": {"path": "m"}, "domains": {"d": {"data": "d.jsonl", "verifier": "v"}}}
    if place[:2] == ("model", "lora"):
        base["model"]["lora"] = {}
    if place[:3] == ("algorithm", "kl", "adaptive"):
        base["algorithm"] = {"kl": {"coef": 0.1, "adaptive": {"target": 1.0}}}
    before = load_config(None, base=base).config
    text = json.dumps(plain(explicit(functools.reduce(getattr, place, before))))
    try:
        loaded = load_config(None, [f"{dotted(place)}={text}"], base=base)
    except ConfigError as error:
        assert f"{dotted(place)} (override" in str(error) and "has no effect" in str(error)
        return
    assert loaded.config == before
    assert loaded.origin[dotted(place)].kind == "override"


# --- layers -----------------------------------------------------------------------------------------------------------


def test_extends_merges_key_by_key_and_replaces_other_components(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "model: {path: a}\nbatch: {prompts: 4, group_size: 2}\nalgorithm: {loss: {use: gspo, clip_low: 0.1}}\n"
    )
    run = tmp_path / "run.yaml"
    run.write_text(
        "extends: base.yaml\nbatch: {prompts: 6}\nalgorithm: {loss: {use: ppo_clip}}\n"
        "domains: {d: {data: d.jsonl, verifier: v}}\n"
    )
    loaded = load_config(run)
    assert (loaded.config.batch.prompts, loaded.config.batch.group_size) == (6, 2)
    assert loaded.config.algorithm.loss == ComponentRef(use="ppo_clip")
    assert loaded.origin["batch.prompts"].where == f"{run}:2"
    assert loaded.origin["batch.group_size"].where == f"{tmp_path / 'base.yaml'}:2"


def test_a_file_that_extends_itself_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: [a.yaml]\n")
    with pytest.raises(ConfigError, match=r"a\.yaml' extends itself"):
        load_config(tmp_path / "a.yaml")


def test_paths_mean_the_files_folder_where_they_exist_there(tmp_path, monkeypatch):
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "here.jsonl").write_text("")
    (folder / "run.yaml").write_text(
        "model: {path: hub/name}\ndomains: {d: {data: here.jsonl, eval_data: {path: gone.jsonl}, verifier: v}}\n"
    )
    monkeypatch.chdir(tmp_path)
    config = load_config(Path("configs/run.yaml")).config
    assert config.domains["d"].data.options["path"] == "configs/here.jsonl"
    assert config.domains["d"].eval_data.options["path"] == "gone.jsonl"
    assert config.model.path == "hub/name"
    over = load_config(Path("configs/run.yaml"), ["domains.d.data.path=here.jsonl"]).config
    assert over.domains["d"].data.options["path"] == "here.jsonl"


# --- from Python ------------------------------------------------------------------------------------------------------


def judge(response: str, reference: Any) -> float:
    return float(response == reference)


class Rows:
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"prompt": "1+1", "reference": "2"}


def test_objects_and_functions_from_python(host):
    rows = Rows()
    base = {
        "model": ModelConfig(path="tiny"),
        "domains": {
            "sums": DomainConfig(data=rows, verifier=judge, algorithm=AlgorithmConfig(loss="gspo")),
            "more": {"data": [{"prompt": "a"}], "verifier": judge, "rewards": [judge]},
        },
        "mixer": {"use": "ratio"},
        "steps": 3,
    }
    loaded = load_config(None, ["batch.prompts=2"], base=base, host=host)
    config = loaded.config
    assert config.domains["sums"].data.use is rows
    assert config.domains["sums"].verifier.use is judge
    assert config.domains["sums"].algorithm.model_fields_set == {"loss"}
    assert config.domains["more"].data.options["rows"] == [{"prompt": "a"}]
    assert config.domains["more"].rewards[0].use is judge
    assert (config.batch.prompts, config.steps) == (2, 3)
    assert loaded.origin["steps"].kind == "python"
    assert plain(config.domains["sums"].verifier.use).endswith(".judge>")


def test_run_config_takes_keyword_arguments():
    config = RunConfig(
        model={"path": "tiny"},
        domains={"d": DomainConfig(data="d.jsonl", verifier=judge)},
        algorithm=AlgorithmConfig(advantage=judge),
    )
    assert load_config(None, base=config).config == config


def test_options_alone_go_to_the_default_component(load, small):
    loaded = load(small + "train: {strategy: {micro_tokens: 8192}}\n")
    assert loaded.config.train.strategy == ComponentRef(use="local", micro_tokens=8192)
    assert "train.strategy.use" not in loaded.origin


def test_a_critics_partial_optimiser_keeps_its_own_learning_rate(load, small):
    text = small + "algorithm: {advantage: gae}\ncritic: {optim: {weight_decay: 0.1}}\n"
    assert load(text).config.critic.optim.lr == 1e-5


def test_check_config_can_come_later(load, small, host):
    loaded = load(small + "filters: [nonsense]\n", host=None)
    with pytest.raises(ConfigError, match="no filter named 'nonsense'"):
        check_config(loaded, host)
