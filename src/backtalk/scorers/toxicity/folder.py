"""A scorer folder: config.json, model.safetensors, card.json, and words.json where words have rows. Of an
encoder it holds only what was learnt; the rest is in an installed package.

The weights are checked against the card's sha256 at every load; the card is written last.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal, TypedDict

import torch
from torch import Tensor

from backtalk.errors import InputError, short_reason
from backtalk.models.device import pick_device
from backtalk.models.folder import read_parts, refuse_other_shapes, save_weights, write_json
from backtalk.protocols import Scorer
from backtalk.scorers.toxicity.encoder import load_encoder
from backtalk.scorers.toxicity.linear import LinearScorer
from backtalk.scorers.toxicity.network import Lexicon, NetworkConfig, ToxicityClassifier, ToxicityNetwork
from backtalk.store.typed import read_record

FORMAT = "backtalk-scorer-1"


class ScorerConfig(TypedDict):
    format: Literal["backtalk-scorer-1"]
    kind: Literal["words", "letters", "encoder"]
    sizes: dict[str, Any]


class ScorerCard(TypedDict):
    """The fields of a card that are read; it holds more, for people."""

    sha256: str


@lru_cache(maxsize=4)
def load_embedded(name: str, device: str = "auto") -> Scorer:
    """A scorer that ships inside the package. It holds no state, so a process loads it once."""
    with as_file(files("backtalk") / "embedded" / name) as folder:
        return load_folder(name, device, folder)


def load_folder(name: str, device: str = "auto", shipped: Path | None = None) -> Scorer:
    """The scorer of a folder that `backtalk train-scorer` wrote, with what its card measured."""
    where, folder = pick_device(device), shipped or Path(name)
    config, card, half = read_parts(folder, "scorer", ScorerConfig, ScorerCard)
    scorer: Any = _load(name, folder, where, config, card, half)
    scorer.measured, scorer.for_reward = known_rates(card), bool(card.get("for_reward", True))
    return scorer  # type: ignore[no-any-return]


def known_rates(card: Mapping[str, Any]) -> dict[str, Any]:
    """How right a scorer is, from its card: on the test set at a natural rate, else on the first one that has
    toxic and harmless texts; empty if there is none."""
    sets = card.get("measured")
    both = [
        (name, own)
        for name, own in (sets.items() if isinstance(sets, dict) else ())
        if isinstance(own, dict) and "precision at 0.5" in own
    ]
    for name, own in sorted(both, key=lambda one: "natural" not in one[0]):
        precision, recall = own["precision at 0.5"], own["recall at 0.5"]
        harmless, right = own["texts"] - own["toxic"], recall * own["toxic"]
        wrong = right / precision - right if precision else 0.0
        rates = {"precision": precision, "recall": recall, "false_positives": wrong / harmless}
        return {"on": name, "texts": own["texts"], **{key: round(value, 4) for key, value in rates.items()}}
    return {}


def _load(
    name: str, folder: Path, where: torch.device, config: Any, card: Any, half: Mapping[str, Tensor]
) -> Scorer:
    tensors, sizes = {key: value.float() for key, value in half.items()}, config["sizes"]
    try:
        if config["kind"] == "words":
            network = _network(read_record(NetworkConfig, sizes, exact=True), tensors)
            words = json.loads((folder / "words.json").read_text("utf-8"))
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise ValueError("its words are no list of texts")
            if len(words) + 1 != sizes["vocabulary"]:
                raise ValueError(f"words.json has {len(words)} words, the scorer another number")
            lexicon = Lexicon(words, sizes["buckets"])
            return ToxicityClassifier(name, network, lexicon, card["sha256"], where)
        if config["kind"] == "encoder":
            return load_encoder(name, sizes, tensors, card["sha256"], where)
        weights, bias = tensors.get("weights"), sizes.get("bias")
        if weights is None or weights.ndim != 1 or not len(weights) or not isinstance(bias, int | float):
            raise ValueError("no weights of letters")
        return LinearScorer(name, weights, float(bias), card["sha256"], where)
    except (OSError, ValueError, ArithmeticError, AssertionError, RuntimeError) as error:
        raise InputError(f"{folder} can't be read as a scorer: {short_reason(error)}") from None


def _network(config: NetworkConfig, tensors: dict[str, Tensor]) -> ToxicityNetwork:
    if config.convolutions > len(tensors) or config.hidden % config.heads:
        raise ValueError("its config has sizes that no scorer has")
    with torch.device("meta"):  # a config may name any size: no memory before the shapes match
        refuse_other_shapes(tensors, ToxicityNetwork(config).state_dict())
    network = ToxicityNetwork(config)
    network.load_state_dict(tensors)
    return network


def write_scorer(
    folder: Path, kind: str, sizes: dict[str, Any], words: list[str], tensors: dict[str, Tensor]
) -> str:
    """Writes all but the card, in 16 bits; returns the sha256 of the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", {"format": FORMAT, "kind": kind, "sizes": sizes})
    if words:
        write_json(folder / "words.json", words)
    return save_weights(folder, tensors, torch.float16)
