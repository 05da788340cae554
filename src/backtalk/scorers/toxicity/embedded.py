"""Scorers of ours by name or folder: which family a folder holds decides what reads it."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from backtalk.models.device import pick_device
from backtalk.protocols import Scorer
from backtalk.scorers.toxicity.classifier import classifier_from
from backtalk.scorers.toxicity.folder import read_scorer
from backtalk.scorers.toxicity.linear import linear_from


def load_folder(name: str, device: str = "auto") -> Scorer:
    """The scorer of a folder that `backtalk train-scorer` wrote."""
    return _load(Path(name), name, device)


def load_embedded(name: str, device: str = "auto") -> Scorer:
    """A scorer that ships inside the package."""
    with as_file(files("backtalk") / "embedded" / name) as folder:
        return _load(folder, name, device)


def _load(folder: Path, name: str, device: str) -> Scorer:
    where = pick_device(device)
    read = read_scorer(folder)
    return (classifier_from if read.kind == "words" else linear_from)(read, name, folder, where)
