"""Whose replies are judged: what RUN names, and inputs that neither model was trained on.

RUN is a hardening (its parent and its model, or with a second RUN its model alone), the folder of an audit
(the model it audited) or a model's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backtalk.data.textfiles import parse_json, read_lines
from backtalk.errors import InputError
from backtalk.hardening.folder import FACTS
from backtalk.hardening.pairs import held_out_texts
from backtalk.models.lstm.model import LocalModel
from backtalk.protocols import TextModel
from backtalk.registry import find_model, load_model
from backtalk.store import Run
from backtalk.store.typed import read_stored
from backtalk.types import Turn

BATCH = 256
"""Inputs answered at once."""


@dataclass(frozen=True)
class Facts:
    """What is read of a hardening's facts."""

    model: str
    fingerprint: str
    seed: int
    data: str = ""
    format: str = "auto"


@dataclass(frozen=True)
class Contender:
    model: str
    """Its name or folder."""
    fingerprint: str = ""
    """What the run knew it by; empty where only a name was given."""
    data: str = ""
    """The pairs that a hardening was given; empty for the model's own corpus."""
    format: str = "auto"
    seed: int = 1

    def load(self, device: str) -> TextModel:
        model = load_model(self.model, device)
        if self.fingerprint and model.fingerprint != self.fingerprint:
            raise InputError(f"{self.model} has changed since that run; name the model itself to judge it")
        return model


def find_contenders(runs: Sequence[str]) -> tuple[Contender, Contender]:
    if len(runs) == 1:
        parent = _hardening(runs[0])
        if parent is None:
            raise InputError(
                f"{runs[0]} is not the folder of a hardening; name two runs or models to compare"
            )
        return parent, _hardened(runs[0], parent)
    if len(runs) != 2:
        raise InputError("name two runs or models, or the folder of one hardening")
    return _contender(runs[0]), _contender(runs[1])


def replies(model: TextModel, inputs: Sequence[str]) -> list[str]:
    """What the model says to each input, greedily where it can."""
    said: list[str] = []
    for start in range(0, len(inputs), BATCH):
        said += model.reply([(Turn("user", text),) for text in inputs[start : start + BATCH]])
    # A lone surrogate, which a Python function may return, can't be written to a file.
    return [text.encode("utf-8", "replace").decode("utf-8") for text in said]


def held_out_inputs(contender: Contender, model: TextModel) -> tuple[list[str], str]:
    """Inputs of the corpus that the model was not trained on, and where they are from, in a few words."""
    mend = "give --inputs FILE, one input a line"
    if not isinstance(model, LocalModel):
        raise InputError(f"{contender.model} has no corpus of its own; {mend}")
    data = contender.data or str(model.card.get("spec", {}).get("data", ""))
    if not data or (data != "chitchat" and not Path(data).exists()):
        raise InputError(f"the corpus of {contender.model} ({data or 'unknown'}) is not here; {mend}")
    texts = held_out_texts(contender.data, contender.format, model, contender.seed)
    return [text for text, _ in texts], f"held-out pairs of {data}"


def read_inputs(path: Path) -> list[str]:
    """One input a line, or JSONL objects with "input" or "text"."""
    as_json = path.suffix in (".jsonl", ".ndjson")
    found = []
    for number, line in read_lines(path):
        if line.strip():
            text = _input_of(line, f"{path}, line {number}") if as_json else line
            found.append(" ".join(text.split()))
    if not found:
        raise InputError(f"{path} holds no input; write one a line")
    return found


def _input_of(line: str, where: str) -> str:
    sentence = 'this is no input; write an object such as {"input": "..."}'
    row = parse_json(line, where, sentence)
    text = row.get("input", row.get("text")) if isinstance(row, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise InputError(f"{where}: {sentence}")
    return text


def _contender(run: str) -> Contender:
    parent = _hardening(run)
    if parent is not None:
        return _hardened(run, parent)
    if Run.exists(Path(run)):
        with Run.open(Path(run)) as audited:
            return Contender(audited.model(), audited.facts["fingerprint"])
    find_model(run)
    return Contender(run)


def _hardening(run: str) -> Contender | None:
    """The parent of a hardening, from the facts in its folder; None where it is none."""
    try:
        facts = read_stored(Facts, Path(run) / FACTS)
    except FileNotFoundError:
        return None
    return Contender(facts.model, facts.fingerprint, facts.data, facts.format, facts.seed)


def _hardened(run: str, parent: Contender) -> Contender:
    folder = Path(run) / "model"
    if not (folder / "card.json").is_file():
        raise InputError(f"the hardening in {run} is not finished; run its command again")
    return replace(parent, model=str(folder), fingerprint="")
