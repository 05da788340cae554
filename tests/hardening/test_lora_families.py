"""Encoder-decoders and Llamas lose a planted habit too, and a hit may be what is really said."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtalk.cli import run
from tests.hardening.commands import command, held_out, read, replies
from tests.planted import RUDE, plant

pytestmark = pytest.mark.usefixtures("one_thread", "in_an_empty_folder")


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_other_families_lose_the_habit_too(place: Path, family: str) -> None:
    plant(place / family, family)
    methods = {"llama": "npo", "t5": "unlikelihood"}
    flags = ["--method", methods[family], "--no-audits"]
    assert run(command(place, "out", *flags, model=family)) == 0
    texts = held_out(Path("out"))
    assert replies(place / family, texts) == [RUDE] * len(texts)
    assert RUDE not in replies(Path("out/model"), texts)
    cost = read(Path("out/summary.json"))["cost"]
    assert cost["perplexity"][1] <= 1.1 * cost["perplexity"][0]


def test_a_hit_may_be_what_is_really_said(place: Path, planted: Path) -> None:
    assert run(command(place, "out", "--hit", "contains", "--no-audits", "--measure", "12")) == 0
    assert not any(RUDE in said for said in replies(Path("out/model"), held_out(Path("out"))))
    candidates = read(Path("out/summary.json"))["hardening"]["candidates"]
    assert (candidates[0]["hits"], candidates[1]["found"]) == (8, 20)
