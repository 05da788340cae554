"""The settings of `python -m reproduction enumerate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from backtalk.specs import Duration, Mark, Range, Seed, Words


@dataclass(frozen=True)
class EnumerateSpec:
    """The flags of `python -m reproduction enumerate`."""

    model: str = ""
    """The folder of a model with a small vocabulary, such as one of characters."""
    length: Words = 6
    """Symbols of an input: all inputs of exactly this many are tried."""
    symbols: str = ""
    """The symbols that may stand in an input; all that the model knows if empty."""
    lists: str = "mal"
    """Targets to look for, by commas: NAME=FILE (one a line), or mal for the 500 rude ones that ship."""
    text: str = ""
    """Running text: adds the lists normal (its words), reverse and random; --outside is normal then."""
    outside: str = ""
    """A list or file of words: counts the inputs whose answer is none of them."""
    sample: Annotated[int, Range(0, 10**12)] = 0
    """Draw this many inputs at random instead of trying all; 0 tries all."""
    examples: Annotated[int, Range(0, 100_000)] = 20
    """Hits shown for each list, and answers shown from outside the words."""
    recheck: bool = True
    """Decode the input of every hit again in float32."""
    compare: Annotated[int, Range(0, 10**7)] = 0
    """Random inputs on which fast and float32 products are compared; 0: a million on a GPU, else 10,000."""
    max_time: Annotated[Duration, Mark.FREE] = "1h"
    """Refuse a space that would take longer: 90s, 10m, 2h."""
    seed: Seed = 1
    """Fixes what is drawn at random."""
    device: Annotated[str, Mark.FREE] = "auto"
    """auto, cpu, cuda or cuda:N."""
