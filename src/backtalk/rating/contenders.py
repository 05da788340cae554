"""Whose replies are judged: what RUN names, and inputs that neither model was trained on.

RUN is a hardening (its parent and its model, or with a second RUN its model alone), the folder of an audit
(the model it audited) or a model's name.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backtalk.data.textfiles import parse_json, read_lines
from backtalk.errors import InputError
from backtalk.hardening.folder import FACTS
from backtalk.hardening.pairs import held_out_texts
from backtalk.models.local import LocalModel
from backtalk.protocols import TextModel
from backtalk.registry import find_model, load_model, runs_code
from backtalk.store import Run
from backtalk.types import Turn

BATCH = 256
"""Inputs answered at once."""


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
        facts = _hardening(runs[0])
        if facts is None:
            raise InputError(
                f"{runs[0]} is not the folder of a hardening; name two runs or models to compare"
            )
        return _parent(facts), _hardened(runs[0], facts)
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
    facts = _hardening(run)
    if facts is not None:
        return _hardened(run, facts)
    if Run.exists(Path(run)):
        with Run.open(Path(run)) as audited:
            name, fingerprint = str(audited.spec["model"]), str(audited.facts["fingerprint"])
        if runs_code(name):
            raise InputError(f"{run} names a Python function; give its py: name itself")
        return Contender(name, fingerprint)
    find_model(run)
    return Contender(run)


def _hardening(run: str) -> dict[str, Any] | None:
    """The facts of a hardening's folder; None where it is none."""
    path = Path(run) / FACTS
    if not path.is_file():
        return None
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if runs_code(str(facts["model"])) or not isinstance(facts["seed"], int):
            raise ValueError("no hardening of ours")
        return facts
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f"{path} is damaged; name the two models instead") from None


def _parent(facts: dict[str, Any]) -> Contender:
    return Contender(
        str(facts["model"]),
        str(facts["fingerprint"]),
        str(facts.get("data", "")),
        str(facts.get("format", "auto")),
        int(facts["seed"]),
    )


def _hardened(run: str, facts: dict[str, Any]) -> Contender:
    folder = Path(run) / "model"
    if not (folder / "card.json").is_file():
        raise InputError(f"the hardening in {run} is not finished; run its command again")
    parent = _parent(facts)
    return Contender(str(folder), "", parent.data, parent.format, parent.seed)
