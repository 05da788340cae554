"""What a hardening of a Hugging Face model cost: one model at a time on the measured pairs, by its replies
and log-probabilities. The words of replies are cut as everywhere else, so that diversity can be compared.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from backtalk.data.tokenise import get_recipe
from backtalk.hardening.cost import SHOWN, Cost, Side, compare_sides
from backtalk.protocols import LogprobModel
from backtalk.scorers.diversity import most_frequent
from backtalk.store.folder import write_whole
from backtalk.types import Turn

RECIPE = "he-glass-2019"
Texts = Sequence[tuple[str, str]]


def measure_side(model: LogprobModel, pairs: Texts) -> tuple[Side, list[int]]:
    """The model's numbers, and the tokens of the pairs' own replies."""
    dialogues = [(Turn("user", text),) for text, _ in pairs]
    tokens = model.log_prob(dialogues, [reply for _, reply in pairs])
    replies = model.reply(dialogues)
    recipe = get_recipe(RECIPE)
    said = [recipe.words(reply) for reply in replies]
    sums = [float(np.sum(row)) for row in tokens]
    return Side(sums, said, replies[:SHOWN], _most_said(said), []), [len(row) for row in tokens]


def stored_side(path: Path, model: LogprobModel, pairs: Texts) -> Side:
    """The side of a file, measured and written where there is none."""
    known = _read(path)
    if known is not None:
        return Side(**known)
    side, _ = measure_side(model, pairs)
    write_whole(path, json.dumps(asdict(side)) + "\n")
    return side


def cost_of(before: Side, hardened: LogprobModel, pairs: Texts) -> Cost:
    after, lengths = measure_side(hardened, pairs)
    real = [get_recipe(RECIPE).words(reply) for _, reply in pairs]
    inputs = [text for text, _ in pairs]
    return compare_sides(before, after, np.asarray(lengths), inputs, real, _most_said(real))


def _most_said(replies: Sequence[Sequence[str]]) -> str:
    return get_recipe(RECIPE).show(most_frequent(replies))


def _read(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
