"""How well the tails of Jones et al. 2025 forecast, on the embedded model: from the chances of a sentence
after some inputs, the largest chance among a hundred times as many, and the share of inputs above the chance
that one input in 10,000 exceeds.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from backtalk.data.targets import load_mal
from backtalk.models.lstm.model import LocalModel
from backtalk.models.prefix_tree import Served
from backtalk.registry import load_model
from backtalk.risk.bounds import Array
from backtalk.risk.inputs import SampledInputs
from backtalk.risk.language import LSTMInputs
from backtalk.risk.listed import listed
from backtalk.risk.tails import Tail, fit_gumbel, fit_log_normal
from reproduction.page import Result

FITS = {"gumbel": fit_gumbel, "log-normal": fit_log_normal}
BLOCK = 2_000
LN10 = log(10)


def read_chances(count: int, targets: int, seed: int, device: str) -> tuple[list[str], NDArray[np.float32]]:
    """The categories of sentences, and (inputs, sentences) log P of each after inputs that the model's own
    language model writes."""
    model = load_model("chitchat", device)
    assert isinstance(model, LocalModel)
    assert model.language_model is not None
    inputs = SampledInputs(LSTMInputs(model, model.language_model, "its own"), seed)
    every = load_mal()
    counted = listed(model, every[:: max(1, len(every) // targets)] if targets else every, Served())
    parts = []
    for start in range(0, count, BLOCK):
        read = counted.read(inputs.draw(start, min(start + BLOCK, count)))
        assert read.by_target is not None
        parts.append(np.log(read.by_target).astype(np.float32))
    return [target.category for target in counted.targets], np.concatenate(parts)


def forecast_errors(log_p: Array, seen: int, ahead: int, rare: float) -> Result:
    """log_p (inputs,) of one sentence, forecast from `seen` neighbours at ten places. The truth is the
    largest of the `ahead` neighbours around them, and the chance that a share `rare` of all inputs exceeds.
    Errors are log10(forecast / truth)."""
    edge = float(np.quantile(log_p, 1 - rare))
    errors: Result = {name: {"largest": [], "share": []} for name in FITS}
    for start in range(0, len(log_p) - ahead + 1, ahead):
        truth = float(log_p[start : start + ahead].max())
        for place in range(start, start + ahead, max(seen, ahead // 10)):
            for name, fit in FITS.items():
                tail: Tail | None = fit(log_p[place : place + seen])
                if tail is not None:
                    errors[name]["largest"].append((tail.largest(ahead) - truth) / LN10)
                    share = max(tail.share_above(edge), 1e-300)
                    errors[name]["share"].append((log(share) - log(rare)) / LN10)
    return errors


def summary(errors: list[float]) -> Result:
    values = np.array(errors)
    return {
        "n": len(values),
        "error": float(np.abs(values).mean()),
        "median": float(np.median(values)),
        "within_10": float((np.abs(values) <= 1).mean()),
        "too_low": float((values < 0).mean()),
    }


def forecast_all(chances: NDArray[np.float32], seen: int, ahead: int, rare: float) -> Result:
    """The errors of all sentences together, and a few points for a figure."""
    pooled: Result = {name: {"largest": [], "share": []} for name in FITS}
    for column in range(chances.shape[1]):
        errors = forecast_errors(chances[:, column].astype(np.float64), seen, ahead, rare)
        for name, kinds in errors.items():
            for kind, values in kinds.items():
                pooled[name][kind] += values
    return {name: {kind: summary(values) for kind, values in kinds.items()} for name, kinds in pooled.items()}
