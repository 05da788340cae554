"""A small black box with known answers: a Python function that keeps a list of what it was asked, one-hot
word vectors, and utterances. What a cosine comes to can be counted on fingers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

WORDS = [
    "you",
    "are",
    "so",
    "boring",
    "go",
    "away",
    "now",
    "i",
    "like",
    "cats",
    "dogs",
    "trees",
    "tea",
    "rain",
    "sun",
    "the",
    "and",
    "we",
    "see",
    "fine",
    "day",
]
UTTERANCES = [f"{a} {b} {c}" for a in WORDS[8:16] for b in WORDS[16:] for c in WORDS[:7]]
PARROT = """
from pathlib import Path

def reply(turns):
    text = turns[-1]["text"]
    with open("asked.txt", "a") as file:
        file.write(text + "\\n")
    mood = Path("mood.txt").read_text() if Path("mood.txt").exists() else ""
    if mood == "wavering":
        return text + " now" * len(Path("asked.txt").read_text().splitlines())
    if mood == "changed":
        return "fine day"
    planted = {"tea and you": "you are so boring", "rain and go": "go away"}
    return planted.get(text, " ".join(reversed(text.split())))
"""


def build_world(folder: Path) -> list[str]:
    """Writes it into a folder; the flags of an audit of it, which is run from there."""
    (folder / "parrot.py").write_text(PARROT)
    rows = [" ".join([word, *("1" if word == other else "0" for other in WORDS)]) for word in WORDS]
    (folder / "vectors.txt").write_text("\n".join(rows) + "\n")
    (folder / "said.txt").write_text("\n".join(UTTERANCES) + "\n")
    (folder / "never.txt").write_text("you are so boring\ngo away\ni like you\n")
    return [
        *("--model", "py:parrot:reply", "--targets", "never.txt", "--vectors", "vectors.txt"),
        *("--utterances", "said.txt", "--no-judge", "--device", "cpu"),
    ]


def asked(folder: Path) -> Counter[str]:
    """How often the model was asked each input."""
    path = folder / "asked.txt"
    return Counter(path.read_text().splitlines() if path.exists() else [])
