"""The conformance kit for authors of components, and small fakes for their tests.

A plugin's whole conformance test:

    from roll_core.testing import conformance

    test_conformance = conformance("roll_verifier_mine.plugin")

It becomes one pytest case per check of every component that the plugin declares. Right and wrong answers, options and
other examples are read from `CONFORMANCE` in the module `conformance` of the package (see `roll_core.testing.cases`).
New checks may appear with any minor version of the core: bound it in your test environment.
"""

from __future__ import annotations

from roll_core.testing.cases import (
    AdvantageCases,
    Cases,
    EnvironmentCases,
    ModelCases,
    PolicyLossCases,
    RewardCases,
    StrategyCases,
    VerifierCases,
    find_cases,
)
from roll_core.testing.fakes import (
    FakeBackend,
    FakeTracker,
    make_batch,
    make_group,
    make_prompt,
    make_rollout,
    make_segment,
)
from roll_core.testing.inputs import make_advantage_inputs, make_loss_inputs
from roll_core.testing.kit import (
    BoundCheck,
    Check,
    CheckFailed,
    CheckResult,
    CheckSkipped,
    MissingCases,
    Subject,
    bind_checks,
    check_component,
    checks_for,
)
from roll_core.testing.pytest_support import conformance, parametrize_bound, parametrize_checks

__all__ = [
    "AdvantageCases",
    "BoundCheck",
    "Cases",
    "Check",
    "CheckFailed",
    "CheckResult",
    "CheckSkipped",
    "EnvironmentCases",
    "FakeBackend",
    "FakeTracker",
    "MissingCases",
    "ModelCases",
    "PolicyLossCases",
    "RewardCases",
    "StrategyCases",
    "Subject",
    "VerifierCases",
    "bind_checks",
    "check_component",
    "checks_for",
    "conformance",
    "find_cases",
    "make_advantage_inputs",
    "make_batch",
    "make_group",
    "make_loss_inputs",
    "make_prompt",
    "make_rollout",
    "make_segment",
    "parametrize_bound",
    "parametrize_checks",
]
