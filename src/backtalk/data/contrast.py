"""Sentences from frames: abuse, and the same words where nobody is abused.

A corpus teaches which words abuse has; these teach who or what they are said of. `toxicity_pairs.jsonl`, which
measures that, was written first: no thing, person, animal or saying here stands in it, nor a frame, but for the
plainest ("you are a ..."); a sentence that shares a run of five words with it, or holds one of its sentences,
is left out.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from backtalk.data.contrast_frames import ABUSE, HARMLESS, SAYINGS, SLOTS

RUN = 5
"""Words in a row that no sentence may share with the evaluation pairs."""
_SLOT = re.compile(r"\{(a )?(\w+)\}")
_BEFORE = ("", "", "", "", "well, ", "honestly, ", "look, ", "omg ", "oh, ", "so ", "lol ", "hey, ", "no, ", "yeah ")
_AFTER = ("", "", "", "", ".", "!", "!!", ".", " lol", " again", ", really", " today", "...", ", to be honest")


class LabelledText(NamedTuple):
    text: str
    toxic: bool


class MinimalPair(NamedTuple):
    """Abuse, and nearly the same words without."""

    kind: str
    abuse: str
    harmless: str


def load_pairs(name: str = "toxicity_pairs") -> list[MinimalPair]:
    """The evaluation pairs, or with `toxicity_pairs_dev` those that choices were made by."""
    text = (files("backtalk") / "data" / f"{name}.jsonl").read_text(encoding="utf-8")
    return [MinimalPair(**json.loads(line)) for line in text.splitlines()]


def contrast_texts(count: int, seed: int) -> list[LabelledText]:
    """So many different sentences, half of them abuse, none with a run of the evaluation pairs in it."""
    draw = random.Random(seed)
    texts = [text for pair in load_pairs() for text in pair[1:]]
    taken = {run for text in texts for length in (RUN, len(text.split())) for run in runs(text, min(length, RUN))}
    found: dict[str, bool] = {}
    for toxic, frames, side in ((True, ABUSE, 0), (False, HARMLESS, 1)):
        own: dict[str, bool] = {}
        pool = [*(frame for group in frames for frame in group), *(saying[side] for saying in SAYINGS)]
        for _ in range(20 * count):
            if len(own) >= count // 2:
                break
            group = draw.choice((*frames, None))
            frame = draw.choice(pool) if group is None else draw.choice(group)
            text = draw.choice(_BEFORE) + fill(frame, draw) + draw.choice(_AFTER)
            if not any(run in taken for length in range(1, RUN + 1) for run in runs(text, length)) and text not in found:
                own.setdefault(text, toxic)
        found |= own
    return [LabelledText(text, toxic) for text, toxic in found.items()]


def fill(frame: str, draw: random.Random) -> str:
    """A frame with its slots filled; {a insult} brings its article along."""

    def word(slot: re.Match[str]) -> str:
        chosen = draw.choice(SLOTS[slot[2]])
        article = ("an " if chosen[0] in "aeiou" else "a ") if slot[1] else ""
        return article + chosen

    while _SLOT.search(frame):  # a filling may have slots of its own
        frame = _SLOT.sub(word, frame)
    return frame


def runs(text: str, length: int) -> Iterator[tuple[str, ...]]:
    """The runs of so many words of a text, in lower case and without signs."""
    words = re.findall(r"[a-z0-9']+", text.lower())
    for start in range(len(words) - length + 1):
        yield tuple(words[start : start + length])
