from __future__ import annotations

from dataclasses import replace

from roll_core.testing import bind_checks, parametrize_bound
from roll_plugin_fsdp.conformance import CONFORMANCE
from roll_plugin_fsdp.plugin import roll_register_train_strategies

(COMPONENT,) = roll_register_train_strategies()


@parametrize_bound(bind_checks(COMPONENT, "train_strategies", cases=CONFORMANCE["train_strategies/fsdp"]))
def test_conformance(check, pool) -> None:
    """On processes that are used again."""
    replace(check, cases=replace(check.cases, context={"executor": pool}))()
