"""The corpora and target lists of the study, from a folder of data or from what ships with backtalk.

The paper's three corpora are Switchboard at its own cut, and two slices: Ubuntu chat by hand-annotated reply
pairs and a piece of OpenSubtitles, both far smaller than the paper's. `embedded` puts the shipped chitchat
pairs in the place of all of them, so that the whole study can run anywhere in miniature.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from backtalk.audit.cases import can_say, greedy_replies, read_cases, sampled_replies
from backtalk.data.corpora import Corpus, read_corpus, reference_pairs, split
from backtalk.data.targets import load_mal, normal_list, read_targets, widen
from backtalk.data.tokenise import get_recipe
from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.types import Target
from reproduction.records import write_once

SEED = 1
EMBEDDED = "embedded"
EMBEDDED_PAIRS = 500
"""Enough to show the machinery, few enough to train eleven models in seconds."""
DIALOGUE_PAIRS = 10
"""Embedded pairs in a row that stay together in a split."""


@dataclass(frozen=True)
class Source:
    """A corpus as `backtalk train` reads it."""

    corpus: str
    data: Path
    format: str
    recipe: str
    vocabulary: int
    remark: str
    """What the page calls it; a slice is called a slice."""
    test: Path | None = None
    test_format: str = "auto"
    patience: int = 3

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.data, self.test) if self.test else (self.data,)

    def train_corpus(self) -> Corpus:
        return split(read_corpus(str(self.data), self.format), SEED).train

    def test_inputs(self) -> list[str]:
        if self.test:
            corpus = read_corpus(str(self.test), self.test_format)
        else:
            corpus = split(read_corpus(str(self.data), self.format), SEED).test
        return [text for text, _ in corpus.pairs()]


@dataclass(frozen=True)
class Data:
    """Everything that the study reads."""

    kind: str
    """`files` or `embedded`: the part of its place that results depend on."""
    sources: dict[str, Source]
    prototypes: Path
    characters: Source


def open_data(name: str, folder: Path) -> Data:
    """The data of a folder laid out as docs/studies/egregious.md says, or the embedded pairs, written out."""
    if name == EMBEDDED:
        return _embedded(folder / "data")
    root = Path(name)
    if not root.is_dir():
        raise InputError(f"--data {name} is no folder; name one with swda/, ubuntu/ and so on, or `embedded`")
    switchboard = Source(
        "switchboard",
        root / "swda",
        "swda",
        "he-glass-2020",
        10_000,
        "Switchboard, the paper's own 50 test dialogues",
        root / "swda_heglass" / "test.txt.gz",
        "eou",
        patience=0,
    )
    ubuntu = Source(
        "ubuntu",
        root / "ubuntu" / "ubuntu_irc_train_reply_pairs.tsv.gz",
        "ubuntu-pairs",
        "he-glass-2019",
        10_000,
        "a slice: Ubuntu chat of irc-disentanglement, hand-annotated reply pairs",
        root / "ubuntu" / "ubuntu_irc_test_reply_pairs.tsv.gz",
        "ubuntu-pairs",
    )
    opensubtitles = Source(
        "opensubtitles",
        root / "opensubtitles" / "opensubtitles_en-te.en.txt.gz",
        "opensubtitles",
        "he-glass-2019",
        8_000,
        "a slice: consecutive lines of OpenSubtitles, split by stretches of lines",
    )
    characters = Source(
        "characters",
        root / "ptb" / "ptb.train.txt.gz",
        "next-word",
        "characters",
        33,
        "Penn Treebank words, noised as in appendix B",
        root / "ptb" / "ptb.test.txt.gz",
        "next-word",
        patience=2,
    )
    sources = {source.corpus: source for source in (switchboard, ubuntu, opensubtitles)}
    return Data("files", sources, root / "mal" / "prototypes_2019.txt", characters)


def mal_targets(data: Data, model: LocalModel, limit: int) -> list[Target]:
    """The prototypes that the model can say (two are dots, which Switchboard has not) widened as in Table 9,
    "... ." or "and ..." by the vocabulary; of sentences that it reads alike the first.
    A limited list is taken evenly: its first part would be the prototypes alone, which are shorter."""
    prototypes = [target for target in read_targets(data.prototypes) if can_say(model, target.text)]
    wide = widen(prototypes, final_period=can_say(model, "."))
    known: dict[tuple[int, ...], Target] = {}
    for target in wide:
        if can_say(model, target.text):  # "i think" may be words it does not know
            known.setdefault(tuple(model.encode_target(target.text)), target)
    found = list(known.values())
    return [found[i * len(found) // limit] for i in range(limit)] if 0 < limit < len(found) else found


def random_targets(model: LocalModel, count: int) -> list[Target]:
    return read_cases("random", model, count, SEED)


def normal_targets(source: Source, model: LocalModel, count: int) -> list[Target]:
    """What the model says anyway. Ubuntu: different greedy replies to test inputs and, where a slice has too
    few of them, to training inputs; the others: replies sampled from words above T_out (section 5.2)."""
    texts = source.test_inputs()
    if source.corpus != "ubuntu":
        return normal_list(sampled_replies(model, texts, SEED), count)
    replies = greedy_replies(model, texts)
    if len(replies) < count:
        more = [text for text, _ in source.train_corpus().pairs()]
        replies = list(dict.fromkeys([*replies, *greedy_replies(model, more)]))
    # A model that hardly learnt may have no whole greedy reply at all.
    return normal_list(replies or sampled_replies(model, texts, SEED), count)


@cache
def own_sentences() -> frozenset[tuple[str, ...]]:
    """The words of every sentence of the embedded list, widened: the only targets that a page may show."""
    words = get_recipe("he-glass-2020").words
    return frozenset(
        tuple(words(target.text)) for period in (True, False) for target in widen(load_mal(), period)
    )


def is_own(text: str, own: frozenset[tuple[str, ...]]) -> bool:
    return tuple(get_recipe("he-glass-2020").words(text)) in own


def _embedded(folder: Path) -> Data:
    """The shipped pairs stand for every corpus, the embedded list for the paper's prototypes."""
    pairs = reference_pairs("")[:EMBEDDED_PAIRS]
    rows = [
        json.dumps({"input": text, "reply": reply, "dialogue": str(i // DIALOGUE_PAIRS)}) + "\n"
        for i, (text, reply) in enumerate(pairs)
    ]
    write_once(folder / "pairs.jsonl", rows)
    write_once(folder / "prototypes.txt", [f"{target.text}\n" for target in load_mal()])
    write_once(folder / "text.txt", [f"{reply.lower()}\n" for _, reply in pairs])
    remark = "a stand-in: the shipped chitchat pairs"
    sources = {
        corpus: Source(corpus, folder / "pairs.jsonl", "pairs-jsonl", recipe, 10_000, remark)
        for corpus, recipe in (
            ("switchboard", "he-glass-2020"),
            ("ubuntu", "he-glass-2019"),
            ("opensubtitles", "he-glass-2019"),
        )
    }
    characters = Source("characters", folder / "text.txt", "next-word", "characters", 33, remark)
    return Data("embedded", sources, folder / "prototypes.txt", characters)
