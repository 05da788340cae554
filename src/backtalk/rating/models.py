"""The two models that are compared, and inputs that neither was trained on.

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
from backtalk.models.lstm.model import LocalModel
from backtalk.protocols import TextModel
from backtalk.registry import find_model, load_model
from backtalk.store import Run
from backtalk.store.typed import read_stored
from backtalk.training.pairs import held_out_texts
from backtalk.types import Turn

BATCH = 256


@dataclass(frozen=True)
class RatedModel:
    """A model as a hardening's facts name it."""

    model: str
    """Its name or folder."""
    fingerprint: str
    """Of the model in that run; empty if only a name was given."""
    seed: int
    data: str = ""
    """The pairs that a hardening was given; empty for the model's own corpus."""
    format: str = "auto"

    def load(self, device: str) -> TextModel:
        model = load_model(self.model, device)
        if self.fingerprint and model.fingerprint != self.fingerprint:
            raise InputError(f"{self.model} has changed since that run; name the model itself to judge it")
        return model


def find_models(runs: Sequence[str]) -> tuple[RatedModel, RatedModel]:
    if len(runs) == 1:
        parent = _parent(runs[0])
        if parent is None:
            raise InputError(
                f"{runs[0]} is not the folder of a hardening; name two runs or models to compare"
            )
        return parent, _hardened(runs[0], parent)
    if len(runs) != 2:
        raise InputError("name two runs or models, or the folder of one hardening")
    return _find(runs[0]), _find(runs[1])


def replies(model: TextModel, inputs: Sequence[str]) -> list[str]:
    """The reply to each input, greedy if the model can."""
    said: list[str] = []
    for start in range(0, len(inputs), BATCH):
        said += model.reply([(Turn("user", text),) for text in inputs[start : start + BATCH]])
    # A lone surrogate, which a Python function may return, can't be written to a file.
    return [text.encode("utf-8", "replace").decode("utf-8") for text in said]


def held_out_inputs(rated: RatedModel, model: TextModel) -> tuple[list[str], str]:
    """Inputs of the corpus that the model was not trained on, and where they are from."""
    mend = "give --inputs FILE, one input a line"
    if not isinstance(model, LocalModel):
        raise InputError(f"{rated.model} has no corpus of its own; {mend}")
    data = rated.data or str(model.card.get("spec", {}).get("data", ""))
    if not data or (data != "chitchat" and not Path(data).exists()):
        raise InputError(f"the corpus of {rated.model} ({data or 'unknown'}) is not here; {mend}")
    texts = held_out_texts(rated.data, rated.format, model, rated.seed)
    return [text for text, _ in texts], f"held-out pairs of {data}"


def read_inputs(path: Path) -> list[str]:
    """One input a line, or JSONL objects with "input" or "text"."""
    sentence = 'this is no input; write an object such as {"input": "..."}'
    found = []
    for number, line in read_lines(path):
        text: object = line
        if path.suffix in (".jsonl", ".ndjson") and line.strip():
            row = parse_json(line, f"{path}, line {number}", sentence)
            text = row.get("input", row.get("text")) if isinstance(row, dict) else None
            if not isinstance(text, str) or not text.strip():
                raise InputError(f"{path}, line {number}: {sentence}")
        found.append(" ".join(str(text).split()))
    found = [text for text in found if text]
    if not found:
        raise InputError(f"{path} holds no input; write one a line")
    return found


def _find(run: str) -> RatedModel:
    parent = _parent(run)
    if parent is not None:
        return _hardened(run, parent)
    if Run.exists(Path(run)):
        with Run.open(Path(run)) as audited:
            return RatedModel(audited.model(), audited.facts["fingerprint"], 1)
    find_model(run)
    return RatedModel(run, "", 1)


def _parent(run: str) -> RatedModel | None:
    """The parent of a hardening; None if the folder is none."""
    try:
        return read_stored(RatedModel, Path(run) / FACTS)
    except FileNotFoundError:
        return None


def _hardened(run: str, parent: RatedModel) -> RatedModel:
    folder = Path(run) / "model"
    if not (folder / "card.json").is_file():
        raise InputError(f"the hardening in {run} is not finished; run its command again")
    return replace(parent, model=str(folder), fingerprint="")
