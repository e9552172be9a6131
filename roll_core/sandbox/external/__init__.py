"""Optional backends for programs of any language: `bwrap` (bubblewrap) and `nsjail`, where one is installed."""

from __future__ import annotations

from roll_core.sandbox.external.backend import ExternalSandbox
from roll_core.sandbox.external.tools import Tool

__all__ = ["ExternalSandbox", "Tool"]
