"""When to send: a rate limit, and pauses between tries."""

from __future__ import annotations

import email.utils
import random
import threading
import time
from collections.abc import Callable

_FIRST_PAUSE_S = 0.5


class TokenBucket:
    """A rate limit that many event loops and threads may share.

    It holds up to a second's worth of requests (at least one), so that a burst is spread out.

    Args:
        per_minute: requests a minute.
        clock: seconds, monotonic.
    """

    def __init__(self, per_minute: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_minute / 60.0
        self._burst = max(1.0, self._per_second)
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens = self._burst
        self._seen = clock()

    def reserve(self) -> float:
        """Take one token and return the seconds to wait before it may be used."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._seen) * self._per_second)
            self._seen = now
            self._tokens -= 1.0
            return max(0.0, -self._tokens / self._per_second)


def backoff_s(attempt: int, most: float) -> float:
    """A random pause below 0.5 s * 2^attempt and `most`, but never under half of that ("equal jitter").

    Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """
    ceiling = min(most, _FIRST_PAUSE_S * 2.0 ** min(attempt, 30))
    return ceiling * random.uniform(0.5, 1.0)


def retry_after_s(header: str | None) -> float | None:
    """Seconds that a `Retry-After` header asks for, as a number or a date; None when it says nothing usable."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        when = email.utils.parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, when.timestamp() - time.time())
