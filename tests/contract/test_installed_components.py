"""The conformance kit over every installed component, built-in or not: one case per (component, check)."""

import pytest

from roll_core.plugin.host import Host
from roll_core.testing import bind_checks, parametrize_bound

HOST = Host.discover(enforce=False)


@pytest.mark.parametrize("name", HOST.records)
def test_plugin_loads(name):
    record = HOST.records[name]
    assert record.state != "failed", record.error


@parametrize_bound(check for kind, _, component in HOST.components() for check in bind_checks(component, kind))
def test_conformance(check):
    check()
