"""A model's card: data, sizes, test perplexity, T_out or T_in, licence, sha256, and samples."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from backtalk import __version__
from backtalk.data.pairs import Prepared
from backtalk.models.folder import Network, load_folder, open_folder, write_card
from backtalk.models.lstm.model import LocalModel
from backtalk.specs.train import TrainSpec
from backtalk.training.likelihood import mean_log_likelihood, perplexity
from backtalk.types import Turn

CARD_SAMPLES = 20


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
    """The numbers are those of the model as it will be loaded, which needs a card: a first one says
    `finished:
    false`, and a kill before the second leaves the training unfinished."""
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
    card, lm = read_card(out), read_card(out / "lm")
    whole = card | {"T_in": lm["T_in"], "language_model_test_perplexity": lm["test_perplexity"]}
    if whole != card:
        write_card(out, whole)
    return whole


def read_card(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / "card.json").read_text(encoding="utf-8"))
    return card
