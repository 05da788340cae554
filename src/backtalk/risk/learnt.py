"""The proposals of a run: learnt once from a pilot, kept in its folder, and read again when it is resumed or
verified."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import safetensors.torch
from safetensors import SafetensorError

from backtalk.errors import InputError
from backtalk.output_file import write_whole
from backtalk.risk.inputs import ALPHA
from backtalk.risk.language import LSTMInputs
from backtalk.risk.proposals import FEWEST, LEVELS, MOST, SHARE, Pilot, Read, learn
from backtalk.risk.tuning import tuned
from backtalk.store import Run
from backtalk.store.folder import PROPOSAL, damaged, replaced_folder
from backtalk.store.records import RECORD, as_json
from backtalk.store.typed import read_stored

MEND = "make room, and run the same command again"


@dataclass(frozen=True)
class Learnt:
    """The record of a pilot."""

    names: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def limit(self) -> float:
        """The largest possible draw."""
        return 1 / ALPHA if self.names else 1.0


def read_learnt(folder: Path) -> Learnt:
    """The record in a run; an empty one if it has no pilot."""
    try:
        return read_stored(Learnt, folder / PROPOSAL / RECORD)
    except FileNotFoundError:
        return Learnt()


def proposals_of(
    folder: Path,
    p: LSTMInputs,
    read: Read,
    seed: int,
    planned: int,
    triggers: Sequence[str],
    report: Callable[[str], object],
    given: list[LSTMInputs] | None = None,
) -> list[LSTMInputs]:
    """Those that the run keeps; learnt and stored first if it has none."""
    if (folder / PROPOSAL / RECORD).is_file():
        return [_load(folder, p, place, name) for place, name in enumerate(read_learnt(folder).names)]
    begun, notes = time.perf_counter(), list[str]()
    if given is not None:
        _store(folder, given, Learnt([one.name for one in given], ["the proposals of another estimate"]))
        return given

    def told(line: str) -> None:
        notes.append(line)
        report(line)

    size = int(min(max(SHARE * planned / LEVELS, FEWEST), MOST))
    start = _from_triggers(p, triggers, seed) if triggers else None
    found = learn(Pilot(p, read, seed, size), start, told)
    _store(folder, found, Learnt([one.name for one in found], notes, time.perf_counter() - begun))
    return found


def _store(folder: Path, found: Sequence[LSTMInputs], record: Learnt) -> None:
    with replaced_folder(folder / PROPOSAL, MEND) as new:
        for place, one in enumerate(found):
            arrays = {name: part.cpu().contiguous() for name, part in one.network.state_dict().items()}
            safetensors.torch.save_file(arrays, new / f"{place}.safetensors")
        write_whole(new / RECORD, as_json(asdict(record)))


def _load(folder: Path, p: LSTMInputs, place: int, name: str) -> LSTMInputs:
    network = deepcopy(p.network)
    try:
        arrays = safetensors.torch.load_file(folder / PROPOSAL / f"{place}.safetensors")
        network.load_state_dict(arrays)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise damaged(folder, error) from None
    return replace(p, network=network, name=name)


def kept_by(run: str, p: LSTMInputs) -> list[LSTMInputs]:
    """The proposals of another estimate over the same inputs, so that both have common draws."""
    folder = Path(run)
    with Run.open(folder, verb="risk") as other:
        if other.facts["depends_on"]["inputs"] != p.fingerprint:
            raise InputError(f"--proposal {run} is of other inputs; use one --input-model for both")
    return [_load(folder, p, place, name) for place, name in enumerate(read_learnt(folder).names)]


def triggers_of(run: str) -> list[str]:
    """The inputs that an audit found, to begin a pilot with."""
    with Run.open(Path(run)) as audit:
        texts = [one.turns[-1].text for one in audit.each_finding() if one.status == "found" and one.turns]
    if not texts:
        raise InputError(f"--proposal {run}: the audit found no trigger; use --proposal auto")
    return list(dict.fromkeys(texts))


def _from_triggers(p: LSTMInputs, triggers: Sequence[str], seed: int) -> LSTMInputs:
    """The language model tuned on the triggers, all alike."""
    for text in triggers:
        if unknown := p.owner.unknown_words(text):
            why = f"a trigger of --proposal has {unknown[0]!r}, which {p.owner.name} does not know"
            raise InputError(f"{why}; proposals and inputs need one vocabulary")
    rows = [row for row in map(p.owner.encode_input, triggers) if 0 < len(row) <= p.width]
    if not rows:
        raise InputError(f"no trigger of --proposal has at most {p.width} words, the most of an input")
    ids = p.owner.pad_rows(rows, p.width)
    return tuned(p, ids, np.ones(len(ids)), "triggers", seed)
