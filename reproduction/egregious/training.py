"""Table 2 and the test perplexities of Table 5: the models of the study, trained as in section 5.3.

What the paper leaves open is as in the public code of its authors (cloudygoose/negativetraining_acl2020): the
decoder starts from zeros, an input ends with an end-of-turn token that takes one of its 15 places, and SGD
has momentum and a weight decay (on Switchboard; the slices are trained without).

Where we differ: dropout 0.3 for all three corpora, since the slices over-fit as Switchboard does, and a
starting rate of 1 for OpenSubtitles too (the paper's 0.1 is for two hundred times more text). Padding leaves
no trace; in the code it is read like words, before the input. Long inputs lose their end, there their start.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from backtalk.cli.train import train_model
from backtalk.specs import spec_values
from backtalk.specs.train import TrainSpec
from backtalk.training.card import complete_card, read_card
from reproduction.egregious.data import SEED, Source
from reproduction.egregious.sizes import Size
from reproduction.parts import Result, Workplace

PLACES = {"data", "test", "out", "device", "name", "licence", "checkpoint_s"}
"""What says where a training happens, not what comes of it."""
AS_PUBLISHED: dict[str, Any] = {"decoder_start": "zero", "input_end": "eos", "pads": "masked"}
"""How the dialogue models of the public code read and start."""
OPTIMISER: dict[str, Any] = {"momentum": 0.9, "weight_decay": 1e-5, "lr_factor": 0.6, "mean_over": "words"}
"""How it trains. The decay is not small: a weight that nothing holds halves in 7,000 updates."""


def model_name(corpus: str, arch: str) -> str:
    """The model's folder inside the study's."""
    return f"models/{corpus}-{arch}"


def train_spec(source: Source, size: Size, arch: str) -> TrainSpec:
    """The settings of section 5.3; those of the character task are of appendix B as far as it gives any."""
    common: dict[str, Any] = {
        "data": str(source.data),
        "format": source.format,
        "test": str(source.test or ""),
        "test_format": source.test_format,
        "arch": arch,
        "pads": "word",
        "recipe": source.recipe,
        "vocabulary": min(source.vocabulary, size.vocabulary),
        "language_model": False,
        "patience": source.patience,
        "seed": SEED,
    }
    if source.corpus == "characters":
        return TrainSpec(
            **common,
            embedding=size.character_hidden,
            hidden=size.character_hidden,
            max_input=size.input_length,
            max_output=12,
            optimizer="adamw",
            lr=0.002,
            batch=512,
            epochs=size.character_epochs,
        )
    if source.corpus == "switchboard":
        common |= OPTIMISER
    if arch != "lm":
        common |= AS_PUBLISHED | {"max_input": size.length}
    return TrainSpec(
        **common,
        embedding=size.embedding,
        hidden=size.hidden,
        dropout=0.3,
        optimizer="sgd",
        lr=1.0,
        halve_after=(size.epochs + 1) // 2,
        epochs=size.epochs,
        half=True,
    )


def training_settings(spec: TrainSpec) -> dict[str, Any]:
    return {key: value for key, value in spec_values(spec).items() if key not in PLACES}


def train_network(place: Workplace, source: Source, size: Size, arch: str) -> Result:
    """Trains one model. A dialogue model then gets its corpus' language model, which was trained before."""
    folder = place.path(model_name(source.corpus, arch))
    spec = replace(train_spec(source, size, arch), out=str(folder), device=place.device)
    train_model(spec)
    if arch != "lm" and source.corpus != "characters":
        _adopt(folder, place.path(model_name(source.corpus, "lm")))
    card = read_card(folder)
    mean = card["T_in"] if arch == "lm" else card["T_out"]
    return {
        "corpus": source.corpus,
        "arch": arch,
        "remark": source.remark,
        "test_perplexity": card["test_perplexity"],
        "nll": -mean,
        "T_in" if arch == "lm" else "T_out": mean,
        "pairs": card["pairs"],
        "words": card["words"],
        "parameters": card["parameters"],
    }


def _adopt(folder: Path, language_model: Path) -> None:
    """Copies the language model into a dialogue model's folder, whole or not at all."""
    own = folder / "lm"
    if not own.exists():
        partial = folder / "lm.partial"
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(language_model, partial)
        partial.replace(own)
    complete_card(folder)
