"""What a verifier host does: the pool of the driver, in a process of its own."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roll_core.scoring import VerifierPool, VerifierSpec
from roll_core.scoring.pool import Kind
from roll_core.scoring.serve import VerifyRequest, decode, encode
from roll_core.types import Verdict


@dataclass(frozen=True, slots=True)
class VerifierFacts:
    """What a host found out about the verifiers while it built them."""

    kinds: Mapping[str, tuple[Kind, float]]
    """Where each is run, and its deadline in seconds."""
    left_out: tuple[str, ...]
    """Keys of those that only the driver's process can build."""


class VerifierHandler:
    """A pool that answers requests (see `roles.host.Handler`).

    Args:
        pool: a started pool.
        left_out: keys of verifiers that it does not have.
    """

    def __init__(self, pool: VerifierPool, left_out: tuple[str, ...]) -> None:
        self._pool = pool
        self._left_out = left_out

    async def serve(self, request: bytes) -> bytes:
        """One verdict."""
        asked: VerifyRequest = pickle.loads(request)  # noqa: S301 - sent by the driver that started us
        verdict = await self._pool.verify(
            asked.key, asked.response, asked.reference, prompt=asked.prompt, rollout=asked.rollout, **asked.options
        )
        return pack_verdict(verdict)

    def facts(self) -> VerifierFacts:
        """What the driver should know."""
        return VerifierFacts(self._pool.kinds(), self._left_out)

    def vitals(self) -> dict[str, int]:
        """Workers that were lost and replaced."""
        return {"workers_replaced": self._pool.replaced}

    async def close(self) -> None:
        """End the workers."""
        await self._pool.close()


async def open_verifiers(specs: Mapping[str, bytes], **settings: Any) -> VerifierHandler:
    """Build the verifiers.

    Args:
        specs: pickled specs by key.
        settings: of the `VerifierPool`.

    Raises:
        ComponentError: a verifier could not be built.
    """
    readable, unreadable = _read(specs)
    pool = VerifierPool(readable, takes_local=False, **settings)
    await pool.start()
    return VerifierHandler(pool, (*unreadable, *pool.left_out))


def pack_verdict(verdict: Verdict) -> bytes:
    """A stamped verdict as JSON, long texts cut."""
    stamp = {"verifier": verdict.verifier, "version": verdict.version, "seconds": verdict.seconds}
    return json.dumps(encode(verdict) | stamp).encode()


def unpack_verdict(packed: bytes) -> Verdict:
    """The verdict that `pack_verdict` packed."""
    reply = json.loads(packed)
    return decode(reply).stamped(verifier=reply["verifier"], version=reply["version"], seconds=reply["seconds"])


def _read(pickled: Mapping[str, bytes]) -> tuple[dict[str, VerifierSpec], list[str]]:
    """Specs, and keys of those whose class lies in the driver's main script or session."""
    readable: dict[str, VerifierSpec] = {}
    unreadable: list[str] = []
    for key, spec in pickled.items():
        try:
            readable[key] = pickle.loads(spec)  # noqa: S301 - sent by the driver that started us
        except AttributeError as error:
            if "<module '__main__'" not in str(error):
                raise
            unreadable.append(key)
    return readable, unreadable
