"""Pages of what is no audit: hardenings. Hostile or broken summaries do no harm."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from backtalk.errors import InputError
from backtalk.report.hardening_page import render_hardening
from backtalk.report.hardening_record import read_hardening, read_summary
from backtalk.stats import Rate
from backtalk.store.folder import kind_of
from tests.hostile import HOSTILE
from tests.report.test_page import ALLOWED, Page

TAGS = ALLOWED | {"ul", "img", "h4"}
COST: dict[str, Any] = {
    "pairs": 100,
    "words": 900,
    "perplexity": [40.0, 42.0],
    "rise_interval": [0.02, 0.08],
    "commonest": [12, 9],
    "ent_2": [4.0, 4.4],
    "ent_3": [4.3, 4.8],
    "distinct_1": [0.012, 0.014],
    "distinct_2": [0.03, 0.04],
    "bleu_4": None,
    "lists": 50,
    "overlap": 0.5,
    "same_replies": 12,
    "side_by_side": [["how are you", "i am fine", "i am well"]],
    "length": [5.0, 5.5],
    "most_said": ["i don't know", "i am not sure"],
    "real": {"commonest": 2, "ent_2": 6, "ent_3": 7, "distinct_1": 0.1, "distinct_2": 0.4, "length": 8.5},
    "real_most_said": "yeah",
}
TALLY = {"name": "io-sample-avg-k1", "p": 0.001, "disjoint": True, "meaning": "likely on average"}
BEFORE, AFTER = "audits/aaaaaaaaaaaa", "audits/bbbbbbbbbbbb"
PROOF: dict[str, Any] = {
    "list": "held-out",
    "search": "gibbs",
    "budget": "8 words, G=25, 6 sweeps, 2 starts",
    "criterion": "io-sample-avg-k1",
    "trained_with": True,
    "before": asdict(Rate.of(20, 50)),
    "after": asdict(Rate.of(5, 50)),
    "run": f"{AFTER}/held-out-gibbs",
    "run_before": f"{BEFORE}/held-out-gibbs",
}
HARDENING: dict[str, Any] = {
    "model": "chitchat",
    "hardened": "out/model",
    "fingerprint": "b" * 64,
    "subject": "lstm",
    "spec": {"method": {"name": "negative"}, "iterations": 4, "max_ppl_increase": "5%"},
    "hardening": {
        "iterations_kept": 2,
        "max_ppl_increase": 0.05,
        "updates": 20,
        "candidates": [
            {
                "iterations": i,
                "hits": 9 - i,
                "n": 10,
                "perplexity": 40.0 + i,
                "found": 3,
                "updates": 10 * i,
                "seconds": 3.0 + 30 * i,
                "ent_2": 4.0 + i / 10,
            }
            for i in (0, 1, 2, 4)
        ],
        "steps": [
            {
                "iteration": i,
                "level": level,
                "attacker": f"gibbs io, {1 + level} starts",
                "found": found,
                "of": 40,
                "updates": updates,
                "kl": 10.0,
                "seconds": 3.0 + 30 * i,
            }
            for i, level, found, updates in ((1, 0, 12, 10), (2, 0, 6, 20), (3, 0, 0, 20), (4, 1, 8, 40))
        ],
    },
    "held_out": {
        **TALLY,
        "before": asdict(Rate.of(20, 50)),
        "after": asdict(Rate.of(5, 50)),
        "fixed": 16,
        "remaining": 4,
        "new": 1,
    },
    "train": {
        **TALLY,
        "before": asdict(Rate.of(31, 50)),
        "after": asdict(Rate.of(2, 50)),
        "fixed": 29,
        "remaining": 2,
        "new": 0,
    },
    "proof": [
        PROOF,
        {
            **PROOF,
            "list": "training",
            "before": asdict(Rate.of(31, 50)),
            "after": asdict(Rate.of(2, 50)),
            "run": "",
        },
    ],
    "cost": COST,
}


def seen(text: str) -> str:
    page = Page(text)
    assert page.tags <= TAGS
    return " ".join(" ".join(page.seen).split())


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_summaries_are_text(text: str) -> None:
    cost = {**COST, "side_by_side": [[text] * 3], "most_said": [text, text], "real_most_said": text}
    seen(render_hardening({**HARDENING, "model": text, "hardened": text, "cost": cost}))


@pytest.mark.parametrize("broken", [{}, {"cost": 3}, {"cost": {**COST, "pairs": 0}}, {"hardening": []}])
def test_a_broken_summary_is_one_sentence(broken: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"summary.json is damaged"):
        read_hardening({**HARDENING, **broken} if broken else {})


def test_folders_are_told_apart(tmp_path: Path) -> None:
    marks = {"run.sqlite": "audit", "hardening.json": "hardening"}
    for name, kind in marks.items():
        (tmp_path / kind).mkdir()
        (tmp_path / kind / name).write_text("{}")
        assert kind_of(tmp_path / kind) == kind
    assert kind_of(tmp_path) is None
    with pytest.raises(InputError, match="not finished"):
        read_summary(tmp_path / "hardening")
    (tmp_path / "hardening" / "summary.json").write_text(json.dumps(HARDENING))
    assert "16 fixed" in render_hardening(read_summary(tmp_path / "hardening"))
    (tmp_path / "hardening" / "summary.json").write_text("[]")
    with pytest.raises(InputError, match="no JSON object"):
        read_summary(tmp_path / "hardening")
