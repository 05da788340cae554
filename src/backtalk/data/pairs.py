"""(input, reply) pairs as two arrays of word ids; a corpus split into such pairs for training."""

import hashlib
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backtalk.data.corpora import Corpus, pairs_of, read_corpus, split
from backtalk.data.tokenise import Recipe, get_recipe
from backtalk.data.vocabulary import EOS, PAD, Vocabulary
from backtalk.errors import InputError
from backtalk.specs.train import TrainSpec


class PairArrays(NamedTuple):
    """Row i of both arrays is pair i, padded on the right with PAD."""

    inputs: NDArray[np.int64]  # (pairs, max_input)
    replies: NDArray[np.int64]
    """(pairs, max_output): the words and EOS. A cropped reply has no EOS, as it did not end there."""


def encode_pairs(
    pairs: Iterable[tuple[str, str]],
    recipe: Recipe,
    vocabulary: Vocabulary,
    max_input: int = 15,
    max_output: int = 20,
) -> PairArrays:
    """The pairs as ids, cropped to the lengths of He & Glass; pairs with an empty side are left out."""
    words = lru_cache(maxsize=2)(recipe.words)  # the reply of a pair is often the input of the next
    read = ([vocabulary.ids(words(text)) for text in pair] for pair in pairs)
    kept = [(first[:max_input], [*second, EOS][:max_output]) for first, second in read if first and second]
    arrays = PairArrays(*(np.full((len(kept), most), PAD, np.int64) for most in (max_input, max_output)))
    for i, pair in enumerate(kept):
        for array, ids in zip(arrays, pair, strict=True):
            array[i, : len(ids)] = ids
    return arrays


class Prepared(NamedTuple):
    corpus: Corpus
    vocabulary: Vocabulary
    train: PairArrays
    valid: PairArrays
    test: PairArrays

    def digest(self) -> str:
        """A hash of the training pairs; training resumes only with the same pairs."""
        return hashlib.sha256(self.train.inputs.tobytes() + self.train.replies.tobytes()).hexdigest()


def prepare(spec: TrainSpec) -> Prepared:
    """Reads, splits and encodes the corpus. The same spec gives the same arrays."""
    corpus = read_corpus(spec.data, spec.format)
    parts = split(corpus, spec.seed)
    tests = read_corpus(spec.test, spec.test_format) if spec.test else parts.test
    recipe = get_recipe(spec.recipe)
    dialogues = parts.train.dialogues[: spec.limit] if spec.limit else parts.train.dialogues
    counts = Counter(word for turns in dialogues for turn in turns for word in recipe.words(turn.text))
    vocabulary = Vocabulary.from_counts(counts, spec.vocabulary)

    def encode(pairs: Iterable[tuple[str, str]]) -> PairArrays:
        return encode_pairs(pairs, recipe, vocabulary, spec.max_input, spec.max_output)

    train = encode(pair for dialogue in dialogues for pair in pairs_of(dialogue))
    valid, test = encode(parts.valid.pairs()), encode(tests.pairs())
    for name, arrays in {"training": train, "validation": valid, "test": test}.items():
        if not len(arrays.replies):
            raise InputError(f"{spec.data} gives no {name} pairs; is it what --format {spec.format} reads?")
    return Prepared(corpus, vocabulary, train, valid, test)
