"""`backtalk train-scorer`: labelled text becomes a scorer folder, measured on what it never saw.

The way: splits without copies -> training -> the bias, by validation rows at the natural rate -> folder ->
read again as it will be loaded (16-bit weights included) -> measured beside a bag of words -> card.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from backtalk import __version__
from backtalk.data import toxicity as labelled
from backtalk.data.contrast import LabelledText, contrast_texts, load_pairs
from backtalk.errors import InputError
from backtalk.models.folder import write_card
from backtalk.protocols import Scorer
from backtalk.scorers.toxicity.classifier import Lexicon, ToxicityClassifier
from backtalk.scorers.toxicity.embedded import load_folder
from backtalk.scorers.toxicity.folder import write_scorer
from backtalk.scorers.toxicity.linear import LinearScorer, letter_features
from backtalk.scorers.toxicity.network import NetworkConfig
from backtalk.scorers.vectors import PackageVectors
from backtalk.specs import spec_values
from backtalk.specs.scorer import ScorerSpec
from backtalk.store.folder import output_folder
from backtalk.store.typed import read_json
from backtalk.terminal import say
from backtalk.training.linear import LinearTraining, fit_linear, word_features
from backtalk.training.scorer_card import measure, pair_order, sensible_shift
from backtalk.training.scorer_notes import notes
from backtalk.training.scorer_text import clearly_aimed, with_rude_word
from backtalk.training.toxicity import (
    ToxicityTraining,
    WeightedTexts,
    choose_words,
    train_toxicity,
    word_vectors,
)

WIDE = NetworkConfig.wide
PAIRS = {"minimal pairs": "toxicity_pairs", "minimal pairs, second set": "toxicity_pairs_blind"}
FILES = ("config.json", "words.json", "model.safetensors", "card.json")
Sources = dict[str, tuple[list[LabelledText], float]]
"""Training texts by where they are from, with the weight of each."""


class ScorerData(NamedTuple):
    """What is trained on, what chooses, what measures."""

    train: Sources
    valid: list[LabelledText]
    """At the natural rate; sets the bias."""
    calm: list[LabelledText]
    """Friendly chat, likewise."""
    test: dict[str, list[LabelledText]]


def train_scorer(spec: ScorerSpec, fresh: bool = False) -> Path:
    """Trains what the spec says, or finds it done. Returns the folder."""
    out = Path(spec.out)
    with output_folder(out, "train-scorer", FILES if fresh else None):
        if not fresh:
            _refuse_finished(spec, out)
        data = gather(spec)
        counts = {name: len(rows) for name, (rows, _) in data.train.items()}
        _tell("training texts: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))
        if spec.family == "words":
            _train_words(spec, data, out)
        else:
            _train_letters(spec, data, out)
    return out


def gather(spec: ScorerSpec) -> ScorerData:
    """Every split. Nothing in training is a copy of anything held out; RealToxicityPrompts is only a test."""
    if not spec.data:
        raise InputError(
            "name the folder of labelled text with --data; recipes/toxicity.yaml says what is in it"
        )
    folder = Path(spec.data)
    if not folder.is_dir():
        raise InputError(f"--data {folder} is no folder; recipes/toxicity.yaml says what should be in it")
    seed = spec.seed
    balanced = labelled.split(labelled.jigsaw_balanced(folder), 0.05, 0.15, seed)
    natural = labelled.split(labelled.jigsaw_natural(folder), 0.2, 0.8, seed)
    tweets = labelled.split(labelled.davidson(folder), 0.0, 0.1, seed)
    comments = labelled.split(labelled.civil_sentences(folder), 0.0, 0.1, seed)
    test = {
        "jigsaw, balanced": balanced.test,
        "jigsaw, natural rate": natural.test,
        "realtoxicityprompts, continuations": labelled.rtp_continuations(folder),
        "davidson, tweets": tweets.test,
        "civil comments, sentences": comments.test,
    }
    chat = _chat(seed) if spec.chat else []
    if chat:
        test["chitchat, all taken as harmless"] = chat[:2000]
    calm = chat[-2000:]
    held_out = [row for rows in test.values() for row in rows] + balanced.valid + natural.valid + calm
    train: dict[str, tuple[Sequence[LabelledText], float]]
    if spec.family == "letters":
        train = {
            "davidson": (tweets.train, 1.0),
            "civil comments": (comments.train, 1.0),
            "ubuntu": (labelled.ubuntu_messages(folder, spec.chat, seed), 1.0) if spec.chat else ([], 1.0),
        }
    else:
        train = {
            "jigsaw": (balanced.train, 1.6),
            "paradetox": (_paradetox(folder, spec), 0.4),
            "contrast": (contrast_texts(spec.contrast, seed), 0.6),
            "chitchat": (chat[2000 : 2000 + spec.chat], 0.5),
            "chitchat with a rude word": (
                with_rude_word(chat[2000 + spec.chat : -2000])[: spec.rude_chat],
                0.25,
            ),
        }
    kept = {name: (labelled.without(rows, held_out), weight) for name, (rows, weight) in train.items()}
    return ScorerData({name: part for name, part in kept.items() if part[0]}, natural.valid, calm, test)


def _chat(seed: int) -> list[LabelledText]:
    try:
        from chitchat_dataset import Dataset
    except ImportError:
        raise InputError(
            "friendly chat needs its package; pip install 'backtalk[data]', or say --chat 0"
        ) from None
    said = (message["text"] for chat in Dataset().values() for turn in chat["messages"] for message in turn)
    texts = sorted({text for text in said if len(text.split()) > 2})
    random.Random(seed).shuffle(texts)
    return [LabelledText(text, False) for text in texts]


def _paradetox(folder: Path, spec: ScorerSpec) -> list[LabelledText]:
    rows = labelled.paradetox(folder)
    random.Random(spec.seed).shuffle(rows)
    return clearly_aimed(rows[: spec.paradetox])


def _train_words(spec: ScorerSpec, data: ScorerData, out: Path) -> None:
    vectors = PackageVectors()
    texts = [row.text for rows, _ in data.train.values() for row in rows]
    words = choose_words(texts, vectors, spec.vocabulary - 1)
    config = NetworkConfig(
        len(words) + 1, spec.vector, spec.buckets, hidden=spec.hidden, dropout=spec.dropout
    )
    lexicon = Lexicon(words, config.buckets)
    weighted = WeightedTexts(lexicon)
    for rows, weight in data.train.values():
        weighted.add([row.text for row in rows], [float(row.toxic) for row in rows], weight)
    training = ToxicityTraining(epochs=spec.epochs, lr=spec.lr, seed=spec.seed)

    def told(epoch: int, loss: float) -> None:
        _tell(f"epoch {epoch + 1} of {spec.epochs}, loss {loss:.4f}")

    network = train_toxicity(weighted, word_vectors(words, vectors, spec.vector), config, training, told)
    baseline = _bag_of_words(spec, data)
    network.wide.data.copy_(spec.wide * baseline.weights)
    network.outer.bias.data += _shift(ToxicityClassifier("", network, lexicon, ""), data)
    digest = write_scorer(out, "words", asdict(config), words, network.state_dict())
    _finish(spec, data, out, digest, {"parameters": sum(p.numel() for p in network.parameters())}, baseline)


def _train_letters(spec: ScorerSpec, data: ScorerData, out: Path) -> None:
    training = LinearTraining(epochs=spec.epochs, naive_bayes=True, seed=spec.seed)
    weights, bias = fit_linear(*_columns(data.train), letter_features, training)
    plain = LinearScorer("", weights, bias, "")
    sizes = {"bias": bias + _shift(plain, data)}
    digest = write_scorer(out, "letters", sizes, [], {"weights": weights})
    more = {"parameters": len(weights) + 1, "for_reward": False}
    _finish(spec, data, out, digest, more, _bag_of_words(spec, data))


def _bag_of_words(spec: ScorerSpec, data: ScorerData) -> LinearScorer:
    """Words and pairs of neighbours alone, from the same texts: the baseline, and the network's wide part."""
    training = LinearTraining(buckets=WIDE, seed=spec.seed)
    weights, bias = fit_linear(*_columns(data.train), word_features, training)
    scorer = LinearScorer("", weights, bias, "", features=word_features)
    scorer.bias += _shift(scorer, data)
    return scorer


def _finish(
    spec: ScorerSpec, data: ScorerData, out: Path, digest: str, more: dict[str, Any], baseline: Scorer
) -> None:
    """Reads the folder as a user will, measures it beside a bag of words, writes the card."""
    card: dict[str, Any] = {
        "name": spec.name or out.name,
        "family": spec.family,
        "backtalk": __version__,
        **more,
        **notes(spec.family),
        "training texts": {name: len(rows) for name, (rows, _) in data.train.items()},
        "sha256": digest,
        "spec": _facts(spec),
    }
    write_card(out, card)
    scorer = load_folder(str(out), "cpu")
    pairs = {title: load_pairs(name) for title, name in PAIRS.items()}
    card["measured"] = measure(scorer, data.test, pairs)
    card["bag of words, same texts"] = measure(baseline, data.test, pairs)
    card["minimal pairs that choices were made by"] = pair_order(scorer, load_pairs("toxicity_pairs_dev"))
    card["finished"] = True
    write_card(out, card)
    for name, found in card["measured"].items():
        other = card["bag of words, same texts"][name]
        key = next(key for key in ("auc", "share", "rated 0.5 or more") if key in found)
        _tell(f"{name}: {key} {found[key]:.4f}, bag of words {other[key]:.4f}")
    _tell(f"Trained: {out}. Use it: backtalk score FILE --scorer {out}")


def _columns(sources: Sources) -> tuple[list[str], list[float], list[float]]:
    rows = [(row.text, float(row.toxic), weight) for part, weight in sources.values() for row in part]
    texts, labels, weights = zip(*rows, strict=True)
    return list(texts), list(labels), list(weights)


def _shift(scorer: Scorer, data: ScorerData) -> float:
    scores = scorer.score([row.text for row in data.valid])
    calm = scorer.score([row.text for row in data.calm])
    return sensible_shift(scores, [row.toxic for row in data.valid], calm)


def _facts(spec: ScorerSpec) -> dict[str, Any]:
    return {key: value for key, value in spec_values(spec).items() if key not in ("data", "out", "name")}


def _refuse_finished(spec: ScorerSpec, out: Path) -> None:
    card = read_json(out / "card.json") if (out / "card.json").is_file() else {}
    if card.get("finished") and card.get("spec") == _facts(spec):
        raise InputError(f"{out} is already trained with these settings; --fresh trains it anew")
    if card.get("finished"):
        raise InputError(f"{out} holds another scorer; use --fresh to train anew, or another --out")


def _tell(text: str) -> None:
    say(text, file=sys.stderr)
