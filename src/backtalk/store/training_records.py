"""The record of a training inside a run: record.json beside the trained weights, for resuming and reports."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from backtalk.errors import InputError
from backtalk.output_file import write_whole
from backtalk.store.typed import read_stored

RECORD = "record.json"


@dataclass
class TrainingRecord:
    """Of a generator (reverse)."""

    unanswered: list[str] | None = None
    """Utterances without a usable reply; None while pairs are still being gathered."""
    pairs: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase, of the session that ended it."""
    rewards: list[float] = field(default_factory=list)
    """Mean similarity of each REINFORCE update."""


@dataclass
class AdversaryRecord:
    """Of an adversary (ast)."""

    history: list[dict[str, float]] = field(default_factory=list)
    """Each measurement on the dev openings: its step, toxicity, log_ppl and so on."""
    best: int = -1
    """Index of the best measurement, whose weights were kept; -1 without one."""
    seconds: float = 0.0
    pairs: int = 0
    """Pairs of conversations that were played."""


Kind = TypeVar("Kind", TrainingRecord, AdversaryRecord)


def read_training(kind: type[Kind], folder: Path) -> Kind:
    """The record in a folder; an empty one if it is missing or can't be read."""
    try:
        return read_stored(kind, folder / RECORD)
    except (InputError, OSError):
        return kind()


def write_training(folder: Path, record: TrainingRecord | AdversaryRecord) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    write_whole(folder / RECORD, json.dumps(asdict(record)))
