"""Labels of one run's replies: what is drawn, what they come to, and how often the interval is right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backtalk.cli import run
from backtalk.rating.folder import LabelKey, Pair, answered_by, give_answer, read_ratings
from backtalk.rating.labels import estimate
from backtalk.store.folder import LABELS
from backtalk.types import Finding, Target
from tests.report.samples import finding
from tests.web.worlds import finish, play

TARGETS = [Target(f"t{i}", f"nobody likes number {i}", "rude", 1) for i in range(30)]
FLAGGED, SAID = range(6), (28, 29)  # the scorer rates these replies bad; these are the target itself
BAD = (0, 1, 2, 10)  # what a person calls bad: half of those that are rated bad, and one other


def found(number: int, target: Target) -> Finding:
    one = finding(target, trigger=f"input {number}", reply=f"reply {number}")
    scores = {**one.scores, "toxicity": 0.9 if number in FLAGGED else 0.1, "greedy": float(number in SAID)}
    return replace(one, scores=scores)


@pytest.fixture
def audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return finish(Path("run"), TARGETS, [found(number, target) for number, target in enumerate(TARGETS)])


def label(folder: Path, is_bad: Callable[[Pair], bool], rater: str = "anna") -> None:
    ratings = read_ratings(folder)
    for pair in ratings.pairs:
        if pair.id not in answered_by(rater, ratings):
            give_answer(ratings, pair.id, rater, "1" if is_bad(pair) else "2")


def person(pair: Pair) -> bool:
    return int(pair.reply_1.split()[1]) in BAD


def test_half_of_what_is_drawn_is_rated_bad_and_nothing_says_which(audited: Path) -> None:
    assert run(["rate", "run", "--pairs", "10"]) == 0
    ratings = read_ratings(Path("ratings/run"))
    key = ratings.key
    assert isinstance(key, LabelKey)
    assert (key.rated_bad, key.rated_fine, key.said) == (6, 22, 2)
    flagged = {pair.reply_1 for pair in ratings.pairs if pair.id in key.flagged}
    assert len(ratings.pairs) == 10
    assert len(flagged) == 5
    assert flagged <= {f"reply {i}" for i in FLAGGED}
    assert not {pair.reply_1 for pair in ratings.pairs} & {f"reply {i}" for i in SAID}
    assert all(pair.input == pair.reply_1.replace("reply", "input") for pair in ratings.pairs)
    blind = Path("ratings/run/pairs.jsonl").read_text()
    assert "0.9" not in blind
    assert "flagged" not in blind
    places = [pair.id in key.flagged for pair in ratings.pairs]
    assert places not in (sorted(places), sorted(places, reverse=True))
    assert run(["rate", "run", "--pairs", "10"]) == 0  # goes on with the same replies
    assert read_ratings(Path("ratings/run")) == ratings


def test_labels_stand_in_the_report_beside_the_raw_rate(
    audited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rate", "run"]) == 0
    assert run(["rate", "run", "--result"]) == 0
    assert not (audited / LABELS).exists()  # nobody has said anything yet
    label(Path("ratings/run"), person)
    assert run(["rate", "run", "--result"]) == 0
    summary = json.loads((audited / "summary.json").read_text())
    labels = summary["labels"]
    assert labels["rated_bad"] == {"replies": 6, "labelled": 6, "bad": 3}
    assert labels["rated_fine"] == {"replies": 22, "labelled": 22, "bad": 1}
    share = (4 + 2) / 30  # all were labelled, so it is exact
    assert labels["estimate"] == pytest.approx({"rate": share, "low": share, "high": share})
    assert summary["verdict"]["said"]["hits"] == 8  # the raw number stays as it is
    capsys.readouterr()
    assert run(["report", "run"]) == 0
    assert "People labelled replies: 3 of 6" in " ".join(capsys.readouterr().out.split())
    assert "People labelled replies: 3 of 6" in (audited / "report.html").read_text()


def test_raters_who_differ_and_those_who_can_not_tell(audited: Path) -> None:
    assert run(["rate", "run"]) == 0
    folder = Path("ratings/run")
    first, second, third, *_ = (pair.id for pair in read_ratings(folder).pairs)
    for pair, choices in ((first, "11"), (second, "12"), (third, ("tie",))):
        for rater, choice in zip(("anna", "ben"), choices, strict=False):
            give_answer(read_ratings(folder), pair, rater, choice)
    assert run(["rate", "run", "--result"]) == 0
    result = json.loads((folder / "result.json").read_text())
    assert result["rated_bad"]["labelled"] + result["rated_fine"]["labelled"] == 1
    assert result["rated_bad"]["bad"] + result["rated_fine"]["bad"] == 1
    assert result["agreement"]["same"] == 1
    assert result["estimate"] is None
    assert not (audited / LABELS).exists()


def test_of_a_conversation_the_worst_turn_is_labelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    play(Path("talk"))
    assert run(["rate", "talk"]) == 0
    ratings = read_ratings(Path("ratings/talk"))
    assert isinstance(ratings.key, LabelKey)
    assert (ratings.key.rated_bad, ratings.key.rated_fine, ratings.key.said) == (2, 6, 0)
    assert all(pair.input.startswith("we went to the lake") for pair in ratings.pairs)


def test_bad_input_is_one_sentence(audited: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("in.txt").write_text("hello\n")
    assert run(["rate", "run", "--inputs", "in.txt"]) == 2
    assert "of one audit its own replies are labelled" in capsys.readouterr().err
    finish(Path("silent"), TARGETS, [finding(target, reply="") for target in TARGETS])
    assert run(["rate", "silent"]) == 2
    assert "holds no reply to label" in capsys.readouterr().err


def test_a_copy_without_the_key_can_be_labelled_but_not_counted(
    audited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rate", "run"]) == 0
    Path("ratings/run/key.json").unlink()
    label(Path("ratings/run"), person)
    assert run(["rate", "ratings/run", "--result"]) == 2
    assert "has no key" in capsys.readouterr().err


def test_labels_that_were_tampered_with_are_refused(
    audited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("{", "[]", '{"scorer": 3}', '{"scorer": "x", "replies": 1}'):
        (audited / LABELS).write_text(text)
        assert run(["report", "run"]) == 2
        assert "is damaged" in capsys.readouterr().err.splitlines()[-1]


def test_a_run_that_is_gone_or_has_changed_is_left_alone(
    audited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["rate", "run"]) == 0
    label(Path("ratings/run"), person)
    shutil.move("run", "elsewhere")
    assert run(["rate", "ratings/run", "--result"]) == 0
    assert "is not here" in " ".join(capsys.readouterr().out.split())
    finish(Path("run"), TARGETS[:10], [found(number, target) for number, target in enumerate(TARGETS[:10])])
    assert run(["rate", "ratings/run", "--result"]) == 0
    assert "has other replies by now" in " ".join(capsys.readouterr().out.split())
    assert not Path("run", LABELS).exists()
    Path("ratings/run/key.json").write_text('{"run": "run"}')
    assert run(["rate", "ratings/run", "--result"]) == 2
    assert "is damaged" in capsys.readouterr().err


# The estimate


def test_an_estimate_weighs_each_kind_by_its_replies() -> None:
    found = estimate(10, [(100, 50, 40), (1000, 50, 1)])
    assert found is not None
    assert found["rate"] == pytest.approx((10 + 80 + 20) / 1110)
    assert found["low"] < found["rate"] < found["high"]
    assert estimate(0, [(5, 5, 2), (3, 3, 0)]) == pytest.approx({"rate": 0.25, "low": 0.25, "high": 0.25})
    assert estimate(0, [(5, 0, 0), (3, 3, 0)]) is None
    assert estimate(2, [(0, 0, 0), (2, 2, 1)]) == pytest.approx({"rate": 0.75, "low": 0.75, "high": 0.75})


@pytest.mark.parametrize(("right", "missed"), [(0.8, 0.02), (0.3, 0.1), (0.05, 0.0), (0.95, 0.3)])
def test_the_interval_covers_the_truth_as_often_as_it_says(right: float, missed: float) -> None:
    """Runs of 60 flagged and 600 other replies whose truth is known; 40 of each are labelled."""
    draw, covered, runs = np.random.default_rng(3), 0, 400
    for _ in range(runs):
        flagged, others = draw.random(60) < right, draw.random(600) < missed
        truth = (flagged.sum() + others.sum()) / 660
        strata = [(len(own), 40, int(own[:40].sum())) for own in (flagged, others)]
        found = estimate(0, strata)
        assert found is not None
        covered += found["low"] <= truth <= found["high"]
    assert covered / runs >= 0.93
