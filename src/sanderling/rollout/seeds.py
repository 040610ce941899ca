"""One run seed becomes every other seed, by name, so that no two parts draw from the same stream."""

from __future__ import annotations

import hashlib


def derive(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed that depends on `seed` and all of `names`; equal arguments give equal seeds on any machine."""
    text = "\x1f".join([str(seed), *map(str, names)])
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
