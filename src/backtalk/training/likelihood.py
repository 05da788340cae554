"""How well a network predicts replies (mean log-probability, perplexity), and the card of a trained model.

T_out and T_in of the papers are this mean on the test set, the end-of-turn token counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backtalk import __version__
from backtalk.data.pairs import PairArrays, Prepared
from backtalk.data.vocabulary import PAD
from backtalk.models.folder import Network, load_folder, open_folder, write_card
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import Seq2Seq
from backtalk.specs.train import TrainSpec
from backtalk.store.typed import read_json
from backtalk.types import Turn

BATCH = 256
CARD_SAMPLES = 20
IntArray = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def mean_log_likelihood(network: Network, pairs: PairArrays, device: torch.device) -> float:
    """The average over all tokens of all replies. Sums are in float64."""
    total = sentence_log_probs(network, pairs, device).sum()
    return float(total) / int((pairs.replies != PAD).sum())


@torch.no_grad()
def sentence_log_probs(network: Network, pairs: PairArrays, device: torch.device) -> Tensor:
    """(pairs,), float64: log P of each whole reply."""
    sums = []
    for start in range(0, len(pairs.replies), BATCH):
        inputs = torch.from_numpy(pairs.inputs[start : start + BATCH]).to(device)
        replies = torch.from_numpy(pairs.replies[start : start + BATCH]).to(device)
        sums.append(network.token_log_probs(inputs, replies).double().sum(1))
    return torch.cat(sums)


def perplexity(mean: float) -> float:
    return math.exp(-mean) if mean > -700 else math.inf


def read_inputs(network: Seq2Seq, inputs: IntArray, device: torch.device) -> Tensor:
    """(batch, n) on the device; padding that no row needs is cut, unless the network reads it as a word."""
    kept = inputs if network.config.pad_as_word else trim_padding(inputs)
    return torch.from_numpy(kept).to(device)


def trim_padding(ids: IntArray) -> IntArray:
    """Without the columns in which every row is padded."""
    used = (ids != PAD).any(axis=0)
    return np.ascontiguousarray(ids[:, : int(used.nonzero()[0].max()) + 1])


def write_measured_card(
    kind: str,
    spec: TrainSpec,
    prepared: Prepared,
    folder: Path,
    facts: dict[str, Any],
    digest: str,
    network: Network,
    device: torch.device,
) -> None:
    """Measures the model as it will be loaded. Loading needs a card, so a first one is written without the
    numbers; it says that the training is not finished."""
    card: dict[str, Any] = {
        "name": spec.name or Path(spec.out).name,
        "kind": kind,
        "data": prepared.corpus.name,
        "licence": spec.licence or prepared.corpus.licence,
        "backtalk": __version__,
        "parameters": sum(value.numel() for value in network.parameters()),
        "words": len(prepared.vocabulary),
        "pairs": {part: len(getattr(prepared, part).replies) for part in ("train", "valid", "test")},
        "sha256": digest,
        "spec": facts,
    }
    write_card(folder, {**card, "finished": False})
    mean = mean_log_likelihood(open_folder(folder, device)[0], prepared.test, device)
    card |= {"T_in" if kind == "lm" else "T_out": mean, "test_perplexity": round(perplexity(mean), 2)}
    if kind == "seq2seq":
        model = load_folder(str(folder), str(device))
        inputs = [text for text, _ in prepared.test_pairs if model.recipe.words(text)][:CARD_SAMPLES]
        card["samples"] = reply_samples(model, inputs)
    write_card(folder, {**card, "finished": True})


def reply_samples(model: LocalModel, inputs: Sequence[str]) -> list[dict[str, str]]:
    """Each input with the greedy and one sampled reply."""
    if not inputs:
        return []
    dialogues = [(Turn("user", text),) for text in inputs]
    rows = zip(inputs, model.reply(dialogues), model.sample(dialogues, range(len(inputs))), strict=True)
    return [{"input": text, "greedy": greedy, "sampled": sampled} for text, greedy, sampled in rows]


def complete_card(out: Path) -> dict[str, Any]:
    """Copies the language model's numbers into the model's card."""
    card, lm = read_json(out / "card.json"), read_json(out / "lm" / "card.json")
    whole = card | {"T_in": lm["T_in"], "language_model_test_perplexity": lm["test_perplexity"]}
    if whole != card:
        write_card(out, whole)
    return whole
