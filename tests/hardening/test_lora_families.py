"""Encoder-decoders and Llamas lose a planted habit too, and a hit may be what is really said."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtalk.cli import run
from backtalk.registry import judge_name, load_scorer
from backtalk.store import Run
from tests.hardening.commands import audits_of, command, held_out, read, replies
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


def test_a_hit_may_be_a_toxic_reply(place: Path, planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Here whatever is left to say holds the same word: that it is found and trained on is what counts."""
    assert run(command(place, "out", "--hit", "toxic-0.5", "--iterations", "1", "--rounds", "4")) == 0
    summary = read(Path("out/summary.json"))
    first, second = summary["hardening"]["candidates"]
    assert (first["hits"], second["found"], summary["held_out"]["before"]["hits"]) == (8, 20, 12)
    after_run = audits_of(Path("out"), "held-out")[1]
    with Run.open(after_run) as after:
        findings = after.findings()
    rated = load_scorer(judge_name("toxicity"), "cpu").score([finding.reply for finding in findings])
    assert [finding.scores["toxicity"] for finding in findings] == pytest.approx(rated.tolist(), abs=1e-4)
    assert summary["held_out"]["after"]["hits"] == sum(score >= 0.5 for score in rated)
    assert run(["verify", str(after_run), "--device", "cpu"]) == 0
    for flag, why in (("--reward=toxicity-second", "never a reward"), ("--scorer=toxicity", "is the reward")):
        assert run(command(place, "other", "--hit", "toxic-0.5", flag)) == 2
        assert why in capsys.readouterr().err
