"""`backtalk rate`: which of two models people prefer, judged without knowing which is which.

Step 1 writes blind pairs of two models' replies to a ratings folder. Step 2 takes answers of any number of
raters, in the app (`backtalk serve`). Step 3 counts the result. Only step 1 needs the models.

A RUN is the name of a model, the folder of an audit (its model), or the folder of a hardening. One hardening
alone compares the model before with the model after it; beside a second RUN it is the model after. Of one
audit alone people label replies as bad or fine.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from backtalk.data.textfiles import read_texts
from backtalk.errors import InputError
from backtalk.hardening.folder import FACTS
from backtalk.models.folder import sha256
from backtalk.models.lstm.model import LocalModel
from backtalk.output_file import write_whole
from backtalk.protocols import TextModel
from backtalk.rating import folder as files
from backtalk.rating.labels import draw_replies, print_labels, store_labels, tally_labels
from backtalk.rating.result import print_result, tally
from backtalk.registry import find_model, load_model
from backtalk.specs.audit import RateSpec
from backtalk.store import Run
from backtalk.store.database import safe_name
from backtalk.store.folder import writing
from backtalk.store.typed import read_stored
from backtalk.terminal import make_console
from backtalk.training.pairs import held_out_texts
from backtalk.types import Turn
from backtalk.wording import count

ROOT = Path("ratings")
FROM_A_CORPUS = 100  # inputs drawn from a corpus without --pairs
BATCH = 256


@dataclass(frozen=True)
class RatedModel:
    """A model and its corpus; a hardening's facts have these keys."""

    model: str  # name or folder
    fingerprint: str  # fingerprint of the model in that run; empty if only a name was given
    seed: int
    data: str = ""  # the file of pairs that the hardening used; empty for the model's own corpus
    format: str = "auto"


def rate(runs: Sequence[str], spec: RateSpec, result: bool) -> None:
    """Makes the pairs or, with `result`, counts the answers."""
    console = make_console()
    ratings = _find_or_make(runs, spec, not result, console)
    with files.claimed(ratings.folder):
        if result:
            key, labels = ratings.key, isinstance(ratings.key, files.LabelKey)
            counted, shown = (tally_labels, print_labels) if labels else (tally, print_result)
            record, path = counted(ratings, files.own_answers(ratings)), ratings.folder / files.RESULT
            with writing(ratings.folder, "make room"):
                write_whole(path, json.dumps(record, indent=2) + "\n")
            shown(record, console)
            if isinstance(key, files.LabelKey) and record["estimate"]:
                console.print(store_labels(record, Path(key.run)))
            console.print(f"Result: {path}")
        else:
            console.print(f"Judge them: backtalk serve --ratings {ratings.folder}")
            console.print(f"The result: backtalk rate {ratings.folder} --result")


def _find_or_make(runs: Sequence[str], spec: RateSpec, make: bool, console: Console) -> files.Ratings:
    """The ratings in a folder, whose settings must match, or, with `make`, new ones."""
    if len(runs) == 1 and files.is_ratings(Path(runs[0])):
        return files.read_ratings(Path(runs[0]))
    names = (safe_name(Path(run).name) for run in runs)
    folder = Path(spec.out or ROOT / "-".join(names))
    settings = _settings(runs, spec)
    if not files.is_ratings(folder):
        if not make:
            raise InputError(f"there are no ratings in {folder} yet; leave out --result to make them")
        return _make(runs, spec, folder, settings, console)
    ratings = files.read_ratings(folder)
    known = ratings.key.settings if ratings.key else {}
    changed = [key for key in settings if _plain(settings[key]) != _plain(known.get(key))]
    if "runs" in changed or (make and changed):
        why = f"{folder} holds ratings with other settings ({', '.join(changed)})"
        raise InputError(f"{why}; name another folder with --out")
    return ratings


def _plain(setting: Any) -> Any:
    """Run names without a slash at the end."""
    return [str(Path(run)) for run in setting] if isinstance(setting, list) else setting


def _settings(runs: Sequence[str], spec: RateSpec) -> dict[str, Any]:
    digest = sha256(Path(spec.inputs)) if spec.inputs and Path(spec.inputs).is_file() else ""
    numbers = {name: getattr(spec, name) for name in ("pairs", "identical_ties", "seed")}
    return {"runs": list(runs), "inputs": digest or spec.inputs, **numbers}


def _make(
    runs: Sequence[str], spec: RateSpec, folder: Path, settings: dict[str, Any], console: Console
) -> files.Ratings:
    files.check_folder(folder)
    if len(runs) == 1 and Run.exists(Path(runs[0])):
        return _make_labels(Path(runs[0]), spec, folder, settings, console)
    found = [_find(run) for run in runs]
    rated = found[0] if len(found) == 1 else [one[-1] for one in found]
    if len(rated) != 2:
        raise InputError(f"name two runs or models, or the folder of one hardening, not {' '.join(runs)}")
    models = [load_model(one.model, spec.device) for one in rated]
    names = []
    for one, model in zip(rated, models, strict=True):
        names.append({"name": one.model, "fingerprint": model.fingerprint})
        if one.fingerprint and model.fingerprint != one.fingerprint:
            raise InputError(f"{one.model} has changed since that run; name the model itself to judge it")
    if spec.inputs:
        inputs, source = read_inputs(Path(spec.inputs)), spec.inputs
        inputs = files.draw(inputs, spec.pairs, spec.seed) if spec.pairs else list(dict.fromkeys(inputs))
    else:
        inputs, source = _held_out_inputs(rated[0], models[0])
        inputs = files.draw(inputs, spec.pairs or FROM_A_CORPUS, spec.seed)
    first, second = (_replies(model, inputs) for model in models)
    pairs, swapped, identical = files.blind(inputs, first, second, spec.seed, spec.identical_ties)
    key = files.Key(names[0], names[1], source, settings, swapped, identical)
    with files.claimed(folder):
        ratings = files.write_ratings(folder, pairs, key)
    asked = f"{count(len(inputs), 'input')} ({source}): {count(len(ratings.pairs), 'pair')} to judge"
    console.print(f"{asked}, {len(identical)} with identical replies. Folder: {folder}")
    return ratings


def _make_labels(
    source: Path, spec: RateSpec, folder: Path, settings: dict[str, Any], console: Console
) -> files.Ratings:
    if spec.inputs:
        raise InputError("--inputs is for two models; of one audit its own replies are labelled")
    with Run.open(source) as run:
        pairs, key = draw_replies(run, spec.pairs or FROM_A_CORPUS, spec.seed)
    with files.claimed(folder):
        ratings = files.write_ratings(folder, pairs, replace(key, settings=settings))
    of = f"{len(key.flagged)} of {key.rated_bad} that {key.scorer} rates bad and "
    of += f"{len(pairs) - len(key.flagged)} of {key.rated_fine} others"
    console.print(f"{count(len(pairs), 'reply')} to label: {of}. Folder: {folder}")
    return ratings


def _find(run: str) -> list[RatedModel]:
    """The model of a name or an audit; the models before and after a hardening."""
    try:
        parent = read_stored(RatedModel, Path(run) / FACTS)
    except FileNotFoundError:
        if Run.exists(Path(run)):
            with Run.open(Path(run)) as audited:
                return [RatedModel(audited.model(), audited.facts["fingerprint"], 1)]
        find_model(run)
        return [RatedModel(run, "", 1)]
    folder = Path(run) / "model"
    if not (folder / "card.json").is_file():
        raise InputError(f"the hardening in {run} is not finished; run its command again")
    return [parent, replace(parent, model=str(folder), fingerprint="")]


def _replies(model: TextModel, inputs: Sequence[str]) -> list[str]:
    said: list[str] = []
    for start in range(0, len(inputs), BATCH):
        said += model.reply([(Turn("user", text),) for text in inputs[start : start + BATCH]])
    # A Python function may return a lone surrogate, which can't be written to a file.
    return [text.encode("utf-8", "replace").decode("utf-8") for text in said]


def _held_out_inputs(rated: RatedModel, model: TextModel) -> tuple[list[str], str]:
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
