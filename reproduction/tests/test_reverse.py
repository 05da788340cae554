"""The study of Liu et al. 2019: its parts, its intervals, and all of it in miniature on the embedded data."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from tests.searches.reverse.worlds import build_world

from backtalk.scorers.similarity import load_vectors
from backtalk.types import Access, Dialogue
from reproduction.__main__ import run_command as run
from reproduction.page import Page
from reproduction.reverse.page import check_findings
from reproduction.reverse.paper import GAIN, GROUPS, SIZES, TABLE_1
from reproduction.reverse.steps import Victim, best_of, group_of, open_texts
from reproduction.reverse.study import reverse_parts
from reproduction.spec import StudySpec
from reproduction.tests.miniature import verdict_on
from reproduction.verdicts import difference_of, gain_of, mean_of


def test_the_papers_gains_follow_from_its_table() -> None:
    for gain, first, best in zip(GAIN, TABLE_1["real-input"], TABLE_1["rl-beam-200"], strict=True):
        assert 100 * (best / first - 1) == pytest.approx(gain, abs=0.1)


def test_means_have_intervals() -> None:
    assert mean_of([0.5] * 10) == {"mean": 0.5, "low": 0.5, "high": 0.5, "n": 10}
    found = mean_of([0.0, 1.0] * 50)
    # The standard error of 100 throws of a coin is 0.05.
    assert (found["low"], found["high"]) == (pytest.approx(0.4, abs=0.02), pytest.approx(0.6, abs=0.02))
    assert mean_of([])["mean"] is None
    # Pairs that all differ by the same are sure, however much they vary themselves.
    steady = difference_of([0.0, 1.0, 5.0], [0.25, 1.25, 5.25])
    assert (steady["mean"], steady["low"], steady["high"]) == (0.25, 0.25, 0.25)


def test_gains_are_percent_of_the_first_mean() -> None:
    # Every pair doubles: +100%, for sure.
    assert gain_of([0.1, 0.2, 0.3], [0.2, 0.4, 0.6]) == pytest.approx(
        {"mean": 100, "low": 100, "high": 100, "n": 3}
    )
    assert gain_of([0.0, 0.0], [0.5, 0.5]) is None
    assert gain_of([-1.0, 0.5, 0.6], [0.5, 0.5, 0.5]) is None  # some samples have no mean to be above


def decoded(near: list[float]) -> dict[str, Any]:
    return {"result": {name: {key: {"near": near} for key in GROUPS} for name in ("generated", "real")}}


def test_findings_are_decided_by_their_intervals() -> None:
    """By hand: greedy +0.2 for every target, the wide beam three times the real input's similarity."""
    low, high = [0.1, 0.2] * 20, [0.3, 0.4] * 20
    records: dict[str, dict[str, Any]] = {
        "decode-c-pretrained-greedy": decoded(low),
        "decode-c-rl-greedy": decoded(high),
        "decode-c-rl-beam-200": {
            "result": {
                "generated": {key: {"near": [0.8] * 40} for key in GROUPS},
                "real": {key: {"near": [0.3, 0.6] * 20} for key in GROUPS},
            }
        },
        "inputs-c": decoded(low),
        "equal-c": {
            "result": {
                "mean": {name: mean_of([value]) for name, value in
                         (("rl-beam", 0.3), ("rl-sample", 0.2), ("retrieval", 0.4), ("random", 0.3))},
                "rl_less": {
                    "beam": {"retrieval": difference_of([0.4, 0.4], [0.3, 0.3]),
                             "random": difference_of([0.2, 0.4], [0.3, 0.3])},
                    "sample": {},
                },
            }
        },
    }  # fmt: skip
    found = list(check_findings(Page(records, size=SIZES["paper"]), "c"))

    def verdict(finding: str, where: str) -> tuple[str, str]:
        one = verdict_on(found, finding, where)
        return one.ours, one.verdict

    assert verdict("brings replies nearer", "1-3 words, greedy") == ("+0.200 [+0.200, +0.200]", "holds")
    assert verdict("than the real input", "Real, 4-6 words") == ("+200% [+200, +200]", "holds")
    ours, holds = verdict("(0.7)", "rl-beam-200")
    assert ours.startswith("100% ")
    assert holds == "holds"
    assert verdict("beats retrieval", "rl-beam")[1] == "fails"
    assert verdict("beats random", "rl-beam")[1] == "no difference"


@pytest.mark.parametrize(
    ("text", "group"),
    [
        ("no", "1-3"),
        ("go away now", "1-3"),
        ("you are so boring", "4-6"),
        ("a " * 10, "7-10"),
        ("a " * 11, None),
    ],
)
def test_targets_are_grouped_by_words(text: str, group: str | None) -> None:
    assert group_of(text) == group


def test_both_sides_of_a_text_have_no_dialogue_in_common(tmp_path: Path) -> None:
    learnt, unseen = open_texts("embedded", tmp_path)["chitchat"].sides()
    assert len(unseen) > 100
    assert len(learnt) > len(unseen)
    assert not set(learnt) & set(unseen)


class Backwards:
    """Says everything backwards, and counts."""

    name, fingerprint, access = "backwards", "backwards", Access.TEXT

    def __init__(self) -> None:
        self.calls = 0

    def reply(self, dialogues: list[Dialogue]) -> list[str]:  # the protocol's Sequence, here a list
        self.calls += len(dialogues)
        return [" ".join(reversed(dialogue[-1].text.split())) for dialogue in dialogues]


def test_the_best_reply_is_kept_and_nothing_is_asked_twice(tmp_path: Path) -> None:
    build_world(tmp_path)
    vectors, model = load_vectors(str(tmp_path / "vectors.txt")), Backwards()
    victim = Victim(model)  # type: ignore[arg-type]
    found = best_of(
        ["go away", "i like you"], [["we see", "away go"], ["we see", "away go"]], victim, vectors
    )
    assert found["near"] == pytest.approx([1, 0])
    assert found["cases"][0] == ["away go", "go away", "go away", pytest.approx(1)]
    assert (model.calls, victim.asked) == (2, 2)


def test_parts_build_on_each_other(tmp_path: Path) -> None:
    parts = reverse_parts(StudySpec(data="embedded"), SIZES["paper"], tmp_path)
    names = [part.name for part in parts]
    assert all(names.index(need) < names.index(part.name) for part in parts for need in part.needs)
    assert {"decode-chitchat-pretrained-greedy", "decode-chitchat-rl-beam-200", "equal-chitchat"} <= set(
        names
    )


def test_in_miniature(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = tmp_path / "study", tmp_path / "docs" / "reverse.md"
    command = ["reverse", "--data", "embedded", "--size", "mini", "--out", str(out), "--device", "cpu"]
    parts = ["--parts", "inputs-*,decode-*,equal-*,mal-random", "--page", str(page)]
    assert run([*command, *parts]) == 0
    text = page.read_text(encoding="utf-8")
    for row in ("| real-input |", "| rl-beam-4 |", "| retrieval |", "| random |"):
        assert row in text
    ElementTree.parse(tmp_path / "docs" / "reverse" / "figure-2-chitchat.svg")
    found = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))["parts"]
    greedy = found["decode-chitchat-pretrained-greedy"]["result"]["real"]
    wide = found["decode-chitchat-pretrained-beam-4"]["result"]["real"]
    for group in GROUPS:
        assert len(greedy[group]["near"]) == len(wide[group]["near"]) == SIZES["mini"].targets
    assert "cases" not in json.dumps(found)
    equal = found["equal-chitchat"]["result"]
    assert max(equal["queries"].values()) <= equal["budget"]
    capsys.readouterr()
    assert run([*command, *parts]) == 0  # nothing is run again
    assert "..." not in capsys.readouterr().err
