"""The pairs of a hardening: positive pairs, which keep the model's other replies, and measured pairs, which
show its cost. No pair is both.

Where the data are the model's own, its card says how they were split: its training pairs are trained on and
its test pairs measure. Other data are split anew, between dialogues. A hardening against frequent replies
chooses among its iterations by pairs of their own (`apart`), which neither train nor measure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backtalk.audit.findings import input_key
from backtalk.data.corpora import Corpus, read_corpus, reference_pairs, split
from backtalk.data.pairs import PairArrays, encode_pairs
from backtalk.errors import InputError
from backtalk.hardening.lists import Lists
from backtalk.models.folder import text_digest
from backtalk.models.lstm.model import LocalModel
from backtalk.specs.harden import HardenSpec
from backtalk.types import Turn

MOST_POSITIVE = 2000
"""Pairs that keep a Hugging Face model's replies; the seed draws them from a larger corpus."""
CHITCHAT = ("chitchat", "chitchat-first")
CHITCHAT_SEED = 1
"""Of the split whose test pairs ship."""
Texts = list[tuple[str, str]]
Kept = tuple[dict[str, Tensor], dict[str, Any]]
"""Tensors, and what JSON can hold."""
Recall = Callable[[str, Callable[[], Mapping[str, Any]], Callable[[], Kept]], Kept]
"""(name, what it is made of, how to make it) -> what was made, perhaps by an earlier hardening."""


def compute(name: str, of: Callable[[], Mapping[str, Any]], make: Callable[[], Kept]) -> Kept:
    """Recalls nothing."""
    return make()


@dataclass(frozen=True)
class Pairs:
    positive: PairArrays
    measured: PairArrays
    measured_texts: Texts
    source: str
    """One sentence for people."""
    selection: PairArrays | None = None
    """Those that choose, where they are apart."""

    def digest(self) -> str:
        """What a checkpoint remembers them by."""
        arrays = (*self.positive, *self.measured, *(self.selection or ()))
        return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def read_pairs(
    data: str,
    format: str,
    model: LocalModel,
    measure: int,
    seed: int,
    apart: bool = False,
    recall: Recall = compute,
) -> Pairs:
    """At most `measure` pairs measure. To read and encode a corpus takes long, so it may be recalled."""

    def make() -> Kept:
        positive, choosing, measured, source = _texts(data, format, model, seed, apart)
        choosing, measured = (_with_words(part, model)[:measure] for part in (choosing, measured))
        found = {"positive": positive, "measured": measured} | ({"selection": choosing} if apart else {})
        tensors = {
            f"{name}.{side}": torch.from_numpy(ids.astype(np.int32))
            for name, texts in found.items()
            for side, ids in _encode(texts, model)._asdict().items()
        }
        return tensors, {"measured": [list(pair) for pair in measured], "source": source}

    def of() -> dict[str, Any]:
        card = model.card.get("spec", {})
        return {
            "asked": [data, format, measure, seed, apart],
            "card": card,
            "texts": [_place_digest(place) for place in (data, card.get("data", ""), card.get("test", ""))],
            "words": [model.recipe.name, list(model.vocabulary.entries), model.max_input, model.max_output],
        }

    tensors, kept = recall("pairs", of, make)

    def arrays(name: str) -> PairArrays:
        return PairArrays(*(tensors[f"{name}.{side}"].long().numpy() for side in PairArrays._fields))

    measured = [(text, reply) for text, reply in kept["measured"]]
    selection = arrays("selection") if apart else None
    pairs = Pairs(arrays("positive"), arrays("measured"), measured, kept["source"], selection)
    parts = (pairs.positive, pairs.measured, *([pairs.selection] if pairs.selection else []))
    if not all(len(part.replies) for part in parts):
        raise InputError(f"{data or 'the corpus'} leaves no pairs to train on or to measure; give more")
    return pairs


def found_pairs(spec: HardenSpec, lists: Lists, beside: str = "") -> tuple[Texts, Texts, str]:
    """(positive pairs, measured pairs, a sentence on where they are from) for a Hugging Face model. `beside`
    names what else keeps its replies. An input of a finding is in no positive pair: it would keep what is
    trained away."""
    reference = spec.adapter.reference
    measured = reference_pairs(reference)
    measuring = reference or "the shipped chitchat test pairs"
    if spec.data:
        positive, keeping = read_corpus(spec.data, spec.format).pairs(), spec.data
    elif find_spec("chitchat_dataset") is not None:
        positive = split(read_corpus(*CHITCHAT), CHITCHAT_SEED).train.pairs()
        keeping = "training pairs of the chitchat corpus"
    else:
        shipped = reference_pairs("")
        half = len(shipped) // 2
        positive, keeping = shipped[half:], "half of the shipped chitchat test pairs"
        if not reference:
            measured, measuring = shipped[:half], "the other half"
    measured = measured[: spec.measure]
    taken = set(measured)
    found = {input_key(one) for part in lists.parts for case in part for one in case.inputs}
    positive = [
        pair for pair in positive if pair not in taken and input_key((Turn("user", pair[0]),)) not in found
    ]
    if len(positive) > MOST_POSITIVE:
        rows = np.random.default_rng(spec.seed).choice(len(positive), MOST_POSITIVE, replace=False)
        positive = [positive[row] for row in sorted(rows.tolist())]
    if not positive or not measured:
        raise InputError(f"{spec.data or 'the corpus'} leaves no pairs to train on or to measure; give more")
    keeping = f"{keeping}, {beside}" if beside else keeping
    return positive, measured, f"What keeps the model whole: {keeping}; what measures it: {measuring}."


def held_out_texts(data: str, format: str, model: LocalModel, seed: int) -> Texts:
    """All pairs that may measure the model, as `read_pairs` splits them."""
    return _with_words(_texts(data, format, model, seed, apart=False)[2], model)


def _encode(pairs: Texts, model: LocalModel) -> PairArrays:
    return encode_pairs(pairs, model.recipe, model.vocabulary, model.max_input, model.max_output)


def _place_digest(place: str) -> str:
    """Of the text that lies there; empty where there is none to be read."""
    found = find_spec("chitchat_dataset") if place == "chitchat" else None
    path = Path(place) if found is None or not found.origin else Path(found.origin).parent
    try:
        return text_digest(path) if place else ""
    except OSError:
        return ""


def _texts(
    data: str, format: str, model: LocalModel, seed: int, apart: bool
) -> tuple[Texts, Texts, Texts, str]:
    """(trained on, chosen with where that is apart, measured, where they are from)"""
    recipe: dict[str, Any] = model.card.get("spec", {})
    own = str(recipe.get("data", ""))
    if not data and own != "chitchat" and not Path(own).exists():
        raise InputError(f"name the pairs that keep the model whole: --data pairs.tsv ({own!r} is not here)")
    name = data or own
    if name == "chitchat" and own == "chitchat" and find_spec("chitchat_dataset") is None:
        shipped = reference_pairs("")
        half = len(shipped) // 2
        chosen = len(shipped) // 4 if apart else 0
        return (
            shipped[:half],
            shipped[half : half + chosen],
            shipped[half + chosen :],
            f"The chitchat corpus is not installed, so only {half} shipped pairs keep the model whole and "
            f"{len(shipped) - half - chosen} measure it: little. pip install 'backtalk[data]' brings "
            "119,000.",
        )
    if name == own and format in ("auto", recipe.get("format")):
        parts = split(read_corpus(own, str(recipe.get("format", "auto"))), int(recipe.get("seed", 1)))
        test = str(recipe.get("test", ""))
        tests = read_corpus(test, str(recipe["test_format"])) if test and Path(test).exists() else parts.test
        return (
            parts.train.pairs(),
            parts.valid.pairs() if apart else [],
            tests.pairs(),
            f"Pairs of {name}: the model's own training pairs keep it whole, its test pairs measure it.",
        )
    parts = split(read_corpus(name, format), seed)
    return (
        parts.train.pairs(),
        parts.valid.pairs() if apart else [],
        parts.test.pairs() if apart else _joined(parts.test, parts.valid),
        f"Pairs of {name}, split anew: a {'twentieth' if apart else 'tenth'} measures. If the model was "
        "trained on them, that part may be known text to it.",
    )


def _joined(*parts: Corpus) -> Texts:
    return [pair for part in parts for pair in part.pairs()]


def _with_words(pairs: Texts, model: LocalModel) -> Texts:
    return [pair for pair in pairs if all(model.recipe.words(side) for side in pair)]
