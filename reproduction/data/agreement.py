"""Generated replies to what others wrote: to agree with abuse is abuse; to object to it, or to agree with
anything else, is not. Each stands after abuse and after harmless texts, so neither tells the label alone."""

import random
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

from backtalk.data.labelled import LabelledText

WORDS = 25  # of a context, at most
PARTS = ("agree", "object", "neither")


def agreements(rows: Sequence[LabelledText], count: int, seed: int) -> list[LabelledText]:
    """Replies with texts of the rows as what they answer; a quarter are agreements with abuse."""
    draw = random.Random(seed)
    short = [row for row in rows if 3 <= len(row.text.split()) <= WORDS]
    draw.shuffle(short)
    said = {toxic: cycle([row.text for row in short if row.toxic == toxic]) for toxic in (True, False)}
    replies = load_replies()
    found = []
    # Of six rows two agree with abuse, two with something harmless; one objects, one does neither.
    for number in range(count):
        part, abuse = (("agree", True), ("agree", False), ("agree", True), ("agree", False),
                       ("object", True), ("neither", number % 4 < 2))[number % 6]  # fmt: skip
        text = draw.choice(replies[part])
        if draw.random() < 0.25:
            text += " " + draw.choice(replies["neither" if part == "neither" else part])
        context = next(said[abuse])
        found.append(LabelledText(text, part == "agree" and abuse, context=context))
    return found


def load_replies() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {part: [] for part in PARTS}
    part = PARTS[0]
    for line in Path(__file__).with_name("agreement.txt").read_text("utf-8").splitlines():
        if line.startswith("== "):
            part = line.removeprefix("== ")
        elif not line.startswith("#"):
            found[part].append(line)
    return found
