"""T_out and T_in: what "likely" means for a model, from its card or measured on reference pairs.

T_out is the average log-probability of a reply's token under the model, T_in that of an input's token under
the language model that judges inputs.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

from backtalk.data.corpora import reference_pairs
from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.models.transformer.library import cache_folder
from backtalk.models.transformer.model import TransformerModel
from backtalk.output_file import write_whole
from backtalk.protocols import LogprobModel, TextModel, WeightsModel
from backtalk.scorers.likelihood import score_triggers
from backtalk.searches.reverse.rerank import Scorers
from backtalk.searches.reverse.searches import ReplySearch
from backtalk.types import Thresholds, Turn

BATCH = 256
MOST_PAIRS = 5000
SHIPPED_PAIRS = 200
"""How many of the shipped pairs are measured by text: a large model takes a minute for them on two cores."""

Pairs = Sequence[tuple[str, str]]
LogProbs = Callable[[Sequence[str]], list[list[float]]]


class Reference(NamedTuple):
    thresholds: Thresholds
    source: str  # one sentence for the report


def measured_pairs(path: str, shipped: int | None = None) -> list[tuple[str, str]]:
    """The pairs that a model is measured on by text: those of a file, or the first `shipped` ones."""
    return reference_pairs(path)[: MOST_PAIRS if path else shipped or SHIPPED_PAIRS]


def describe_pairs(path: str, pairs: Pairs) -> str:
    return path or f"the first {len(pairs)} of the shipped chitchat test pairs"


def pairs_fingerprint(pairs: Pairs) -> str:
    return hashlib.sha256(repr(list(pairs)).encode("utf-8", "replace")).hexdigest()


def find_reference(model: WeightsModel, path: str) -> Reference:
    """From `path`, else from the model's card, else from the shipped chitchat pairs."""
    if isinstance(model, TransformerModel):
        return _transformer_reference(model, path)
    card = model.card if isinstance(model, LocalModel) and not path else {}
    if "T_out" in card:
        into = card.get("T_in") if model.language_model is not None else None
        return Reference(
            Thresholds(float(card["T_out"]), None if into is None else float(into)),
            "T_out and T_in come from the model's card: its average token log-likelihoods on its test set.",
        )
    shipped = "The model's card has no T_out: it was measured on the shipped chitchat test pairs."
    source = f"T_out and T_in were measured on {path}." if path else shipped
    return Reference(_measure_ids(model, reference_pairs(path)), source)


def measure_by_text(model: TextModel, scorers: Scorers, search: ReplySearch, path: str) -> Reference:
    """T_out and T_in of a search that sees texts. A large model takes a while, so a run does this once."""
    inputs = scorers.inputs
    if isinstance(model, LocalModel) and not (path or search.language_model) and scorers.model:
        return find_reference(model, "")
    judge = f"Likely inputs: by {inputs.source}"
    if scorers.model is None and not path and inputs.t_in is not None:
        return Reference(Thresholds(math.nan, inputs.t_in), f"{judge}; T_in is from its card.")
    pairs = measured_pairs(path)
    where = describe_pairs(path, pairs) + ("" if path else "; --reference takes pairs of your own")
    if scorers.model is None:
        thresholds = Thresholds(math.nan, _measure_inputs(inputs.log_probs, pairs))
        return Reference(thresholds, f"{judge}; T_in was measured on {where}.")
    thresholds = _measure_texts(scorers.model, inputs.log_probs, pairs)
    return Reference(thresholds, f"T_out and T_in were measured on {where}. {judge}.")


def _transformer_reference(model: TransformerModel, path: str) -> Reference:
    """Measured once and then cached: a large model takes a minute for it on two cores."""
    pairs, judge = measured_pairs(path), model.judge or model
    source = f"T_out and T_in were measured on {describe_pairs(path, pairs)}."
    key = f"{model.fingerprint}/{model.judge.fingerprint if model.judge else ''}/{pairs_fingerprint(pairs)}"
    cached = cache_folder() / "thresholds" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(cached.read_text(encoding="utf-8"))
        into = known["into"]
        return Reference(Thresholds(float(known["out"]), None if into is None else float(into)), source)
    found = _measure_texts(model, judge.text_log_prob if judge.scores_text else None, pairs)
    with suppress(OSError):
        cached.parent.mkdir(parents=True, exist_ok=True)
        write_whole(cached, json.dumps(found._asdict()) + "\n")
    return Reference(found, source)


def _measure_texts(model: LogprobModel, judge: LogProbs | None, pairs: Pairs) -> Thresholds:
    """Averages over all tokens of the replies, by the model, and of the inputs, by the judge."""
    out = model.log_prob([(Turn("user", text),) for text, _ in pairs], [reply for _, reply in pairs])
    average = _average(out)
    assert average is not None
    return Thresholds(average, _measure_inputs(judge, pairs))


def _measure_inputs(judge: LogProbs | None, pairs: Pairs) -> float | None:
    return _average(judge([text for text, _ in pairs])) if judge else None


def _average(rows: Sequence[Sequence[float]]) -> float | None:
    tokens = [token for row in rows for token in row]
    return sum(tokens) / len(tokens) if tokens else None


def _measure_ids(model: WeightsModel, pairs: Pairs) -> Thresholds:
    """The same averages from token ids, for a model of words."""
    longest, pairs = getattr(model, "max_input", None), pairs[:MOST_PAIRS]
    ids = [(model.encode_input(text)[:longest], model.encode_target(reply)) for text, reply in pairs]
    ids = [(trigger, target) for trigger, target in ids if trigger]
    if not ids:
        raise InputError("the reference pairs hold no words that the model knows")
    series = []
    for start in range(0, len(ids), BATCH):
        triggers, targets = zip(*ids[start : start + BATCH], strict=True)
        series += [scored.series for scored in score_triggers(model, triggers, targets)]
    out = _average([one["token_log_probs"] for one in series])
    assert out is not None
    return Thresholds(out, _average([one.get("input_log_probs", []) for one in series]))
