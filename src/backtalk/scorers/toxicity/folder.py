"""A scorer folder: config.json, model.safetensors, card.json, and words.json where words have rows.

The weights are checked against the card's sha256 at every load; the card is written last.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.folder import first_line, read_json, sha256, write_json
from backtalk.output_file import write_whole

FORMAT = "backtalk-scorer-1"


class ScorerFolder(NamedTuple):
    """A folder's parts, read and checked."""

    kind: str
    """Which family: words (a network) or letters (a linear model)."""
    sizes: dict[str, Any]
    words: list[str]
    tensors: dict[str, Tensor]
    card: dict[str, Any]


def read_scorer(folder: Path) -> ScorerFolder:
    config, card = read_json(folder / "config.json"), read_json(folder / "card.json")
    if config.get("format") != FORMAT:
        raise InputError(
            f"{folder / 'config.json'} is not a scorer of ours (format {config.get('format')!r})"
        )
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise InputError(f"{weights} is missing; the scorer folder is incomplete, train or copy it again")
    if sha256(weights) != card.get("sha256"):
        raise InputError(f"{weights} does not match the sha256 in card.json; the file is damaged or changed")
    try:
        tensors = {name: value.float() for name, value in load_file(weights).items()}
        words = json.loads((folder / "words.json").read_text("utf-8")) if config["kind"] == "words" else []
        return ScorerFolder(config["kind"], dict(config["sizes"]), list(words), tensors, card)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder} can't be read as a scorer: {first_line(error)}") from None


def write_scorer(
    folder: Path, kind: str, sizes: dict[str, Any], words: list[str], tensors: dict[str, Tensor]
) -> str:
    """Writes all but the card, in 16 bits; returns the sha256 of the weights."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", {"format": FORMAT, "kind": kind, "sizes": sizes})
    if words:
        write_json(folder / "words.json", words)
    half = {name: value.detach().to("cpu", torch.float16).contiguous() for name, value in tensors.items()}
    write_whole(folder / "model.safetensors", save(half))
    return sha256(folder / "model.safetensors")
