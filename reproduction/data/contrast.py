"""Generated training sentences: abuse, and the same words used harmlessly.

A corpus teaches which words abuse has; these sentences teach that it matters whom or what the words describe.
The evaluation pairs were written first. No thing, person or animal of theirs is in `contrast_frames.txt` or
`contrast_twins.txt`, and a sentence that shares four words in a row with a pair is left out. The sentences of
`contrast_people.txt` are for the encoder alone; half of its jobs are held out.
"""

import random
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from backtalk.data.labelled import LabelledText, load_pairs, runs
from backtalk.scorers.toxicity.words import words_of

RUN = 4  # words in a row that no sentence may share with the evaluation pairs
HELD_OUT = ("toxicity_pairs", "toxicity_pairs_blind", "toxicity_pairs_dev")
FILES, PEOPLE = ("contrast_frames.txt", "contrast_twins.txt"), "contrast_people.txt"
SAYING = ("you are {}", "you're {}", "are you {}?", "he is {}", "she works as {}", "my friend is {}")
_SLOT = re.compile(r"\{(a )?(\w+)\}")
_EITHER = re.compile(r"\[([^\]]*)\]")
_BEFORE = ("", "", "", "", "well, ", "honestly, ", "look, ", "omg ", "oh, ", "so ", "lol ", "hey, ", "no, ",
           "yeah ")  # fmt: skip
_AFTER = ("", "", "", "", ".", "!", "!!", ".", " lol", " again", ", really", " today", "...",
          ", to be honest")  # fmt: skip


class Frames(NamedTuple):
    slot: dict[str, list[str]]  # fillings by the name of a slot, a frequent one several times
    abuse: dict[str, list[str]]
    harmless: dict[str, list[str]]
    twins: dict[str, list[tuple[str, str]]]
    """By kind: abuse, and a harmless sentence of nearly the same words."""


@cache
def load_frames(people: bool = False) -> Frames:
    frames = Frames({}, {}, {}, {})
    section: list[Any] = []
    for name in (*FILES, PEOPLE) if people else FILES:
        for line in Path(__file__).with_name(name).read_text(encoding="utf-8").splitlines():
            if line.startswith("== "):
                kind, _, title = line.removeprefix("== ").partition(" ")
                section = getattr(frames, kind).setdefault(title, [])
            elif line.startswith("#"):
                continue
            elif kind == "twins":
                section.append(tuple(line.split(" | ")))
            else:
                filling, _, times = line.partition(" *")
                section += [filling] * int(times or 1)
    if people:
        known = {*frames.slot["person"], *frames.slot["role"]}
        frames.slot["held job"] = [job for job in frames.slot["job"] if _held_out(job) and job not in known]
        frames.slot["job"] = [job for job in frames.slot["job"] if not _held_out(job)]
    return frames


def _held_out(job: str) -> bool:
    """Half of the jobs, and those of the evaluation pairs."""
    return crc32(job.encode()) % 2 == 0 or not _evaluation_words().isdisjoint(job.split())


@cache
def _evaluation_words() -> set[str]:
    return {
        word for name in HELD_OUT for pair in load_pairs(name) for text in pair[1:] for word in words_of(text)
    }


def unseen_jobs() -> list[LabelledText]:
    """Harmless sentences that say what someone does, with jobs that no generated sentence has."""
    jobs = load_frames(people=True).slot["held job"]
    return [LabelledText(form.format(_with_article(job)), False) for job in jobs for form in SAYING]


def contrast_texts(count: int, seed: int, people: bool = False) -> list[LabelledText]:
    """Distinct sentences, half of them abuse, none with a run of the evaluation pairs. Two in five come from
    frames, the others from twins. With `people` those of `contrast_people.txt` are among them."""
    draw = random.Random(seed)
    taken = _held_out_runs()
    of_frames = count // 5
    frames = load_frames(people)
    abuse = _from_frames(frames.abuse, of_frames, draw, taken)
    harmless = _from_frames(frames.harmless, of_frames, draw, taken)
    groups = list(frames.twins.values())
    everything = [pair for group in groups for pair in group]
    for _ in range(20 * count):
        if len(abuse) >= count // 2 and len(harmless) >= count // 2:
            break
        pair = draw.choice(draw.choice([*groups, everything]))
        before, after, start = draw.choice(_BEFORE), draw.choice(_AFTER), draw.random()
        texts = [before + fill(frame, random.Random(start)) + after for frame in pair]
        if not any(_shares(text, taken) for text in texts):  # one without the other would teach its words
            for text, found in zip(texts, (abuse, harmless), strict=True):
                if len(found) < count // 2:
                    found.setdefault(text)
    both = [(text, True) for text in abuse] + [(text, False) for text in harmless if text not in abuse]
    return [LabelledText(text, toxic) for text, toxic in both]


def _from_frames(
    kinds: dict[str, list[str]], count: int, draw: random.Random, taken: set[tuple[str, ...]]
) -> dict[str, None]:
    groups = list(kinds.values())
    everything = [frame for group in groups for frame in group]
    found: dict[str, None] = {}
    for _ in range(20 * count):
        if len(found) >= count:
            break
        frame = draw.choice(draw.choice([*groups, everything]))
        text = draw.choice(_BEFORE) + fill(frame, draw) + draw.choice(_AFTER)
        if not _shares(text, taken):
            found.setdefault(text)
    return found


def slot_words(*names: str) -> set[str]:
    """The words of three letters or more that fill these slots."""
    slots = load_frames().slot
    return {word for name in names for filling in slots[name] for word in filling.split() if len(word) > 2}


@cache
def _held_out_runs() -> set[tuple[str, ...]]:
    texts = [text for name in HELD_OUT for pair in load_pairs(name) for text in pair[1:]]
    # A sentence shorter than a run is one itself.
    return {run for text in texts for run in runs(text, min(RUN, len(text.split())))}


def _shares(text: str, taken: set[tuple[str, ...]]) -> bool:
    return any(run in taken for length in range(1, RUN + 1) for run in runs(text, length))


def fill(frame: str, draw: random.Random) -> str:
    """Fills the slots of a frame; {a insult} adds the article. Two slots of one name may get different words.
    The same draw fills every frame with the same words."""
    slots = load_frames(people=True).slot
    seed = draw.random()
    met: Counter[str] = Counter()

    def word(slot: re.Match[str]) -> str:
        met[slot[2]] += 1
        chosen = random.Random(f"{seed} {slot[2]} {met[slot[2]]}").choice(slots[slot[2]])
        return _with_article(chosen) if slot[1] else chosen

    frame = _EITHER.sub(lambda found: draw.choice(found[1].split("/")), frame)
    while _SLOT.search(frame):  # a filling may have slots of its own
        frame = _SLOT.sub(word, frame)
    return frame


def _with_article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun
