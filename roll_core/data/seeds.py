"""Keyed randomness: a seed is a function of what it is for, never of what happened before."""

from __future__ import annotations

import hashlib

import numpy as np

from roll_core.types import IndexArray


def keyed_seed(seed: int, *parts: str | int) -> int:
    """Derive a seed from the run's seed and a key, the same in every process and on every platform.

    Different keys give unrelated seeds: `("sample", 1, 23)` and `("sample", 12, 3)` differ, and so do 1 and "1".

    Args:
        seed: the run's seed.
        parts: what the seed is for (purpose first), e.g. `"sample", ticket, sample_index, attempt`.

    Returns:
        A number in [0, 2**63), so that it also fits a signed 64-bit column.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in (seed, *parts):
        kind = b"s" if isinstance(part, str) else b"i"
        text = (part if isinstance(part, str) else str(int(part))).encode()
        digest.update(kind + len(text).to_bytes(8, "little") + text)
    return int.from_bytes(digest.digest(), "little") >> 1


def keyed_order(count: int, seed: int, *parts: str | int) -> IndexArray:
    """A permutation of `range(count)` [count] that depends on the key alone.

    Sorts raw Philox output, whose stream numpy keeps stable across versions (unlike `Generator.permutation`).
    """
    raw = np.random.Philox(key=keyed_seed(seed, *parts)).random_raw(count)
    return np.argsort(raw, kind="stable").astype(np.int64)
