"""What the training of a run's generator came to: a small file beside it, for going on and for the report."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from backtalk.store.folder import write_whole

RECORD = "record.json"


@dataclass
class TrainingRecord:
    unanswered: list[str] | None = None
    """The utterances without a usable reply; None while pairs are still being gathered."""
    pairs: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """By phase, of the session that ended it."""
    rewards: list[float] = field(default_factory=list)
    """Mean similarity of each REINFORCE update."""


def read_training(folder: Path) -> TrainingRecord:
    """An empty one where there is none, or none that can be read: a folder may come from elsewhere."""
    try:
        values = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        unanswered = values["unanswered"]
        return TrainingRecord(
            None if unanswered is None else [str(text) for text in unanswered],
            int(values["pairs"]),
            {str(phase): float(seconds) for phase, seconds in values["seconds"].items()},
            [float(reward) for reward in values["rewards"]],
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return TrainingRecord()


def write_training(folder: Path, record: TrainingRecord) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    write_whole(folder / RECORD, json.dumps(asdict(record)))
