"""The hardened model as a folder that `chat`, `audit` and `harden` take, with a card that names its parent,
list, search and budget. T_out and T_in stay the parent's: what counted as likely before counts as likely now.
"""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from backtalk import __version__
from backtalk.hardening.selection import Selection
from backtalk.models.folder import TextSettings, save_folder, write_card
from backtalk.models.local import LocalModel
from backtalk.registry import MODELS
from backtalk.training.card import reply_samples
from backtalk.types import Thresholds

INHERITED = (
    "kind",
    "data",
    "licence",
    "parameters",
    "words",
    "pairs",
    "spec",
    "language_model_test_perplexity",
)


def write_model(
    folder: Path,
    name: str,
    parent: LocalModel,
    hardened: LocalModel,
    thresholds: Thresholds,
    selection: Selection,
    settings: dict[str, Any],
    test_perplexity: float | None = None,
) -> None:
    """The card goes last: a folder without one is unfinished and is written again. `test_perplexity` is
    given where other pairs than those that measure chose the iteration."""
    text = TextSettings(parent.recipe.name, parent.max_input, parent.max_output)
    digest = save_folder(folder, hardened.network, parent.vocabulary, text)
    if parent.language_model is not None:
        _copy_language_model(parent.name, folder / "lm")
    best = selection.best
    card = {key: parent.card[key] for key in INHERITED if key in parent.card}
    card |= {
        "name": name,
        "backtalk": __version__,
        "sha256": digest,
        "T_out": thresholds.out,
        "T_in": thresholds.into,
        "test_perplexity": round(best.perplexity if test_perplexity is None else test_perplexity, 2),
        "parent": {"name": parent.name, "fingerprint": parent.fingerprint},
        "hardening": {
            **settings,
            **selection.told(),
        },
        # What it says now to the inputs of the parent's card.
        "samples": reply_samples(hardened, [one["input"] for one in parent.card.get("samples", [])]),
        "finished": True,
    }
    write_card(folder, card)


def _copy_language_model(parent: str, target: Path) -> None:
    """File by file as it is: it was not trained."""
    root = files("backtalk") / "embedded" / parent if parent in MODELS else Path(parent)
    with as_file(root) as source:
        shutil.copytree(source / "lm", target, dirs_exist_ok=True)
