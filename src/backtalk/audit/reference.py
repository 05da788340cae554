"""T_out and T_in: what "likely" means for a model, from its card or measured on reference pairs.

T_out is the average log-probability of a reply's token under the model, T_in that of an input's token under
the language model that judges inputs.
"""

import hashlib
import json
import math
import time
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
TELL_S = 10.0  # between two lines about it
SLOW_BATCH = 8  # pairs of a large model: a second or two on two cores
MOST_PAIRS = 5000
SHIPPED_PAIRS = 200
"""How many of the shipped pairs are measured by text: a large model takes a minute for them on two cores."""

Pairs = Sequence[tuple[str, str]]
LogProbs = Callable[[Sequence[str]], list[list[float]]]
SHIPPED = "the shipped chitchat test pairs"


class Reference(NamedTuple):
    thresholds: Thresholds
    source: str  # one sentence for the report
    pairs: int = 0  # how many pairs a slow model was measured on; 0: from a card, or measured on all of them


class Measuring(NamedTuple):
    """How a slow model is measured: on the first `most` pairs, or on as many as `seconds` allow."""

    seconds: float = math.inf
    tell: Callable[[str], None] = lambda line: None  # called with the progress
    most: int = 0


FULLY = Measuring()


def measured_pairs(path: str, shipped: int | None = None) -> list[tuple[str, str]]:
    """The pairs that a model is measured on by text: those of a file, or the first `shipped` ones."""
    return reference_pairs(path)[: MOST_PAIRS if path else shipped or SHIPPED_PAIRS]


def describe_pairs(path: str, pairs: Pairs, measured: int | None = None) -> str:
    """`measured`: how many of them were, if not all."""
    if path and measured in (None, len(pairs)):
        return path
    return f"the first {len(pairs) if measured is None else measured} of {path or SHIPPED}"


def pairs_fingerprint(pairs: Pairs) -> str:
    return hashlib.sha256(repr(list(pairs)).encode("utf-8", "replace")).hexdigest()


def find_reference(model: WeightsModel, path: str, how: Measuring = FULLY) -> Reference:
    """From `path`, else from the model's card, else from the shipped chitchat pairs."""
    if isinstance(model, TransformerModel):
        return _transformer_reference(model, path, how)
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


def measure_by_text(
    model: TextModel, scorers: Scorers, search: ReplySearch, path: str, how: Measuring
) -> Reference:
    """T_out and T_in of a search that sees texts. A large model takes a while, so a run does this once."""
    inputs = scorers.inputs
    if isinstance(model, LocalModel) and not (path or search.language_model) and scorers.model:
        return find_reference(model, "")
    judge = f"Likely inputs: by {inputs.source}"
    if scorers.model is None and not path and inputs.t_in is not None:
        return Reference(Thresholds(math.nan, inputs.t_in), f"{judge}; T_in is from its card.")
    pairs = measured_pairs(path)
    found, measured = _measure_texts(scorers.model, inputs.log_probs, pairs, how)
    own = "" if path else "; --reference takes pairs of your own"
    where = describe_pairs(path, pairs, measured) + own
    what = "T_in was" if scorers.model is None else "T_out and T_in were"
    return Reference(found, f"{what} measured on {where}. {judge}.", measured)


def _transformer_reference(model: TransformerModel, path: str, how: Measuring) -> Reference:
    """Measured once and then cached: a large model takes minutes for it on two cores."""
    pairs, judge = measured_pairs(path), model.judge or model
    key = f"{model.fingerprint}/{model.judge.fingerprint if model.judge else ''}/{pairs_fingerprint(pairs)}"
    cached = cache_folder() / "thresholds" / f"{hashlib.sha256(key.encode()).hexdigest()}.json"
    known, measured = Thresholds(math.nan), 0
    with suppress(OSError, ValueError, TypeError, KeyError):
        stored = json.loads(cached.read_text(encoding="utf-8"))
        known, measured = Thresholds(stored["out"], stored["into"]), stored["pairs"]
    in_time = measured if how.seconds < math.inf else 0  # within a limit any sample will do
    if measured != (how.most or in_time or len(pairs)):
        log_probs = judge.text_log_prob if judge.scores_text else None
        known, measured = _measure_texts(model, log_probs, pairs, how)
        with suppress(OSError):
            cached.parent.mkdir(parents=True, exist_ok=True)
            write_whole(cached, json.dumps({**known._asdict(), "pairs": measured}) + "\n")
    source = f"T_out and T_in were measured on {describe_pairs(path, pairs, measured)}."
    return Reference(known, source, measured)


def _measure_texts(
    model: LogprobModel | None, judge: LogProbs | None, pairs: Pairs, how: Measuring
) -> tuple[Thresholds, int]:
    """Averages over the replies, by the model, and over the inputs, by the judge; and how many pairs were
    measured."""

    def replies(batch: Pairs) -> list[list[float]]:
        asked = [(Turn("user", text),) for text, _ in batch]
        return model.log_prob(asked, [reply for _, reply in batch]) if model else []

    def inputs(batch: Pairs) -> list[list[float]]:
        return judge([text for text, _ in batch]) if judge else []

    (out, into), measured = mean_log_probs([replies, inputs], pairs, how)
    return Thresholds(math.nan if out is None else out, into), measured


def mean_log_probs(
    measures: Sequence[Callable[[Pairs], list[list[float]]]], pairs: Pairs, how: Measuring
) -> tuple[list[float | None], int]:
    """The average over all tokens by each measure, and how many pairs were measured: at least one batch."""
    pairs = pairs[: how.most or None]
    began, told, done = time.monotonic(), -math.inf, 0
    found: list[list[list[float]]] = [[] for _ in measures]
    while done < len(pairs) and (not done or time.monotonic() - began < how.seconds):
        if time.monotonic() - told > TELL_S:
            told = time.monotonic()
            how.tell(f"Measuring how likely usual text is (T_out, T_in): {done} of {len(pairs)} pairs")
        batch = pairs[done : done + SLOW_BATCH]
        for rows, measure in zip(found, measures, strict=True):
            rows += measure(batch)
        done += len(batch)
    return list(map(_average, found)), done


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
