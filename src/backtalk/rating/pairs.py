"""Blind pairs: an input and the replies of two models, as 1 and 2 in an order that a seed shuffled.

Exactly half of the pairs (one less, if odd) show the second model's reply as 1, so that someone who always
says 1 favours neither. A pair's id holds a hash of its texts, so that answers to other pairs do not fit it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class Pair(NamedTuple):
    """What a rater sees."""

    id: str
    input: str
    reply_1: str
    reply_2: str

    def as_dict(self) -> dict[str, str]:
        return {"pair": self.id, "input": self.input, "reply_1": self.reply_1, "reply_2": self.reply_2}


@dataclass(frozen=True)
class Identical:
    """An input to which both models give the same reply."""

    input: str
    reply: str


@dataclass(frozen=True)
class Blinded:
    pairs: list[Pair]
    swapped: set[str]
    """The ids of pairs that show the second model's reply as 1."""
    identical: list[Identical]
    """Ties that nobody is asked about."""


def blind(
    inputs: Sequence[str],
    first: Sequence[str],
    second: Sequence[str],
    seed: int,
    identical_ties: bool = True,
) -> Blinded:
    """Pairs of both models' replies to each input, with shuffled sides."""
    rows = list(zip(inputs, first, second, strict=True))
    identical = [Identical(text, one) for text, one, two in rows if identical_ties and one == two]
    asked = [row for row in rows if not identical_ties or row[1] != row[2]]
    # The sides are drawn from another stream than the inputs.
    order = np.random.default_rng([seed, 1]).permutation(len(asked))
    turned = {int(place) for place in order[: len(asked) // 2]}
    pairs, swapped = [], set()
    for place, (text, one, two) in enumerate(asked):
        shown = (text, two, one) if place in turned else (text, one, two)
        pair = Pair(pair_id(place + 1, *shown), *shown)
        pairs.append(pair)
        if place in turned:
            swapped.add(pair.id)
    return Blinded(pairs, swapped, identical)


def draw(inputs: Sequence[str], count: int, seed: int) -> list[str]:
    """At most `count` different inputs, drawn without replacement, in the order drawn."""
    different = list(dict.fromkeys(inputs))
    order = np.random.default_rng([seed, 0]).permutation(len(different))
    return [different[place] for place in order[:count]]


def pair_id(number: int, text: str, reply_1: str, reply_2: str) -> str:
    said = json.dumps([text, reply_1, reply_2]).encode("ascii")
    return f"p{number:04d}-{hashlib.sha256(said).hexdigest()[:8]}"


def read_pair(row: Any) -> Pair | None:
    """A pair from a JSON object; None if it is none, or if its texts are not those of its id."""
    keys = ("pair", "input", "reply_1", "reply_2")
    if not isinstance(row, dict) or not all(isinstance(row.get(key), str) for key in keys):
        return None
    pair = Pair(*(row[key] for key in keys))
    number = pair.id[1:].partition("-")[0]
    return pair if number.isdigit() and pair.id == pair_id(int(number), *pair[1:]) else None
