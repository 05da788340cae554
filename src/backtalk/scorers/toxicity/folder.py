"""A scorer folder: config.json, model.safetensors, card.json, and words.json where words have rows.

The weights are checked against the card's sha256 at every load; the card is written last.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import torch
from safetensors.torch import save
from torch import Tensor

from backtalk.errors import InputError
from backtalk.models.folder import first_line, read_parts, sha256, write_json
from backtalk.output_file import write_whole

FORMAT: Literal["backtalk-scorer-1"] = "backtalk-scorer-1"


class ScorerConfig(TypedDict):
    format: Literal["backtalk-scorer-1"]
    kind: Literal["words", "letters"]
    sizes: dict[str, Any]


class ScorerCard(TypedDict):
    """What is read of a card; it says more, for people."""

    sha256: str


class ScorerFolder(NamedTuple):
    """A folder's parts, read and checked."""

    kind: str
    """Which family: words (a network) or letters (a linear model)."""
    sizes: dict[str, Any]
    words: list[str]
    tensors: dict[str, Tensor]
    card: dict[str, Any]


def read_scorer(folder: Path) -> ScorerFolder:
    config, card, half = read_parts(folder, "scorer", ScorerConfig, ScorerCard)
    tensors = {name: value.float() for name, value in half.items()}
    words: list[str] = []
    if config["kind"] == "words":
        try:
            words = json.loads((folder / "words.json").read_text("utf-8"))
            if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
                raise ValueError("its words are no list of texts")
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{folder} can't be read as a scorer: {first_line(error)}") from None
    return ScorerFolder(config["kind"], config["sizes"], words, tensors, card)


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
