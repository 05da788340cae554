"""A quick estimate of an audit's sentences over its reference inputs, for the third line of its verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

import numpy as np

from backtalk.deadline import Late, late_after, time_limit
from backtalk.errors import InputError, OutOfTime
from backtalk.hits import compared_words
from backtalk.models.prefix_tree import Served
from backtalk.output_file import write_whole
from backtalk.protocols import TextModel
from backtalk.report.traffic import Traffic
from backtalk.risk.estimate import bounds_of
from backtalk.risk.inputs import Batch
from backtalk.risk.language import Array
from backtalk.risk.listed import ReadsTrees, listed
from backtalk.store import Run
from backtalk.store.answers import StoredAnswers
from backtalk.store.folder import TRAFFIC
from backtalk.types import Target

TURNS = 200  # inputs, at most
MOST_S = 20.0
STEP = 20  # inputs that are read between two looks at the clock
PER = 1e6


def measure_traffic(run: Run, model: TextModel, inputs: Sequence[str], late: Late) -> None:
    """Stores the estimate in a finished audit of sentences; nothing where it can't be made."""
    targets = [case for case in run.cases if isinstance(case, Target)]
    if not targets:
        return
    with suppress(InputError):  # such as targets that the model can't say
        found = _by_chance(model, targets, inputs, late) if isinstance(model, ReadsTrees) else None
        found = found or _by_answers(run, targets)
        if found is not None:
            write_whole(run.folder / TRAFFIC, json.dumps(asdict(found)))


def _by_chance(
    model: TextModel, targets: Sequence[Target], inputs: Sequence[str], late: Late
) -> Traffic | None:
    counted, chances = listed(model, targets, Served()), list[Array]()
    texts = [text for text in inputs if text.strip()][:TURNS]
    slow = late_after(time.monotonic() + MOST_S, "its share of the time")
    with suppress(OutOfTime), time_limit(lambda seconds: late(seconds) or slow(seconds)):
        for start in range(0, len(texts), STEP):
            own = texts[start : start + STEP]
            none = np.zeros(len(own))
            chances.append(counted.read(Batch(own, none, none.astype(np.uint8))).chance.sum(1))
    return _traffic(np.concatenate(chances)) if chances else None


def _by_answers(run: Run, targets: Sequence[Target]) -> Traffic | None:
    """By the replies to utterances that the audit asked anyway."""
    replies = [reply for _, reply in StoredAnswers(run).pairs("pairs")] if run.asks else []
    bad = {compared_words(target.text) for target in targets}
    said = np.array([float(compared_words(reply) in bad) for reply in replies])
    return _traffic(said, int(said.sum())) if len(said) else None


def _traffic(chances: Array, said: int | None = None) -> Traffic:
    risk = bounds_of(chances, 1.0, PER)
    return Traffic(len(chances), risk.estimate, risk.upper, risk.normal95, said)
