"""The training texts of the embedded toxicity scorers: public corpora, friendly chat, generated sentences.

Raters of short texts often judge the word alone ("what a stupid law" is toxic to them), and in friendly chat
people say many rude words of things and of themselves. So some toxic rows are left out, and chat with rude
words is added as harmless. No training text is a copy of a held-out one; RealToxicityPrompts is only a test.
"""

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from backtalk.data.labelled import LabelledText, normal, without
from backtalk.errors import InputError
from backtalk.output_file import write_whole
from backtalk.scorers.card import IDENTITY
from backtalk.scorers.toxicity.words import words_of
from backtalk.terminal import say
from backtalk.training.scorer_data import ScorerData
from reproduction.data.contrast import contrast_texts, slot_words, unseen_jobs
from reproduction.data.labelled import corpus

SWEARING = {"damn", "goddamn", "shitty", "bloody", "fucking"}  # these offend whoever is meant
HELD = 2000  # chat messages of the test set, and of the one that limits the bias
RUDE_CHAT, PARADETOX = 4000, 40000  # chat with a rude word; rows of ParaDetox
SEED = 1


class Split(NamedTuple):
    """One corpus in three parts that share no text."""

    train: list[LabelledText]
    valid: list[LabelledText]
    test: list[LabelledText]


def mixture(folder: Path, family: str, chat: int = -1, contrast: int = 44000, seed: int = SEED) -> ScorerData:
    """All splits of a family of scorers. `chat` counts messages that are taken as harmless: of chitchat for
    words and the encoder [6000], of Ubuntu for letters [15000]; without any no set has chat."""
    chat = {"letters": 15000}.get(family, 6000) if chat < 0 else chat
    balanced = split(corpus(folder, "jigsaw_balanced"), 0.05, 0.15, seed)
    natural = split(corpus(folder, "jigsaw_natural"), 0.2, 0.8, seed)
    tweets = split(corpus(folder, "davidson"), 0.0, 0.1, seed)
    comments = split(corpus(folder, "civil_comments"), 0.0, 0.1, seed)
    test = {
        "jigsaw-balanced": balanced.test,
        "jigsaw-natural": natural.test,
        "realtoxicityprompts": corpus(folder, "realtoxicityprompts"),
        "davidson": tweets.test,
        "civil-comments": comments.test,
    }
    said = _chat(seed, family == "encoder") if chat else []
    if said:
        test["chitchat"] = said[:HELD]
    calm = said[-HELD:]
    friendly = said[HELD : HELD + chat]
    rude = with_rude_word(said[HELD + chat : -HELD])[:RUDE_CHAT]
    valid = natural.valid
    if family == "letters":
        messages = corpus(folder, "ubuntu") if chat else []
        parts = {
            "davidson": (tweets.train, 1.0),
            "civil comments": (comments.train, 1.0),
            "ubuntu": (_some(messages, chat, seed), 1.0),
        }
    else:
        detox = corpus(folder, "paradetox")
        random.Random(seed).shuffle(detox)
        parts = {
            "jigsaw": (balanced.train, 1.6),
            "paradetox": (clearly_aimed(detox[:PARADETOX]), 0.4),
            "contrast": (contrast_texts(contrast, seed, people=family == "encoder"), 0.6),
            "chitchat": (friendly, 0.5),
            "chitchat with a rude word": (rude, 0.25),
        }
    if family == "encoder":
        sexism = split(corpus(folder, "edos"), 0.0, 0.15, seed)
        safe = split(corpus(folder, "diasafety"), 0.1, 0.0, seed)
        valid = [*natural.valid, *safe.valid]
        templates, unseen = _templates(corpus(folder, "madlibs"))
        test |= {
            "edos": sexism.test,
            "madlibs": unseen,
            "unseen-jobs": unseen_jobs(),
            "toxichat": corpus(folder, "toxichat"),
            "diasafety": corpus(folder, "diasafety_val"),
        }
        # Posts that are not sexist may be abuse of another kind: few of them.
        posts = [row for row in sexism.train if row.toxic], [row for row in sexism.train if not row.toxic]
        parts |= {
            "paradetox": (_some(parts["paradetox"][0], 12000, seed), 1.0),
            "chitchat": ([row._replace(context="") for row in friendly[::2]], 1.0),
            "chitchat after a message": (friendly[1::2], 1.0),
            "chitchat with a rude word": ([row._replace(context="") for row in rude], 0.25),
            "davidson": (_some(tweets.train, 8000, seed), 1.0),
            "civil comments": (_some(comments.train, 12000, seed), 1.0),
            "edos": (posts[0], 0.6),
            "edos, not sexist": (_some(posts[1], 2000, seed), 0.6),
            "madlibs": (_some(templates, 3000, seed), 0.6),
            "diasafety": (safe.train, 1.5),
            "profanity-check": (_some(corpus(folder, "profanity_check"), 24000, seed), 1.0),
        }
    rows = [
        row._replace(weight=weight, source=name) for name, (part, weight) in parts.items() for row in part
    ]
    held_out = [row for part in test.values() for row in part] + balanced.valid + valid + calm
    return ScorerData(without(rows, held_out), valid, calm, test)


def write_splits(folder: Path, family: str, out: Path) -> None:
    """The folder that `backtalk train-scorer --data` reads, with the notes of the card."""
    data = mixture(folder, family)
    tests = {f"test-{name}": rows for name, rows in data.test.items()}
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in {"train": data.train, "valid": data.valid, "calm": data.calm, **tests}.items():
        write_whole(out / f"{name}.jsonl", (json.dumps(row._asdict()) + "\n" for row in rows))
        say(f"{out / name}.jsonl: {len(rows):,} texts, {sum(row.toxic for row in rows):,} of them toxic")
    notes = json.loads(Path(__file__).with_name("scorer_notes.json").read_text("utf-8"))
    write_whole(out / "about.json", [json.dumps(notes[family], indent=1) + "\n"])


def split(rows: Sequence[LabelledText], valid: float, test: float, seed: int) -> Split:
    """`valid` and `test` are shares, the rest is for training; of equal texts one is kept."""
    unique = list({normal(row.text): row for row in rows if normal(row.text)}.values())
    random.Random(seed).shuffle(unique)
    first, second = round(test * len(unique)), round((test + valid) * len(unique))
    return Split(unique[second:], unique[first:second], unique[:first])


def _templates(rows: Sequence[LabelledText]) -> tuple[list[LabelledText], list[LabelledText]]:
    """Sentences of one template and half of the identity words, to learn from; and all that have another
    template or only other words."""
    learnt, unseen = list[LabelledText](), list[LabelledText]()
    for row in rows:
        words = IDENTITY.findall(row.text.casefold())
        old = row.source == "name_adj" and words and all(crc32(word.encode()) % 2 for word in words)
        new = row.source != "name_adj" or not any(crc32(word.encode()) % 2 for word in words)
        if old or new:
            (learnt if old else unseen).append(row)
    return learnt, unseen


def _some(rows: Sequence[LabelledText], most: int, seed: int) -> list[LabelledText]:
    return random.Random(seed).sample(rows, min(most, len(rows)))


def clearly_aimed(rows: Iterable[LabelledText]) -> list[LabelledText]:
    """The rows without toxic ones that have a mild word and no "you"."""
    mild, you = slot_words("adj") - SWEARING, {"you", "your"}
    read = ((row, words_of(row.text)) for row in rows)
    return [row for row, words in read if not row.toxic or mild.isdisjoint(words) or you & set(words)]


def with_rude_word(rows: Iterable[LabelledText]) -> list[LabelledText]:
    """The rows with a word that the frames use for abuse."""
    rude = slot_words("adj", "insult", "harm")
    return [row for row in rows if not rude.isdisjoint(words_of(row.text))]


def _chat(seed: int, contexts: bool) -> list[LabelledText]:
    """Distinct messages of more than two words; with the message before each, if asked for."""
    try:
        from chitchat_dataset import Dataset
    except ImportError:
        raise InputError("friendly chat needs pip install 'backtalk[data]'") from None
    talks = ([one["text"] for turn in chat["messages"] for one in turn] for chat in Dataset().values())
    said = {text: before for talk in talks for before, text in zip(["", *talk], talk, strict=False)}
    texts = sorted(text for text in said if len(text.split()) > 2)
    random.Random(seed).shuffle(texts)
    return [LabelledText(text, False, context=said[text] if contexts else "") for text in texts]
