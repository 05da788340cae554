"""A corpus as a network sees it: split by dialogue, cut into words, numbered, padded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from backtalk.data.corpora import Corpus, pairs_of, read_corpus
from backtalk.data.pairs import PairArrays, encode_pairs
from backtalk.data.splits import split
from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import Vocabulary
from backtalk.errors import InputError
from backtalk.specs.train import TrainSpec


@dataclass(frozen=True)
class Prepared:
    """A corpus as a network sees it."""

    corpus: Corpus
    vocabulary: Vocabulary
    train: PairArrays
    valid: PairArrays
    test: PairArrays
    test_pairs: list[tuple[str, str]]

    def digest(self) -> str:
        """A hash of the training pairs: a checkpoint goes on only with the very pairs that it began with."""
        return hashlib.sha256(self.train.inputs.tobytes() + self.train.replies.tobytes()).hexdigest()


def prepare(spec: TrainSpec) -> Prepared:
    """Reads, splits and encodes the corpus. The same spec gives the same arrays."""
    corpus = read_corpus(spec.data, spec.format)
    parts = split(corpus, spec.seed)
    tests = read_corpus(spec.test, spec.test_format) if spec.test else parts.test
    recipe = get_recipe(spec.recipe)
    dialogues = parts.train.dialogues[: spec.limit] if spec.limit else parts.train.dialogues
    vocabulary = Vocabulary.from_counts(
        (recipe.words(turn.text) for dialogue in dialogues for turn in dialogue), spec.vocabulary
    )

    def encode(pairs: Iterable[tuple[str, str]]) -> PairArrays:
        return encode_pairs(pairs, recipe, vocabulary, spec.max_input, spec.max_output)

    test_pairs = [pair for dialogue in tests.dialogues for pair in pairs_of(dialogue)]
    prepared = Prepared(
        corpus,
        vocabulary,
        encode(pair for dialogue in dialogues for pair in pairs_of(dialogue)),
        encode(pair for dialogue in parts.valid.dialogues for pair in pairs_of(dialogue)),
        encode(test_pairs),
        test_pairs,
    )
    for name, arrays in (
        ("training", prepared.train),
        ("validation", prepared.valid),
        ("test", prepared.test),
    ):
        if not len(arrays.replies):
            raise InputError(f"{spec.data} gives no {name} pairs; is it what --format {spec.format} reads?")
    return prepared
