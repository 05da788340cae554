"""The part of a GPU's memory that a process may take. Without torch, for those who start processes."""

from __future__ import annotations

import os
from contextlib import suppress

SHARE = "BACKTALK_GPU_SHARE"
"""Names the part of a GPU's memory, up to 1, that the process may take: others run beside it."""


def gpu_share() -> float:
    """What the environment says, from 0 to 1; all of it where it says nothing that can be."""
    with suppress(ValueError):
        if 0 < (share := float(os.environ.get(SHARE, ""))) < 1:
            return share
    return 1.0
