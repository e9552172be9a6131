"""New weights on their way to replicas: a copy that stays until the next ones, and the two phases that hand it over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from roll_core.contracts import WeightSource
from roll_plugin_vllm.adapters import AdapterSource
from roll_plugin_vllm.link import Link, call_all
from roll_plugin_vllm.segment import Segment


class Update:
    """One set of weights, or one adapter, in shared memory.

    Args:
        segment: the tensors.
        version: that tokens will carry.
        adapter_config: they are an adapter of this configuration.
        put: makes a large value ready to travel once (`Executor.put`).
    """

    def __init__(
        self,
        segment: Segment,
        version: int,
        adapter_config: Mapping[str, Any] | None = None,
        put: Callable[[Any], Any] | None = None,
    ) -> None:
        self.version = version
        self.is_adapter = adapter_config is not None
        self._segment = segment
        self._config = dict(adapter_config) if adapter_config is not None else None
        self._put = put
        self._content: Any = None

    @classmethod
    def of(
        cls, source: WeightSource, version: int, *, with_adapters: bool, put: Callable[[Any], Any] | None = None
    ) -> Update:
        """Copy what `source` publishes into shared memory; only its adapter, where both sides have one.

        Raises:
            BackendError: the source delivers something else than it announces.
        """
        if with_adapters and isinstance(source, AdapterSource):
            config = source.adapter_config()
            if config is not None:
                return cls(Segment.write(source.adapter_manifest(), source.adapter_tensors()), version, config, put)
        return cls(Segment.write(source.manifest(), source.tensors()), version, None, put)

    @property
    def devices(self) -> frozenset[torch.device]:
        """Where the source's tensors were."""
        return self._segment.devices

    def prepare(self, links: Mapping[str, Link], timeout_s: float) -> dict[str, Exception]:
        """First phase, on all of `links` at once; returns the errors of those it failed on, by name."""
        shipment, what = self._segment.shipment, f"receiving weights of version {self.version}"
        answers, failed = call_all(links, "prepare", shipment, self._config, timeout_s=timeout_s, what=what)
        remote = {name: link for name, link in links.items() if answers.get(name) is False}
        if remote:
            content = self._remote_content()
            _, errors = call_all(remote, "prepare", shipment, self._config, content, timeout_s=timeout_s, what=what)
            failed |= errors
        return failed

    def discard(self, links: Mapping[str, Link], timeout_s: float) -> None:
        """Let `links` forget what they prepared; those that cannot are lost anyway."""
        call_all(links, "discard", timeout_s=timeout_s, what="giving up prepared weights")

    def commit(self, links: Mapping[str, Link], timeout_s: float) -> dict[str, Exception]:
        """Second phase; returns the errors of those it failed on, by name."""
        what = f"taking over weights of version {self.version}"
        return call_all(links, "commit", self.version, timeout_s=timeout_s, what=what)[1]

    def close(self) -> None:
        """Give the memory up; replicas that have it mapped keep it."""
        self._segment.close()
        if self._put is not None and self._content is not None:
            self._content.release()
        self._content = None

    def _remote_content(self) -> Any:
        """The bytes, packed once for all replicas of other machines."""
        if self._content is None:
            content = self._segment.content()
            self._content = content if self._put is None else self._put(content)
        return self._content
