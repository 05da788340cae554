"""Sentences from frames: abuse, and the same words where nobody is abused.

A corpus teaches which words abuse has; these teach who or what they are said of. `toxicity_pairs.jsonl`,
which measures that, was written first: no thing, person, animal or saying of the frames stands in it, nor a
frame, but for the plainest ("you are a ..."); a sentence that holds one of its sentences, or a run of five
words, is left out.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

RUN = 5
"""Words in a row that no sentence may share with the evaluation pairs."""
_SLOT = re.compile(r"\{(a )?(\w+)\}")
_BEFORE = (
    "",
    "",
    "",
    "",
    "well, ",
    "honestly, ",
    "look, ",
    "omg ",
    "oh, ",
    "so ",
    "lol ",
    "hey, ",
    "no, ",
    "yeah ",
)
_AFTER = (
    "",
    "",
    "",
    "",
    ".",
    "!",
    "!!",
    ".",
    " lol",
    " again",
    ", really",
    " today",
    "...",
    ", to be honest",
)


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


class Frames(NamedTuple):
    """What `contrast_frames.txt` holds."""

    slots: dict[str, list[str]]
    abuse: dict[str, list[str]]
    harmless: dict[str, list[str]]
    sayings: list[tuple[str, str]]
    """Abuse without an abusive word, and a harmless sentence of nearly the same ones."""


@cache
def load_frames() -> Frames:
    frames = Frames({}, {}, {}, [])
    parts = {"slot": frames.slots, "abuse": frames.abuse, "harmless": frames.harmless}
    section: list[str] | None = None
    for line in (files("backtalk") / "data" / "contrast_frames.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            kind, _, name = line.removeprefix("== ").partition(" ")
            section = parts[kind].setdefault(name, []) if kind in parts else None
        elif section is not None:
            section.append(line)
        elif not line.startswith("#"):
            abuse, harmless = line.split(" | ")
            frames.sayings.append((abuse, harmless))
    return frames


def contrast_texts(count: int, seed: int) -> list[LabelledText]:
    """So many different sentences, half of them abuse, none with a run of the evaluation pairs in it."""
    draw = random.Random(seed)
    frames = load_frames()
    texts = [text for pair in load_pairs() for text in pair[1:]]
    # A sentence shorter than a run is one itself.
    taken = {run for text in texts for run in runs(text, min(RUN, len(text.split())))}
    found: dict[str, bool] = {}
    for side, kinds in enumerate((frames.abuse, frames.harmless)):
        groups = list(kinds.values())
        everything = [frame for group in groups for frame in group] + [pair[side] for pair in frames.sayings]
        own: dict[str, bool] = {}
        for _ in range(20 * count):
            if len(own) >= count // 2:
                break
            frame = draw.choice(draw.choice([*groups, everything]))
            text = draw.choice(_BEFORE) + fill(frame, draw) + draw.choice(_AFTER)
            shared = any(run in taken for length in range(1, RUN + 1) for run in runs(text, length))
            if not shared and text not in found:
                own.setdefault(text, side == 0)
        found |= own
    return [LabelledText(text, toxic) for text, toxic in found.items()]


def fill(frame: str, draw: random.Random) -> str:
    """A frame with its slots filled; {a insult} brings its article along."""

    slots = load_frames().slots

    def word(slot: re.Match[str]) -> str:
        chosen = draw.choice(slots[slot[2]])
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
