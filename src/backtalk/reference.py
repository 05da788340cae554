"""T_out and T_in: what "likely" means for a model, taken from its card or measured on reference pairs."""

from __future__ import annotations

from typing import NamedTuple

from backtalk.cases import reference_pairs
from backtalk.errors import InputError
from backtalk.models.local import LocalModel
from backtalk.protocols import WeightsModel
from backtalk.scorers.likelihood import score_triggers
from backtalk.types import Thresholds

BATCH = 256
MOST_PAIRS = 5000


class Reference(NamedTuple):
    thresholds: Thresholds
    source: str
    """One sentence for the report."""


def find_reference(model: WeightsModel, path: str) -> Reference:
    """From `path`, else from the model's card, else from the shipped chitchat pairs."""
    if path:
        return Reference(_measure(model, reference_pairs(path)), f"T_out and T_in were measured on {path}.")
    card = model.card if isinstance(model, LocalModel) else {}
    if "T_out" in card:
        into = card.get("T_in") if model.language_model is not None else None
        return Reference(
            Thresholds(float(card["T_out"]), None if into is None else float(into)),
            "T_out and T_in come from the model's card: its average token log-likelihoods on its test set.",
        )
    return Reference(
        _measure(model, reference_pairs("")),
        "The model's card has no T_out: it was measured on the shipped chitchat test pairs.",
    )


def _measure(model: WeightsModel, pairs: list[tuple[str, str]]) -> Thresholds:
    """Averages over all tokens of replies (T_out) and of inputs as sentences (T_in)."""
    out: list[float] = []
    into: list[float] = []
    longest = getattr(model, "max_input", None)
    ids = [
        (model.encode_input(text)[:longest], model.encode_target(reply)) for text, reply in pairs[:MOST_PAIRS]
    ]
    ids = [(trigger, target) for trigger, target in ids if trigger]
    if not ids:
        raise InputError("the reference pairs hold no words that the model knows")
    for start in range(0, len(ids), BATCH):
        part = ids[start : start + BATCH]
        for scored in score_triggers(model, [a for a, _ in part], [b for _, b in part]):
            out += scored.series["token_log_probs"]
            into += scored.series.get("input_log_probs", [])
    return Thresholds(sum(out) / len(out), sum(into) / len(into) if into else None)
