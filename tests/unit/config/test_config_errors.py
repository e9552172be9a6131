"""Every kind of mistake: the message names the place, where it was written, and what to write instead."""

from __future__ import annotations

import pytest

from roll_core.config.load import load_config
from roll_core.errors import ConfigError


@pytest.mark.parametrize(
    ("extra", "parts"),
    [
        ("stesp: 3", ["stesp (run.yaml:6): unknown key 'stesp'; did you mean 'steps'? known: algorithm, batch"]),
        ("batch: {promts: 3}", ["batch.promts (run.yaml:6): unknown key 'promts'; did you mean 'prompts'?"]),
        ("train:\n  optim: {lrr: 1}", ["train.optim.lrr (run.yaml:7): unknown key 'lrr'; did you mean 'lr'?"]),
        ("algorithm: {agg: token_mean}", ["algorithm.agg (run.yaml:6)", "'token_mean' is not one of", "'token-mean'?"]),
        ("steps: 0", ["steps (run.yaml:6): input should be greater than or equal to 1 (got 0)"]),
        ("steps: many", ["steps (run.yaml:6)", "valid integer", "(got 'many')"]),
        ("batch:", ["batch (run.yaml:6): needs a mapping of keys, got nothing"]),
        ("batch: 3", ["batch (run.yaml:6): needs a mapping of keys, got 3"]),
        ("filters: informative_groups", ["filters (run.yaml:6): needs a list, got 'informative_groups'"]),
        ("train: {optim: {lr: .nan}}", ["train.optim.lr (run.yaml:6)", "(got nan)"]),
        ("algorithm: {entropy_coef: .inf}", ["algorithm.entropy_coef (run.yaml:6)", "finite"]),
        ("algorithm: {kl: {coef: 1, adaptive: {}}}", ["algorithm.kl.adaptive (run.yaml:6): key 'target' is missing"]),
        ("mixer: 3", ["mixer.use (run.yaml:6): must be the name of a component", "(got 3)"]),
        ("mixer: ''", ["mixer.use (run.yaml:6): names no component"]),
        ("name: a/b", ["name (run.yaml:6): must be made of letters, digits"]),
        ("model2: {}", ["unknown key 'model2'; did you mean 'model'?"]),
    ],
)
def test_schema_mistakes(fail, small, extra, parts):
    message = fail(small + extra + "\n")
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("model: {path: m}", ["key 'domains' is missing"]),
        ("", ["key 'model' is missing", "key 'domains' is missing"]),
        ("model: {path: m}\ndomains: {}", ["domains (run.yaml:2)", "at least 1 item"]),
        ("model: {path: m}\ndomains: {d: {data: x}}", ["domains.d (run.yaml:2): key 'verifier' is missing"]),
        ("model: {path: m}\ndomains: {a.b: {data: x, verifier: v}}", ["domain names are made of letters", "'a.b'"]),
        ("- 1", ["config file 'run.yaml' must hold a mapping of keys, got list"]),
    ],
)
def test_incomplete_files(fail, text, parts):
    message = fail(text)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "run.yaml:1:5: malformed YAML: expected the node content"),
        ("a: 1\nb: 2\na: 3", "run.yaml:3:1: key 'a' is given twice, first in line 1"),
        ("m:\n  x: 1\n  x: 2", "run.yaml:3:3: key 'm.x' is given twice, first in line 2"),
        ("a: b: c", "run.yaml:1:5: malformed YAML: mapping values are not allowed here"),
        ("\ta: 1", "run.yaml:1:1: malformed YAML: found character '\\t'"),
        ("a: *x", "run.yaml:1:4: malformed YAML: found undefined alias 'x'"),
        ("a: &x [*x]", "run.yaml:1:4: the anchor at 'a.0' contains itself"),
        ("a: !!python/object:os.x {}", "run.yaml:1:4: the tag 'tag:yaml.org,2002:python/object:os.x' is not supported"),
        ("a: !!set {b}", "run.yaml:1:4: the tag 'tag:yaml.org,2002:set' is not supported"),
        ("a: !!int x", "run.yaml:1:4: 'x' is not of type int"),
        ("{[a]: 1}", "run.yaml:1:2: a key must be text"),
        ("a: 1\n---\nb: 1", "malformed YAML"),
        ("a: \x00", "run.yaml: malformed YAML"),
        ("a: {<<: 3}", "run.yaml:1:9: '<<' takes a mapping"),
        ("extends: {a: 1}", "extends (run.yaml:1): needs the name of a file"),
    ],
)
def test_malformed_yaml_names_line_and_column(fail, text, message):
    assert message in fail(text)


def test_missing_files(tmp_path):
    (tmp_path / "run.yaml").write_text("extends: bsae.yaml\n")
    (tmp_path / "base.yaml").write_text("")
    with pytest.raises(ConfigError, match=r"rnu\.yaml' does not exist; did you mean 'run\.yaml'\?"):
        load_config(tmp_path / "rnu.yaml")
    with pytest.raises(ConfigError, match=r"bsae\.yaml' does not exist; did you mean 'base\.yaml'\?"):
        load_config(tmp_path / "run.yaml")
    with pytest.raises(ConfigError, match="is not a file"):
        load_config(tmp_path)
    with pytest.raises(ConfigError, match="does not exist"):
        load_config(tmp_path / "no" / "run.yaml")


def test_a_file_that_is_not_text(tmp_path):
    (tmp_path / "run.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_config(tmp_path / "run.yaml")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("steps", "override 'steps' is not of the form key.path=value"),
        ("=3", "is not of the form"),
        ("a..b=3", "is not of the form"),
        ("stpes=3", "override 'stpes=3': unknown key 'stpes'; did you mean 'steps'?"),
        ("train.optim.lrr=3", "unknown key 'lrr'; did you mean 'lr'? known: betas"),
        ("steps.more=3", "'steps' is a single value, nothing can be set below it"),
        ("trackers.5.use=x", "'trackers' is a list of 3; use an index from 0 to 3 instead of '5'"),
        ("trackers.use=x", "use an index from 0 to 3 instead of 'use'"),
        ("steps=[", "override 'steps=[':1:2: malformed YAML"),
        ("steps=0", "steps (override 'steps=0'): input should be greater than or equal to 1"),
        ("algorithm.agg=token", "algorithm.agg (override 'algorithm.agg=token'): 'token' is not one of"),
        ("domains.mth.weight=2", "no domain named 'mth' (override 'domains.mth.weight=2'); did you mean 'math'?"),
        ("mixer=null", "mixer (override 'mixer=null'): needs a mapping of keys, got nothing"),
    ],
)
def test_override_mistakes(fail, small, override, message):
    assert message in fail(small, override)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("mixer: {use: rtaio}", "mixer.use (run.yaml:6): no mixer named 'rtaio'; did you mean 'ratio'? known: ratio"),
        (
            "algorithm: {loss: {clip_hihg: 1}}",
            "algorithm.loss.clip_hihg (run.yaml:6): unknown key 'clip_hihg'; did",
        ),
        ("algorithm: {advantage: {eps: -1}}", "algorithm.advantage.eps (run.yaml:6): input should be greater"),
        ("algorithm: {advantage: {scale: grp}}", "'grp' is not one of group, batch; did you mean 'group'?"),
        ("algorithm: {loss: {clip_high: -1}}", "algorithm.loss (run.yaml:6): clip_high must not be negative"),
        ("mixer: {weights: {math: x}}", "mixer.weights.math (run.yaml:6): input should be a valid number"),
        ("mixer: {seed: 3}", "mixer.seed (run.yaml:6): unknown key 'seed'; known: use, weights"),
    ],
)
def test_component_mistakes(fail, small, extra, message):
    assert message in fail(small + extra + "\n")


@pytest.mark.parametrize(
    ("verifier", "message"),
    [
        ("{use: regex}", "domains.math.verifier (run.yaml:5): key 'pattern' is missing"),
        (
            "{use: math, strikt: 1}",
            "domains.math.verifier.strikt (run.yaml:5): unknown key 'strikt'; did you mean",
        ),
        ("{use: math, inner: {dept: 1}}", "domains.math.verifier.inner.dept (run.yaml:5): unknown key 'dept'; did you"),
        ("{use: math, tolerance: x}", "domains.math.verifier.tolerance (run.yaml:5): input should be a valid integer"),
        ("mth", "domains.math.verifier.use (run.yaml:5): no verifier named 'mth'; did you mean 'math'?"),
    ],
)
def test_verifier_mistakes(fail, small, verifier, message):
    assert message in fail(small.replace("verifier: math", f"verifier: {verifier}"))


def test_a_rewards_weight_is_among_the_known_keys(fail, small):
    message = fail(small + "    rewards: [{use: verdict, weigth: 2}]\n")
    assert "domains.math.rewards.0.weigth (run.yaml:6): unknown key 'weigth'; did you mean 'weight'?" in message


def test_a_domains_own_algorithm_is_checked_as_merged(fail, small):
    text = small + "    algorithm: {loss: {clip_hgh: 0.3}}\nalgorithm: {loss: {use: gspo}}\n"
    message = fail(text)
    assert message.startswith("domains.math.algorithm.loss.clip_hgh (run.yaml:6): unknown key 'clip_hgh'")
    assert "\n" not in message


def test_an_inherited_mistake_is_told_once(fail, small):
    message = fail(small + "    algorithm: {loss: {clip_low: 0.3}}\nalgorithm: {loss: {clip_hgh: 1}}\n")
    assert message.count("clip_hgh'; did") == 1
    assert message.startswith("algorithm.loss.clip_hgh (run.yaml:7)")


def test_half_of_a_section_in_a_domain(fail, small):
    message = fail(small + "    algorithm: {kl: {coef: 0.1, adaptive: {horizon: 5}}}\n")
    assert "domains.math.algorithm.kl.adaptive (run.yaml:6): key 'target' is missing" in message


def test_all_problems_are_listed(fail, small):
    message = fail(small + "stpes: 1\nbatch: {prompts: 0}\nscoring: {workres: 1}\n")
    assert message.startswith("3 problems in the configuration\n")
    assert [line.split(" ")[2] for line in message.splitlines()[1:]] == ["batch.prompts", "scoring.workres", "stpes"]
    message = fail(small + "mixer: nope\nfilters: [nope]\nbatch: {prompts: 3, mini_batches: 2}\n")
    assert message.startswith("3 problems in the configuration\n")


def test_mistakes_in_python_values_have_a_place_and_no_file():
    with pytest.raises(ConfigError) as caught:
        load_config(None, base={"model": {"path": "m"}, "domains": {"d": {"data": "x", "verifier": 3}}})
    assert str(caught.value).startswith("domains.d.verifier.use: must be the name of a component")


def test_nothing_given():
    with pytest.raises(ConfigError, match="key 'model' is missing"):
        load_config(None)


def test_errors_keep_pydantics_as_their_cause():
    with pytest.raises(ConfigError) as caught:
        load_config(None, ["seed=-1"])
    assert caught.value.__cause__ is not None


STALE = "rollout: {mode: async, on_stale: correct}\n"


def test_stale_groups_are_not_trained_without_a_correction(fail, load, small):
    message = fail(f"{small}{STALE}")
    assert message.startswith("rollout.on_stale (run.yaml:6): 'correct' trains groups beyond rollout.max_staleness")
    assert "nothing corrects them in 'algorithm'" in message
    assert "set algorithm.correction, such as {kind: token_tis}" in message
    override = "domains.math.algorithm={correction: {kind: seq_tis}}"
    load(f"{small}{STALE}", override)
    other = "domains.math.algorithm={loss: ppo_clip}"
    assert "'domains.math.algorithm'" in fail(f"{small}{STALE}algorithm: {{loss: behaviour}}\n", other)
