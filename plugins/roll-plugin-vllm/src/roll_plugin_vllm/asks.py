"""What goes to a replica and what comes back, as plain values that cross processes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from roll_core.types import GenerateRequest, IntArray

_SEED_BITS = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Ask:
    """One continuation, as a replica is asked for it."""

    key: str
    """Unique among all asks ever made of the replica."""
    token_ids: tuple[int, ...]
    """Prompt and what was made of the response before."""
    prompt_length: int
    """How many of `token_ids` are the prompt."""
    limit: int
    """New tokens allowed."""
    temperature: float
    top_p: float
    top_k: int
    """0 switches it off."""
    seed: int
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    adapter: str | None = None

    @property
    def made(self) -> int:
        """Response tokens made before; the random stream goes on at this position."""
        return len(self.token_ids) - self.prompt_length

    @property
    def is_truncated(self) -> bool:
        """Whether top-p or top-k cuts the distribution."""
        return self.temperature > 0 and (self.top_p < 1.0 or self.top_k > 0)


@dataclass(frozen=True, slots=True)
class Span:
    """New tokens `start:stop` of an ask were sampled by weights of `version`."""

    start: int
    stop: int
    version: int


@dataclass(slots=True)
class Piece:
    """What an ask has brought since the last piece."""

    key: str
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    kept: list[IntArray] | None = None
    """Kept vocabulary of each token, where the ask's distribution is cut."""
    version: int = 0
    """Version in use when the piece was made; `spans` of the last piece are exact."""
    finish_reason: str = ""
    """ "stop", "length" or "abort" on the last piece, else empty."""
    spans: tuple[Span, ...] = ()
    """On the last piece: versions of all tokens of the ask."""
    is_stopped: bool = False
    """A stop string is in the response; only the last piece is to come, without tokens."""
    error: str = ""
    """Why the engine refused or failed this ask alone; then there is no further piece."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a replica says of itself when it has started."""

    max_length: int
    vocabulary: int
    can_sleep: bool
    devices: tuple[str, ...] = ()
    """Identifiers of the devices its workers use ("GPU-1a2b..."); empty on CPUs."""


def mixed_seed(request: GenerateRequest, run_seed: int) -> int:
    """Seed of a request's random stream, out of its own and the run's; positive and below 2**63."""
    digest = hashlib.blake2b(f"{request.seed}:{run_seed}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") & _SEED_BITS


def position_seed(seed: int, position: int) -> int:
    """Seed of the draw at one position of a stream (SplitMix64), so that a stream can be entered anywhere."""
    word = (1 << 64) - 1
    mixed = (seed + (position + 1) * 0x9E3779B97F4A7C15) & word
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & word
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & word
    return (mixed ^ (mixed >> 31)) & _SEED_BITS
