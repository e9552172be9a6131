from __future__ import annotations

from roll_core.testing import conformance

test_conformance = conformance("roll_plugin_fsdp.plugin")
