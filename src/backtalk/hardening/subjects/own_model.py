"""What hardenings of our LSTMs share: the model, its pairs, its side of the cost and its folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from backtalk.audit.reference import find_reference
from backtalk.data.pairs import PairArrays
from backtalk.data.vocabulary import EOS, PAD
from backtalk.errors import InputError
from backtalk.hardening.iterations import Selection
from backtalk.hardening.subject import Subject
from backtalk.models.device import evaluating
from backtalk.models.folder import TextSettings, load_folder, save_folder, write_card
from backtalk.models.lstm.model import LocalModel
from backtalk.registry import MODELS, find_model, load_model
from backtalk.scorers.cost import BEST, LISTS, SHOWN, Cost, Side, compare_sides
from backtalk.specs.harden import HardenSpec
from backtalk.training.card import reply_samples
from backtalk.training.likelihood import mean_log_likelihood, perplexity, read_inputs, sentence_log_probs
from backtalk.training.pairs import read_pairs
from backtalk.types import Access, Turn

LM_PERPLEXITY = "language_model_test_perplexity"
INHERITED = ("kind", "data", "licence", "parameters", "words", "pairs", "spec", LM_PERPLEXITY)
"""What a hardened model's card takes from its parent's."""


class OwnModel(Subject):
    """An LSTM of ours."""

    parent: LocalModel
    trained: LocalModel  # A copy of the parent that is trained

    def __init__(self, spec: HardenSpec, apart: bool = False) -> None:
        self.spec = spec
        entry, _ = find_model(spec.model)
        if entry.access < Access.WEIGHTS:
            raise InputError(f"{spec.model} gives {entry.access.name} only; hardening needs its weights")
        parent = load_model(spec.model, spec.device)
        if not isinstance(parent, LocalModel):
            raise InputError(f"{spec.model} is not a model of ours; hardening trains our own models only")
        self.parent, self.fingerprint = parent, parent.fingerprint
        self.thresholds = find_reference(parent, "").thresholds
        self._read()
        pairs = read_pairs(spec.data, spec.format, parent, spec.measure, spec.seed, apart)
        self.pairs, self.source = pairs, pairs.source
        self.pair_counts = len(pairs.positive.replies), len(pairs.measured.replies)

    def _read(self) -> None:
        """Whatever has to be checked before a corpus is read, which takes long."""

    def copy(self) -> LocalModel:
        self.trained = replace(self.parent, network=deepcopy(self.parent.network))
        return self.trained

    def own_facts(self) -> dict[str, Any]:
        return {"thresholds": list(self.thresholds), "pairs_sha256": self.pairs.digest()}

    def model(self, of_original: bool) -> LocalModel:
        return self.parent if of_original else load_folder(str(self.folder), self.spec.device)

    @torch.no_grad()
    def side(self, of_original: bool) -> Side:
        model = self.model(of_original)
        dialogues = [(Turn("user", text),) for text, _ in self.pairs.measured_texts]
        ids = model.greedy_ids(model.encode_dialogues(dialogues))
        return Side(
            sums=sentence_log_probs(model.network, self.pairs.measured, model.device).tolist(),
            said=[_words(model, row) for row in ids],
            shown=[model.read(row) for row in ids[:SHOWN]],
            lengths=(self.pairs.measured.replies != PAD).sum(1).tolist(),
            lists=[[text.split() for text, _ in row] for row in model.beams(dialogues[:LISTS], BEST)],
        )

    def cost(self, before: Side, after: Side) -> Cost:
        own = self.parent
        real = [_words(own, own.encode_target(reply)) for _, reply in self.pairs.measured_texts]
        inputs = [text for text, _ in self.pairs.measured_texts]
        return compare_sides(before, after, inputs, real, own.recipe.show)

    def write(self, selection: Selection) -> None:
        """As a folder that `chat`, `audit` and `harden` take."""
        parent, model = self.parent, self.trained
        with evaluating(model.network, "highest"):
            tested = perplexity_of(model, self.pairs.measured)
        text = TextSettings(parent.recipe.name, parent.max_input, parent.max_output)
        digest = save_folder(self.folder, model.network, parent.vocabulary, text)
        if parent.language_model is not None:  # it was not trained: its files are copied
            name = parent.name
            root = files("backtalk") / "embedded" / name if name in MODELS else Path(name)
            with as_file(root) as source:
                shutil.copytree(source / "lm", self.folder / "lm", dirs_exist_ok=True)
        card = {key: parent.card[key] for key in INHERITED if key in parent.card}
        card |= {
            **self.card(selection, parent.name, tested),
            "sha256": digest,
            "T_in": self.thresholds.into,
            # What it says now to the inputs of the parent's card.
            "samples": reply_samples(model, [one["input"] for one in parent.card.get("samples", [])]),
        }
        write_card(self.folder, card)


def perplexity_of(model: LocalModel, pairs: PairArrays) -> float:
    return perplexity(mean_log_likelihood(model.network, pairs, model.device))


@torch.no_grad()
def replies_of(model: LocalModel, inputs: NDArray[np.int64]) -> list[list[str]]:
    """The words of its greedy replies."""
    said = model.greedy_ids(read_inputs(model.network, inputs, model.device))
    return [model.vocabulary.words(ids) for ids in said]


def _words(model: LocalModel, ids: Sequence[int]) -> list[str]:
    return model.vocabulary.words([i for i in ids if i not in (PAD, EOS)])
