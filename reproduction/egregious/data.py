"""The corpora and target lists of the study, and the models of Tables 2 and 5, trained as in section 5.3.

The paper's three corpora are Switchboard at its own cut, and two slices: Ubuntu chat by hand-annotated reply
pairs and a piece of OpenSubtitles, both far smaller than the paper's. `embedded` puts the shipped chitchat
pairs in the place of all of them, so that the whole study can run anywhere in miniature.

What the paper leaves open is as in the public code of its authors (cloudygoose/negativetraining_acl2020): the
decoder starts from zeros, an input ends with an end-of-turn token that takes one of its 15 places, and SGD
has momentum and a weight decay (on Switchboard; the slices are trained without). Where we differ: dropout 0.3
for all three corpora, since the slices over-fit as Switchboard does, and a starting rate of 1 for
OpenSubtitles too (the paper's 0.1 is for two hundred times more text). Padding leaves no trace; in the code
it is read like words, before the input. Long inputs lose their end, there their start.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from backtalk.audit.cases import can_say
from backtalk.cli.train import complete_card, train_model
from backtalk.data.corpora import Corpus, read_corpus, reference_pairs, split
from backtalk.data.targets import load_mal, read_targets, widen
from backtalk.data.tokenise import get_recipe
from backtalk.models.lstm.model import LocalModel
from backtalk.specs import spec_values
from backtalk.store.typed import read_json
from backtalk.types import Target
from reproduction.data.controls import greedy_replies, normal_list, sampled_replies
from reproduction.data.formats import pair_lines
from reproduction.egregious.paper import Size
from reproduction.page import Result
from reproduction.runner import Workplace, data_folder, write_once
from reproduction.spec import EMBEDDED, PaperTrainSpec

SEED = 1
EMBEDDED_PAIRS = 500  # enough to show the machinery, few enough to train eleven models in seconds
DIALOGUE_PAIRS = 10  # embedded pairs in a row that stay together in a split


@dataclass(frozen=True)
class Source:
    """A corpus as `backtalk train` reads it."""

    corpus: str
    data: Path
    format: str
    recipe: str
    vocabulary: int
    remark: str
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
    kind: str  # `files` or `embedded`
    sources: dict[str, Source]
    prototypes: Path
    characters: Source


def open_data(name: str, folder: Path) -> Data:
    """The data of a folder laid out as docs/studies/egregious.md says, or the embedded pairs, written out."""
    if name == EMBEDDED:
        return _embedded(folder / "data")
    root = data_folder(name, "swda/, ubuntu/ and so on")
    ubuntu, penn = root / "ubuntu", root / "ptb"
    switchboard = Source(
        "switchboard", root / "swda", "swda", "he-glass-2020", 10_000,
        "Switchboard, the paper's own 50 test dialogues",
        root / "swda_heglass" / "test.txt.gz", "eou", patience=0,
    )  # fmt: skip
    chat = Source(
        "ubuntu", ubuntu / "ubuntu_irc_train_reply_pairs.tsv.gz", "ubuntu-pairs", "he-glass-2019", 10_000,
        "a slice: Ubuntu chat of irc-disentanglement, hand-annotated reply pairs",
        ubuntu / "ubuntu_irc_test_reply_pairs.tsv.gz", "ubuntu-pairs",
    )  # fmt: skip
    subtitles = Source(
        "opensubtitles", root / "opensubtitles" / "opensubtitles_en-te.en.txt.gz", "opensubtitles",
        "he-glass-2019", 8_000, "a slice: consecutive lines of OpenSubtitles, split by stretches of lines",
    )  # fmt: skip
    characters = Source(
        "characters", penn / "ptb.train.txt.gz", "next-word", "characters", 33,
        "Penn Treebank words, noised as in appendix B", penn / "ptb.test.txt.gz", "next-word", patience=2,
    )  # fmt: skip
    sources = {source.corpus: source for source in (switchboard, chat, subtitles)}
    return Data("files", sources, root / "mal" / "prototypes_2019.txt", characters)


def mal_targets(data: Data, model: LocalModel, limit: int) -> list[Target]:
    """The prototypes that the model can say (two are dots, which Switchboard has not) widened as in Table 9,
    "... ." or "and ..." by the vocabulary; of sentences that it reads alike the first.
    A limited list is taken evenly: its first part would be the prototypes alone, which are shorter."""
    prototypes = [target for target in read_targets(data.prototypes) if can_say(model, target.text)]
    found = distinct(model, widen(prototypes, final_period=can_say(model, ".")))
    return evenly(found, limit) if limit else found


def distinct(model: LocalModel, targets: Sequence[Target]) -> list[Target]:
    """The targets that the model can say; of those that it reads alike the first."""
    known: dict[tuple[int, ...], Target] = {}
    for target in targets:
        if can_say(model, target.text):
            known.setdefault(tuple(model.encode_target(target.text)), target)
    return list(known.values())


def evenly(targets: Sequence[Target], count: int) -> list[Target]:
    """So many of a list at equal distances: its beginning may be shorter sentences than its end."""
    n = len(targets)
    return [targets[i * n // count] for i in range(count)] if count < n else list(targets)


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
    wide = [target for period in (True, False) for target in widen(load_mal(), period)]
    return frozenset(tuple(words(target.text)) for target in wide)


def is_own(text: str) -> bool:
    return tuple(get_recipe("he-glass-2020").words(text)) in own_sentences()


def _embedded(folder: Path) -> Data:
    pairs = reference_pairs("")[:EMBEDDED_PAIRS]
    write_once(folder / "pairs.jsonl", pair_lines(pairs, DIALOGUE_PAIRS))
    write_once(folder / "prototypes.txt", [f"{target.text}\n" for target in load_mal()])
    write_once(folder / "text.txt", [f"{reply.lower()}\n" for _, reply in pairs])
    remark = "a stand-in: the shipped chitchat pairs"
    recipes = {"switchboard": "he-glass-2020", "ubuntu": "he-glass-2019", "opensubtitles": "he-glass-2019"}
    sources = {
        corpus: Source(corpus, folder / "pairs.jsonl", "pairs-jsonl", recipe, 10_000, remark)
        for corpus, recipe in recipes.items()
    }
    characters = Source("characters", folder / "text.txt", "next-word", "characters", 33, remark)
    return Data("embedded", sources, folder / "prototypes.txt", characters)


PLACES = {"data", "test", "out", "device", "name", "licence", "checkpoint_s"}
"""Settings that do not change the trained model: paths, names and the device."""
AS_PUBLISHED: dict[str, Any] = {"decoder_start": "zero", "input_end": "eos", "pads": "masked"}
"""Input and decoder settings of the dialogue models in the public code."""
OPTIMISER: dict[str, Any] = {"momentum": 0.9, "weight_decay": 1e-5, "lr_factor": 0.6, "mean_over": "words"}
"""Its optimizer. The decay is not small: without gradients a weight halves in 7,000 updates."""


def model_name(corpus: str, arch: str) -> str:
    """The model's folder inside the study's."""
    return f"models/{corpus}-{arch}"


def train_spec(source: Source, size: Size, arch: str) -> PaperTrainSpec:
    """The settings of section 5.3; those of the character task are of appendix B as far as it gives any."""
    values: dict[str, Any] = {name: getattr(source, name) for name in ("format", "test_format", "recipe")}
    values |= {"data": str(source.data), "test": str(source.test or ""), "patience": source.patience}
    values |= {"arch": arch, "pads": "word", "language_model": False, "seed": SEED}
    values["vocabulary"] = min(source.vocabulary, size.vocabulary)
    if source.corpus == "characters":
        values |= {"embedding": size.character_hidden, "hidden": size.character_hidden}
        values |= {"max_input": size.input_length, "max_output": 12, "epochs": size.character_epochs}
        return PaperTrainSpec(**values, optimizer="adamw", lr=0.002, batch=512)
    values |= size.some("embedding", "hidden", "epochs")
    if source.corpus == "switchboard":
        values |= OPTIMISER
    if arch != "lm":
        values |= AS_PUBLISHED | {"max_input": size.length}
    halving = (size.epochs + 1) // 2
    return PaperTrainSpec(**values, dropout=0.3, optimizer="sgd", lr=1.0, halve_after=halving, half=True)


def train_settings(source: Source, size: Size, arch: str) -> dict[str, Any]:
    """The settings that determine a model."""
    values = spec_values(train_spec(source, size, arch))
    return {key: value for key, value in values.items() if key not in PLACES}


def train_network(place: Workplace, source: Source, size: Size, arch: str) -> Result:
    """Trains one model. A dialogue model then gets its corpus' language model, which was trained before."""
    folder = place.path(model_name(source.corpus, arch))
    spec = replace(train_spec(source, size, arch), out=str(folder), device=place.device)
    train_model(spec)
    if arch != "lm" and source.corpus != "characters":
        _adopt(folder, place.path(model_name(source.corpus, "lm")))
    card = read_json(folder / "card.json")
    mean = card["T_in"] if arch == "lm" else card["T_out"]
    found = {name: card[name] for name in ("test_perplexity", "pairs", "words", "parameters")}
    found |= {"corpus": source.corpus, "arch": arch, "remark": source.remark, "nll": -mean}
    return {**found, "T_in" if arch == "lm" else "T_out": mean}


def _adopt(folder: Path, language_model: Path) -> None:
    own = folder / "lm"
    if not own.exists():
        partial = folder / "lm.partial"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(language_model, partial)
        partial.replace(own)
    complete_card(folder)
