"""Table 8: the baseline models, trained as in `study egregious` or adopted from one.

A part's key is a hash of what its result depends on, so two studies whose parts share a key hold the same model:
with --baseline-from it is copied.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from backtalk.errors import InputError
from backtalk.studies.egregious_data import Source
from backtalk.studies.egregious_training import model_name, train_network
from backtalk.studies.negative_data import point_to_data
from backtalk.studies.negative_sizes import Size
from backtalk.studies.parts import MARK, Result, Workplace, read_record


def train_baseline(place: Workplace, source: Source, size: Size, arch: str, adopt_from: str) -> Result:
    """One model, and what Table 8 says of it."""
    if adopt_from and (found := _adopt(place, Path(adopt_from), model_name(source.corpus, arch))) is not None:
        point_to_data(place.path(model_name(source.corpus, arch)), source)
        return found
    return train_network(place, source, size.training, arch)


def check_study(folder: str) -> None:
    if folder and not (Path(folder) / MARK).is_file():
        raise InputError(
            f"--baseline-from {folder} is no study; name the folder that --out of another one had"
        )


def _adopt(place: Workplace, study: Path, name: str) -> Result | None:
    """Copies a finished model, whole or not at all; None where the other study has none of this key."""
    record = read_record(study, place.part)
    if record is None or record.get("key") != place.key or not (study / name / "card.json").is_file():
        return None
    folder = place.path(name)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(study / name, partial)
    shutil.rmtree(folder, ignore_errors=True)
    partial.replace(folder)
    result: Result = record["result"]
    return {**result, "adopted": True}
