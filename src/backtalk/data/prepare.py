"""A corpus prepared for training: split by dialogue, cut into words, encoded and padded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from backtalk.data.corpora import Corpus, pairs_of, read_corpus, split
from backtalk.data.pairs import PairArrays, encode_pairs
from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import Vocabulary
from backtalk.errors import InputError
from backtalk.specs.train import TrainSpec


@dataclass(frozen=True)
class Prepared:
    corpus: Corpus
    vocabulary: Vocabulary
    train: PairArrays
    valid: PairArrays
    test: PairArrays
    test_pairs: list[tuple[str, str]]

    def digest(self) -> str:
        """A hash of the training pairs: training resumes only with the same pairs."""
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

    train = encode(pair for dialogue in dialogues for pair in pairs_of(dialogue))
    valid, test = encode(parts.valid.pairs()), encode(tests.pairs())
    for name, arrays in {"training": train, "validation": valid, "test": test}.items():
        if not len(arrays.replies):
            raise InputError(f"{spec.data} gives no {name} pairs; is it what --format {spec.format} reads?")
    return Prepared(corpus, vocabulary, train, valid, test, tests.pairs())
