"""Random numbers that depend on a seed, a purpose and the index of a draw alone: they are the same in any
block and in any order."""

import hashlib

import numpy as np
from numpy.typing import NDArray

PER_STEP = 4  # numbers that Philox gives for one value of its counter


def uniform(seed: int, purpose: str, start: int, stop: int, width: int) -> NDArray[np.float64]:
    """(stop - start, width) numbers from 0 to 1 of the draws `start` to `stop`."""
    key = int.from_bytes(hashlib.sha256(f"{seed}/{purpose}".encode()).digest()[:16], "little")
    steps = -(-width // PER_STEP)  # of the counter, for one draw
    generator = np.random.Philox(key=key, counter=start * steps)
    rows = np.random.Generator(generator).random((stop - start, steps * PER_STEP))
    return rows[:, :width]
