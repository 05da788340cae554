"""What the training of a run's adversary came to: a small file beside it, for the report."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from backtalk.errors import InputError
from backtalk.store.folder import ADVERSARY, write_whole
from backtalk.store.typed import read_plain

RECORD = "record.json"


@dataclass
class AdversaryRecord:
    history: list[dict[str, float]] = field(default_factory=list)
    """Each measurement on the dev openings: its step, toxicity, log_ppl and so on."""
    best: int = -1
    """The place in it of the one that was kept; -1 where there is none."""
    seconds: float = 0.0
    pairs: int = 0
    """That were played."""


def read_adversary_record(run: Path) -> AdversaryRecord:
    """An empty one where there is none, or none that can be read: a folder may come from elsewhere."""
    try:
        values = read_plain(run / ADVERSARY / RECORD)
        return AdversaryRecord(
            [{str(name): float(value) for name, value in one.items()} for one in values["history"]],
            int(values["best"]),
            float(values["seconds"]),
            int(values["pairs"]),
        )
    except (InputError, OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return AdversaryRecord()


def write_adversary_record(run: Path, record: AdversaryRecord) -> None:
    (run / ADVERSARY).mkdir(mode=0o700, exist_ok=True)
    write_whole(run / ADVERSARY / RECORD, json.dumps(asdict(record)))
