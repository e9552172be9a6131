from __future__ import annotations

import pytest

from roll_core.config.load import load_config

EVAL = "    eval_data: test.jsonl\n"


@pytest.mark.parametrize(
    ("extra", "place", "advice"),
    [
        ("algorithm: {kl: {coef: 0, estimator: k3}}", "algorithm.kl.estimator", "set kl.coef above 0"),
        ("algorithm: {kl: {where: reward}}", "algorithm.kl.where", "set kl.coef above 0"),
        ("algorithm: {kl: {adaptive: {target: 1}}}", "algorithm.kl.adaptive.target", "set kl.coef above 0"),
        ("algorithm: {agg_length: 32}", "algorithm.agg_length", "agg is 'token-mean'; set agg: dr_grpo"),
        ("algorithm: {correction: {high: 3}}", "algorithm.correction.high", "set correction.kind"),
        ("algorithm: {correction: {low: 1}}", "algorithm.correction.low", "set correction.kind to token_mask"),
        ("algorithm: {correction: {kind: seq_tis, low: 1}}", "algorithm.correction.low", "is 'seq_tis'"),
        ("algorithm: {overlong: {penalty: 2}}", "algorithm.overlong.penalty", "set overlong.buffer"),
        ("critic: {value_clip: 0.1}", "critic.value_clip", "no advantage estimator reads values"),
        ("critic: {optim: {lr: 1e-4}}", "critic.optim.lr", "no advantage estimator reads values"),
        ("eval: {samples: 4}", "eval.samples", "add domains.<name>.eval_data"),
        ("eval: {every: 5}", "eval.every", "add domains.<name>.eval_data"),
        ("rollout: {early_stop: true}", "rollout.early_stop", "add filters"),
        ("rollout: {max_staleness: 2}", "rollout.max_staleness", "set rollout.mode: async"),
        ("rollout: {mode: one_step, max_staleness: 2}", "rollout.max_staleness", "rollout.mode is 'one_step'"),
        ("rollout: {on_stale: drop}", "rollout.on_stale", "set rollout.mode: async"),
        ("rollout: {mode: one_step, on_stale: wait}", "rollout.on_stale", "rollout.mode is 'one_step'"),
        ("cluster: {address: auto}", "cluster.address", "set cluster.executor: ray"),
        ("scoring: {workers: 0, timeout_s: 3}", "scoring.timeout_s", "set scoring.workers to 1 or more"),
        ("scoring: {hosts: 2}", "scoring.hosts", "set cluster.executor to local or ray"),
        ("scoring: {host_cpus: 2}", "scoring.host_cpus", "set scoring.hosts"),
    ],
)
def test_keys_without_effect_are_errors(fail, small, extra, place, advice):
    message = fail(f"{small}{extra}\n")
    assert message.startswith(f"{place} (run.yaml:6): has no effect: ")
    assert advice in message
    assert message.endswith(f", or remove '{place}'")


@pytest.mark.parametrize(
    "extra",
    [
        "algorithm: {kl: {coef: 0.1, estimator: k3, where: reward, adaptive: {target: 1}}}",
        "algorithm: {kl: {coef: 0}}",
        "algorithm: {kl: {adaptive: null}}",
        "algorithm: {agg: dr_grpo, agg_length: 32}",
        "algorithm: {correction: {kind: token_mask, low: 0.5, high: 3}}",
        "algorithm: {correction: {kind: token_tis, high: 3}}",
        "algorithm: {overlong: {buffer: 8, penalty: 2}}",
        "algorithm: {advantage: gae}\ncritic: {value_clip: 0.1}",
        "rollout: {mode: async, max_staleness: 2}",
        "rollout: {mode: async, on_stale: drop}",
        "rollout: {mode: async, on_stale: correct}\nalgorithm: {correction: {kind: token_tis}}",
        "rollout: {mode: async, on_stale: correct}\nalgorithm: {loss: behaviour}",
        "eval: {every: 0, at_start: false, at_end: false, greedy: false}",
        "scoring: {workers: 1, timeout_s: 3}",
        "scoring: {workers: 0}",
        "scoring: {hosts: 0}",
        "scoring: {hosts: 2, host_cpus: 0.5}\ncluster: {executor: local}",
        "rollout: {early_stop: false}",
        "rollout: {early_stop: true}\nfilters: [informative_groups]",
    ],
)
def test_keys_with_an_effect_are_not(load, small, extra):
    load(f"{small}{extra}\n")


def test_the_reference_needs_a_reader(fail, load, small):
    text = small.replace("{path: tiny}", "{path: tiny, reference: base}")
    assert "model.reference (run.yaml:1): has no effect: nothing reads ref_logprobs" in fail(text)
    load(text, "algorithm.kl.coef=0.1")
    load(text, "algorithm.loss=anchored")
    load(text, "domains.math.algorithm.loss=anchored")


def test_rules_that_need_components_wait_for_the_host(load, small):
    load(small + "critic: {value_clip: 0.1}\n", host=None)


def test_evaluation_settings_count_once_a_domain_has_held_out_rows(load, fail, small):
    load(small + EVAL + "eval: {samples: 4, every: 5}\n")
    message = fail(small + "    eval_data: {path: test.jsonl, repeat: false}\n")
    assert "domains.math.eval_data.repeat (run.yaml:6): has no effect: held-out rows are read once" in message


def test_a_domains_own_key(fail, load, small):
    assert fail(small + "    algorithm: {kl: {estimator: k3}}\n").startswith(
        "domains.math.algorithm.kl.estimator (run.yaml:6): has no effect"
    )
    load(small + "    algorithm: {kl: {estimator: k3}}\nalgorithm: {kl: {coef: 0.1}}\n")


def test_a_key_of_the_run_counts_when_one_domain_reads_it(load, fail, small):
    domain = "  json: {data: j.jsonl, verifier: json_fields, algorithm: {kl: {coef: COEF}}}\n"
    algorithm = "algorithm: {kl: {estimator: k3}}\n"
    load(small + domain.replace("COEF", "0.1") + algorithm)
    assert "algorithm.kl.estimator" in fail(small + domain.replace("COEF", "0") + algorithm)


def test_a_later_layer_may_switch_something_off(load, fail, small):
    text = small + "algorithm: {kl: {coef: 0.1, estimator: k3}}\n"
    loaded = load(text, "algorithm.kl.coef=0")
    assert loaded.raw["algorithm"] == {"kl": {"coef": 0}}
    load_config(None, base=loaded.raw)
    assert "algorithm.kl.where" in fail(text, "algorithm.kl.coef=0", "algorithm.kl.where=reward")


def test_idle_keys_do_not_hide_an_own_mistake(fail, small):
    text = small + "algorithm: {advantage: gae}\ncritic: {value_clip: 0.1}\n"
    message = fail(text, "algorithm.advantage=grpo", "critic.path=other")
    assert message.startswith("critic.path (override 'critic.path=other'): has no effect")
