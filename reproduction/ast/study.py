"""`python -m reproduction ast`: Hardy et al. 2024 from the openings to the last table, as a list of parts.

Read it as a table of contents: each line below is a part, what it needs, and what it fills on the page. A
training that was killed goes on with the same command, from its checkpoint.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from backtalk.hardening.subjects.asking import DRAWS, HARMLESS
from backtalk.hardening.subjects.transformer import LORA_PLAYED
from backtalk.report.topics import RUDE
from backtalk.searches.ast.config import Ast
from reproduction.ast.page import page_lines
from reproduction.ast.paper import SIZES, Size
from reproduction.ast.steps import (
    ROWS,
    harden_ours,
    learnt_words,
    open_texts,
    play_row,
    settings_of,
    time_play,
)
from reproduction.runner import Part, Study
from reproduction.spec import StudySpec

MODEL = "smollm2"


def ast_parts(spec: StudySpec, size: Size, folder: Path, more: dict[str, Any] | None = None) -> list[Part]:
    """`more` are flags for every row."""
    texts, model = open_texts(spec.data, folder), spec.model or MODEL
    shown = f"hf/{Path(model).name}" if "/" in model else model  # never a path of one machine

    def row(name: str) -> Part:
        needs = [ROWS[name][flag] for flag in ("adversary", "train_from") if flag in ROWS[name]]
        needs += ["hardened"] if ROWS[name].get("model") else []
        run = partial(play_row, name=name, size=size, texts=texts, model=model, more=more or {})
        settings = settings_of(name, size, texts, shown)
        return Part(name, tuple(needs), run, settings, texts.files, (f"runs/{name}",))

    hardened = Part(
        "hardened",
        ("ours-short",),
        partial(harden_ours, size=size, model=model),
        {
            "iterations": size.iterations,
            "model": shown,
            "defaults": LORA_PLAYED,
            "own_replies": [DRAWS, HARMLESS],
        },
        owns=("hardenings/hardened",),
    )
    speed = Part(
        "speed",
        (),
        partial(time_play, size=size, texts=texts, model=model),
        {"played": size.played, "depth": Ast.depth, "model": shown, "beside": ["trees", "turns"]},
        texts.files,
    )
    words = Part("words", ("ours", "untuned"), learnt_words, {"masked_from": RUDE})
    rows = [row(name) for name in ROWS]
    place = list(ROWS).index("after-ours")
    return [*rows[:place], hardened, *rows[place:], words, speed]


STUDY = Study("ast", SIZES, ast_parts, page_lines)
