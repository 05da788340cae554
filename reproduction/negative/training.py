"""Table 8: the baseline models, trained as in `study egregious` or adopted from one.

With --baseline-from a model that another study trained with the same settings, and tested on the same text
(T_out is from there), is copied, and its language model with it. A setting that was unknown then had the
value that is the default now.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backtalk.errors import InputError
from backtalk.specs.train import TrainSpec
from backtalk.training.card import read_card
from reproduction.egregious.data import Source
from reproduction.egregious.training import model_name, train_network, train_spec, training_settings
from reproduction.negative.data import point_to_data
from reproduction.negative.sizes import Size
from reproduction.parts import MARK, Result, Workplace, read_record


def baseline_settings(source: Source, size: Size, arch: str, kind: str) -> dict[str, Any]:
    """What a model depends on, as `study egregious` has it."""
    return training_settings(train_spec(source, size.training, arch)) | {"data": kind}


def train_baseline(
    place: Workplace, source: Source, size: Size, arch: str, kind: str, adopt_from: str
) -> Result:
    """One model, and what Table 8 says of it."""
    if adopt_from:
        # The language model of a corpus lies in its dialogue model's folder too.
        settings = {
            f"train-{source.corpus}-{one}": baseline_settings(source, size, one, kind) for one in {"lm", arch}
        }
        found = _adopt(place, Path(adopt_from), model_name(source.corpus, arch), settings, source.test)
        if found is not None:
            point_to_data(place.path(model_name(source.corpus, arch)), source)
            return found
    return train_network(place, source, size.training, arch)


def check_study(folder: str) -> None:
    if folder and not (Path(folder) / MARK).is_file():
        raise InputError(
            f"--baseline-from {folder} is no study; name the folder that --out of another one had"
        )


def _adopt(
    place: Workplace,
    study: Path,
    name: str,
    settings: Mapping[str, Mapping[str, Any]],
    test: Path | None,
) -> Result | None:
    """Copies a finished model, whole or not at all; None where the other study has none of these settings."""
    record = read_record(study, place.part)
    if record is None or not (study / name / "card.json").is_file():
        return None
    tested_on = read_card(study / name)["spec"].get("test") or ""
    if Path(tested_on).name != (test.name if test else ""):
        return None
    if not all(_same(read_record(study, part), wanted) for part, wanted in settings.items()):
        return None
    folder = place.path(name)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(study / name, partial)
    shutil.rmtree(folder, ignore_errors=True)
    partial.replace(folder)
    result: Result = record["result"]
    return {**result, "adopted": True}


def _same(record: Result | None, wanted: Mapping[str, Any]) -> bool:
    defaults = training_settings(TrainSpec())
    return record is not None and defaults | record["settings"] == defaults | dict(wanted)
