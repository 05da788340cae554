"""T_out and T_in: what "likely" means for a model, taken from its card or measured on reference pairs.

A model that is read by text alone is measured by its own log-probabilities, its inputs by whichever language
model judges them.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from backtalk.data.corpora import reference_pairs
from backtalk.errors import InputError
from backtalk.models.lstm.model import LocalModel
from backtalk.models.transformer.cache import cache_folder
from backtalk.models.transformer.model import TransformerModel
from backtalk.output_file import write_whole
from backtalk.protocols import LogprobModel, TextModel, WeightsModel
from backtalk.registry import is_transformer, load_model
from backtalk.scorers.likelihood import score_triggers
from backtalk.searches.ast.defender import Defender
from backtalk.searches.reverse.objective import Scorers
from backtalk.searches.reverse.searches import ReplySearch
from backtalk.specs.model import ModelOptions
from backtalk.types import Thresholds, Turn

BATCH = 256
MOST_PAIRS = 5000
SHIPPED_PAIRS = 200
"""Of the shipped pairs, where a model is read by text: a large one takes a minute for them on two cores."""


class Reference(NamedTuple):
    thresholds: Thresholds
    source: str
    """One sentence for the report."""


def find_reference(model: WeightsModel, path: str) -> Reference:
    """From `path`, else from the model's card, else from the shipped chitchat pairs."""
    if isinstance(model, TransformerModel):
        return _find_transformers(model, path)
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


def with_judge(model: TextModel, name: str, device: str) -> TextModel:
    """A Hugging Face model whose triggers another one finds likely or not: `--language-model`."""
    if not name or not isinstance(model, TransformerModel):
        return model
    if not is_transformer(name):
        raise InputError(
            f"--language-model {name} can't be searched with {model.name}; name a Hugging Face model"
        )
    judge = load_model(name, device, ModelOptions(dtype="float32"))
    assert isinstance(judge, TransformerModel)
    return model.judged_by(judge)


def _find_transformers(model: TransformerModel, path: str) -> Reference:
    """Measured by the model's own log-probabilities: nothing is written, for that takes longest. What was
    measured once is kept, for a large model takes a minute for it on two cores."""
    pairs = asked_pairs(path)
    where = path or f"the first {len(pairs)} of the shipped chitchat test pairs"
    source = f"T_out and T_in were measured on {where}."
    kept = cache_folder() / "thresholds" / f"{_mark(model, pairs)}.json"
    if (known := _read_kept(kept)) is not None:
        return Reference(known, source)
    judge = model.judge or model
    found = measure_asked(model, judge.text_log_prob if judge.scores_text else _nothing, pairs)
    with suppress(OSError):
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_whole(kept, json.dumps(found._asdict()) + "\n")
    return Reference(found, source)


def _nothing(texts: Sequence[str]) -> list[list[float]]:
    return [[] for _ in texts]


def _mark(model: TransformerModel, pairs: Sequence[tuple[str, str]]) -> str:
    judge = "" if model.judge is None else model.judge.fingerprint
    content = f"{model.fingerprint}/{judge}/{pairs_fingerprint(pairs)}"
    return hashlib.sha256(content.encode()).hexdigest()


def _read_kept(path: Path) -> Thresholds | None:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        into = known["into"]
        return Thresholds(float(known["out"]), None if into is None else float(into))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def bounded(reference: Reference, max_ppl: float) -> Reference:
    """With the T_in that a bound on a trigger's perplexity comes to; 0 sets none."""
    if not max_ppl:
        return reference
    if max_ppl <= 1:
        raise InputError("--max-ppl should be above 1: no text has a lower perplexity")
    if reference.thresholds.into is None:
        return reference
    thresholds = reference.thresholds._replace(into=-math.log(max_ppl))
    return Reference(thresholds, f"{reference.source} --max-ppl {max_ppl:g} sets T_in.")


def asked_pairs(path: str) -> list[tuple[str, str]]:
    """The pairs that a model read by text is measured on."""
    pairs = reference_pairs(path)
    return pairs[:MOST_PAIRS] if path else pairs[:SHIPPED_PAIRS]


def pairs_fingerprint(pairs: Sequence[tuple[str, str]]) -> str:
    return hashlib.sha256(repr(list(pairs)).encode("utf-8", "replace")).hexdigest()


def measure_asked(
    model: LogprobModel, judge: Callable[[Sequence[str]], list[list[float]]], pairs: Sequence[tuple[str, str]]
) -> Thresholds:
    """Averages over all tokens of the replies, by the model, and of the inputs, by the judge."""
    out = model.log_prob([(Turn("user", text),) for text, _ in pairs], [reply for _, reply in pairs])
    return Thresholds(_average(out), average_input(judge, pairs))


def average_input(
    judge: Callable[[Sequence[str]], list[list[float]]], pairs: Sequence[tuple[str, str]]
) -> float | None:
    into = judge([text for text, _ in pairs])
    return _average(into) if any(into) else None


def _average(rows: Sequence[Sequence[float]]) -> float:
    tokens = [token for row in rows for token in row]
    return sum(tokens) / len(tokens)


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


PLAYED_PAIRS = 64
"""Of the shipped pairs, for T_in of conversations: half a minute of a small model on one core."""


def played_pairs(path: str) -> list[tuple[str, str]]:
    """The pairs that T_in of conversations is measured on."""
    pairs = asked_pairs(path)
    return pairs if path else pairs[:PLAYED_PAIRS]


def likely_prompt(defender: Defender, pairs: Sequence[tuple[str, str]]) -> float:
    """T_in of conversations: the average log-probability of a token of the next utterance."""
    rows = defender.token_log_probs([(text,) for text, _ in pairs], [f" {reply}" for _, reply in pairs])
    return math.fsum(value for row in rows for value in row) / max(1, sum(map(len, rows)))


def measure_reference(model: TextModel, scorers: Scorers, search: ReplySearch, path: str) -> Reference:
    """T_out and T_in. Of a large model this takes a while, so it is done once a run."""
    inputs = scorers.inputs
    if isinstance(model, LocalModel) and not (path or search.language_model) and scorers.model:
        return find_reference(model, "")
    if scorers.model is None and not path and inputs.t_in is not None:
        thresholds = Thresholds(math.nan, inputs.t_in)
        return Reference(thresholds, f"Likely inputs: by {inputs.source}; T_in is from its card.")
    pairs = asked_pairs(path)
    where = path or f"the first {len(pairs)} of the shipped chitchat test pairs"
    where += "" if path else "; --reference takes pairs of your own"
    if scorers.model is None:
        thresholds = Thresholds(math.nan, average_input(inputs.log_probs, pairs))
        return Reference(thresholds, f"Likely inputs: by {inputs.source}; T_in was measured on {where}.")
    thresholds = measure_asked(scorers.model, inputs.log_probs, pairs)
    return Reference(
        thresholds, f"T_out and T_in were measured on {where}. Likely inputs: by {inputs.source}."
    )
