"""The two models that are compared, and inputs that neither was trained on.

A RUN is the name of a model, the folder of an audit (its model), or the folder of a hardening. One hardening
alone compares the model before with the model after it; beside a second RUN it is the model after.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backtalk.data.textfiles import read_texts
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
    """A model and its corpus; a hardening's facts have these keys."""

    model: str
    """Name or folder."""
    fingerprint: str
    """Fingerprint of the model in that run; empty if only a name was given."""
    seed: int
    data: str = ""
    """The file of pairs that the hardening used; empty for the model's own corpus."""
    format: str = "auto"

    def load(self, device: str) -> TextModel:
        model = load_model(self.model, device)
        if self.fingerprint and model.fingerprint != self.fingerprint:
            raise InputError(f"{self.model} has changed since that run; name the model itself to judge it")
        return model


def find_models(runs: Sequence[str]) -> tuple[RatedModel, RatedModel]:
    if len(runs) == 2:
        return _find(runs[0]), _find(runs[1])
    parent = _parent(runs[0]) if len(runs) == 1 else None
    if parent is None:
        raise InputError(f"name two runs or models, or the folder of one hardening, not {' '.join(runs)}")
    return parent, _hardened(runs[0], parent)


def replies(model: TextModel, inputs: Sequence[str]) -> list[str]:
    """The reply to each input, by greedy decoding if the model supports it."""
    said: list[str] = []
    for start in range(0, len(inputs), BATCH):
        said += model.reply([(Turn("user", text),) for text in inputs[start : start + BATCH]])
    # A Python function may return a lone surrogate, which can't be written to a file.
    return [text.encode("utf-8", "replace").decode("utf-8") for text in said]


def held_out_inputs(rated: RatedModel, model: TextModel) -> tuple[list[str], str]:
    """Inputs of the model's corpus that it was not trained on, and a phrase that names their source."""
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
    for number, row in read_texts(path, sentence):
        text = row.get("input", row.get("text")) if isinstance(row, dict) else row
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{path}, line {number}: {sentence}")
        found.append(" ".join(text.split()))
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
    """The model that was hardened; None if the run is not a hardening."""
    try:
        return read_stored(RatedModel, Path(run) / FACTS)
    except FileNotFoundError:
        return None


def _hardened(run: str, parent: RatedModel) -> RatedModel:
    folder = Path(run) / "model"
    if not (folder / "card.json").is_file():
        raise InputError(f"the hardening in {run} is not finished; run its command again")
    return replace(parent, model=str(folder), fingerprint="")
