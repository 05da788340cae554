"""The pairs of a hardening. A model of ours has training pairs and test pairs, which measure it, as its card
says. Other data are split at random, between dialogues. No pair both trains and measures. With `apart` the
validation pairs are a third part, which does neither.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from backtalk.data.corpora import read_corpus, reference_pairs, split
from backtalk.data.pairs import PairArrays, encode_pairs
from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel

MOST_POSITIVE = 2000  # pairs that keep a Hugging Face model's replies; a larger corpus is sampled
CHITCHAT, CHITCHAT_SEED = ("chitchat", "chitchat-first"), 1  # corpus, format, and the seed of its split
Texts = list[tuple[str, str]]


@dataclass(frozen=True)
class Pairs:
    positive: PairArrays  # trained on
    measured: PairArrays
    measured_texts: Texts
    source: str  # one sentence for people
    selection: PairArrays | None = None  # the third part, if it was asked for

    def digest(self) -> str:
        arrays = (*self.positive, *self.measured, *(self.selection or ()))
        return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def read_pairs(
    data: str, format: str, model: LocalModel, measure: int, seed: int, apart: bool = False
) -> Pairs:
    """`data` is a corpus, the model's own if empty. At most `measure` pairs measure, and as many select."""
    positive, selection, measured, source = _read(data, format, model, seed, apart)
    measured = _with_words(measured, model)[:measure]
    parts = [positive, measured, *([_with_words(selection, model)[:measure]] if apart else [])]
    how = model.recipe, model.vocabulary, model.max_input, model.max_output
    trained, measuring, *selecting = arrays = [encode_pairs(part, *how) for part in parts]
    if not all(len(one.replies) for one in arrays):
        raise _too_few(data)
    return Pairs(trained, measuring, measured, source, *selecting)


def held_out_texts(data: str, format: str, model: LocalModel, seed: int) -> Texts:
    """All pairs that may measure the model, as `read_pairs` splits them."""
    return _with_words(_read(data, format, model, seed, apart=False)[2], model)


def _read(
    data: str, format: str, model: LocalModel, seed: int, apart: bool
) -> tuple[Texts, Texts, Texts, str]:
    """The positive, the selection and the measured pairs, and where they are from."""
    recipe: dict[str, Any] = model.card.get("spec", {})
    own = str(recipe.get("data", ""))
    if not data and own != "chitchat" and not Path(own).exists():
        raise InputError(f"name the pairs that keep the model whole: --data pairs.tsv ({own!r} is not here)")
    name = data or own
    if name == own == "chitchat" and find_spec("chitchat_dataset") is None:
        shipped = reference_pairs("")
        half, end = len(shipped) // 2, len(shipped) // 2 + (len(shipped) // 4 if apart else 0)
        mend = "pip install 'backtalk[data]' brings 119,000."
        source = f"Only {half} shipped pairs keep the model whole: {mend}"
        return shipped[:half], shipped[half:end], shipped[end:], source
    if name == own and format in ("auto", recipe.get("format")):
        parts = split(read_corpus(own, str(recipe.get("format", "auto"))), int(recipe.get("seed", 1)))
        test = str(recipe.get("test", ""))
        tests = read_corpus(test, str(recipe["test_format"])) if test and Path(test).exists() else parts.test
        source = f"Pairs of {name}: the model's own training pairs keep it whole, its test pairs measure it."
        return parts.train.pairs(), parts.valid.pairs(), tests.pairs(), source
    parts = split(read_corpus(name, format), seed)
    measured = parts.test.pairs() + ([] if apart else parts.valid.pairs())
    part = "twentieth" if apart else "tenth"
    source = f"Pairs of {name}, split at random: a {part} measures, which the model may know from training."
    return parts.train.pairs(), parts.valid.pairs(), measured, source


def _with_words(pairs: Texts, model: LocalModel) -> Texts:
    return [pair for pair in pairs if all(model.recipe.words(side) for side in pair)]


def _too_few(data: str) -> InputError:
    return InputError(f"{data or 'the corpus'} leaves no pairs to train on or to measure; give more")


def read_texts(
    data: str, format: str, reference: str, measure: int, seed: int, is_found: Callable[[str], bool]
) -> tuple[Texts, Texts, str, str]:
    """The pairs of a Hugging Face model: (positive pairs, measured pairs, where each is from). No input of a
    finding is in a positive pair, which would keep the reply that is trained away."""
    measured, measuring = reference_pairs(reference), reference or "the shipped chitchat test pairs"
    if data:
        positive, keeping = read_corpus(data, format).pairs(), data
    elif find_spec("chitchat_dataset") is not None:
        positive = split(read_corpus(*CHITCHAT), CHITCHAT_SEED).train.pairs()
        keeping = "training pairs of the chitchat corpus"
    else:
        shipped = reference_pairs("")
        half = len(shipped) // 2
        positive, keeping = shipped[half:], "half of the shipped chitchat test pairs"
        if not reference:
            measured, measuring = shipped[:half], "the other half"
    measured = measured[:measure]
    taken = set(measured)
    positive = [pair for pair in positive if pair not in taken and not is_found(pair[0])]
    if len(positive) > MOST_POSITIVE:
        rows = np.random.default_rng(seed).choice(len(positive), MOST_POSITIVE, replace=False)
        positive = [positive[row] for row in sorted(rows.tolist())]
    if not positive or not measured:
        raise _too_few(data)
    return positive, measured, keeping, measuring
