"""The seed of a search's row."""

from __future__ import annotations

import hashlib


def row_seed(seed: int, case: str, restart: int) -> int:
    """Depends on these three alone, not on the place in a list or a batch."""
    digest = hashlib.sha256(f"{seed}/{case}/{restart}".encode()).digest()
    return int.from_bytes(digest[:7], "big")
