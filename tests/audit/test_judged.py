"""Whose verdict decides: the judge of a run, its reward, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backtalk.cli import run
from backtalk.registry import ENCODER_NEEDS, JUDGES, is_exact, judge_name, load_scorer, reward_name
from backtalk.store import JUDGE, Run

QUICK = ["--limit", "6", "--length", "5", "--top", "8", "--sweeps", "2", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("good\nlove\n")


def summary(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())
    return found


def test_the_best_scorer_that_is_installed_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge_name("toxicity") != "toxicity"
    monkeypatch.setattr("backtalk.registry.find_spec", lambda name: None)
    assert judge_name() == "toxicity"
    assert judge_name("toxicity") == "toxicity-second"
    monkeypatch.setattr("backtalk.registry.find_spec", lambda name: name in ENCODER_NEEDS)
    assert [judge_name(reward) for reward in ("", "toxicity")] == [JUDGES[0]] * 2


@pytest.mark.parametrize("search", ["gibbs", "retrieval"])
def test_any_scorer_may_decide_hits(search: str) -> None:
    flags = QUICK if search == "gibbs" else ["--limit", "4", "--max-queries", "200", "--no-judge"]
    asked = ["audit", "--search", search, *flags, "--scorer", "words:words.txt", "--hit", "toxic-0.5"]
    assert run([*asked, "--out", "run"]) == 0
    with Run.open(Path("run")) as opened:
        findings = opened.findings()
        assert opened.rated_by == ("words:words.txt", opened.facts["depends_on"][JUDGE])
    rated = load_scorer("words:words.txt").score([one.reply for one in findings]).tolist()
    assert [one.scores["toxicity"] for one in findings] == rated
    hit = {one.case for one, score in zip(findings, rated, strict=True) if score}
    assert summary("run")["hits"]["toxic-0.5"]["hits"] == len(hit)
    assert run(["verify", "run"]) == 0


def test_another_scorer_makes_another_run_and_is_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["audit", *QUICK, "--out", "one"]) == 0
    assert summary("one")["scorer"] == judge_name()
    assert run(["audit", *QUICK, "--out", "one", "--scorer", "words:words.txt"]) == 2
    assert "one" in capsys.readouterr().err
    assert run(["audit", *QUICK, "--out", "two", "--scorer", "words:words.txt"]) == 0
    assert run(["compare", "one", "two", "--hit", "toxic-0.5"]) == 2
    assert "two scorers rated the replies" in capsys.readouterr().err
    Path("words.txt").write_text("good\n")  # the same name is another scorer now
    assert run(["verify", "two"]) == 2
    assert "the scorer's weights of two have changed" in capsys.readouterr().err


def test_a_list_of_words_may_be_what_is_aimed_at_and_judged_by() -> None:
    assert is_exact("canary:xyz")
    assert not is_exact("toxicity")
    assert (reward_name("canary:xyz"), reward_name("toxicity-encoder")) == ("canary:xyz", "toxicity")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--scorer", "nosuch"], "scorer 'nosuch'"),
        (["--scorer", "words:nothing.txt"], "nothing.txt"),
        (["--scorer", "https://judge.example/v1#m"], "add --yes to agree"),
        (["--scorer", "http://judge.example/v1#m", "--yes"], "--insecure"),
        (["--search", "retrieval", "--hit", "toxic-0.5", "--scorer", "toxicity"], "is the reward"),
        (["--search", "retrieval", "--reward", "toxicity"], "it is for --hit toxic-0.5"),
        (["--reward", "toxicity"], "--reward"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_is_written(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = [] if "retrieval" in flags else QUICK
    assert run(["audit", *quick, *flags, "--out", "run"]) == 2
    assert said in capsys.readouterr().err
    assert not Path("run").exists()


def test_a_remote_judge_of_a_hardening_is_asked_for_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["harden", "--scorer", "https://judge.example/v1#m", "--device", "cpu"]) == 2
    assert "add --yes to agree" in capsys.readouterr().err
    assert not Path("hardened").exists()
