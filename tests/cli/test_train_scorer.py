"""`backtalk train-scorer` on a made-up folder: both families, the card, and what it refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from backtalk.cli import run
from backtalk.data.toxicity import normal
from backtalk.registry import load_scorer
from backtalk.specs.train import ScorerSpec
from backtalk.training.scorer_data import gather

RUDE = ["fool", "clown", "dimwit", "twit"]
NICE = ["friend", "guest", "cook", "poet"]


def texts(count: int, rude: bool, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [f"number {seed} {i} you are a {draw.choice(RUDE if rude else NICE)}" for i in range(count)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Every file that the recipe names, small."""
    folder = tmp_path / "data"
    folder.mkdir()

    def labelled(seed: int, count: int = 80) -> list[dict[str, object]]:
        both = [{"text": text, "toxic": True} for text in texts(count, True, seed)]
        both += [{"text": text, "toxic": False} for text in texts(count, False, seed)]
        random.Random(seed).shuffle(both)
        return both

    names = ("jigsaw_balanced", "jigsaw_natural", "davidson", "civil_comments", "paradetox")
    write = {name: labelled(seed) for seed, name in enumerate(names, start=1)}
    write["realtoxicityprompts"] = labelled(6)
    write["ubuntu"] = [{"text": f"how do i open file {i}", "toxic": False} for i in range(40)]
    for name, rows in write.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    return folder


SMALL = ["--chat", "0", "--contrast", "60", "--vocabulary", "200", "--vector", "8", "--hidden", "16",
         "--buckets", "64", "--lr", "0.02"]  # fmt: skip


@pytest.mark.parametrize("family", ["words", "letters"])
def test_a_folder_of_text_becomes_a_scorer(
    family: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "scorer"
    asked = ["train-scorer", "--family", family, "--data", str(data), "--out", str(out), *SMALL]
    assert run([*asked, "--epochs", "8"]) == 0
    card = json.loads((out / "card.json").read_text())
    assert card["measured"]["jigsaw, balanced"]["auc"] > 0.95
    assert card["measured"].keys() == card["bag of words, same texts"].keys()
    assert card["finished"]
    assert card.get("for_reward", True) is (family == "words")
    trained_on = {"words": {"jigsaw", "paradetox", "contrast"}, "letters": {"davidson", "civil comments"}}
    assert set(card["training texts"]) == trained_on[family]
    rude, nice = load_scorer(str(out), "cpu").score(["you are a clown", "you are a poet"])
    assert rude > nice
    capsys.readouterr()
    assert run([*asked, "--epochs", "8"]) == 2
    assert "already trained" in capsys.readouterr().err
    assert run([*asked, "--epochs", "9"]) == 2
    assert "another scorer" in capsys.readouterr().err


@pytest.mark.parametrize("most", [10, 100])
def test_harmless_messages_are_drawn_by_the_seed(most: int, data: Path) -> None:
    drawn = [
        gather(ScorerSpec(family="letters", data=str(data), chat=most, seed=seed)).train["ubuntu"][0]
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert len(set(drawn[0])) == min(most, 40)
    assert not any(row.toxic for row in drawn[0])


def test_the_same_command_gives_the_same_weights(data: Path, tmp_path: Path) -> None:
    cards = []
    for name in ("one", "two"):
        asked = ["train-scorer", "--data", str(data), "--out", str(tmp_path / name), "--epochs", "1", *SMALL]
        assert run(asked) == 0
        cards.append(json.loads((tmp_path / name / "card.json").read_text())["sha256"])
    assert cards[0] == cards[1]


def test_nothing_that_is_held_out_is_trained_on(data: Path) -> None:
    for family in ("words", "letters"):
        parts = gather(ScorerSpec(family=family, data=str(data), chat=0, contrast=60))
        seen = {normal(row.text) for rows, _ in parts.train.values() for row in rows}
        held_out = {normal(row.text) for rows in parts.test.values() for row in rows}
        held_out |= {normal(row.text) for row in parts.valid}
        assert seen
        assert not seen & held_out
        assert not seen & {normal(text) for text in (*texts(80, True, 6), *texts(80, False, 6))}


@pytest.mark.parametrize(
    ("flags", "phrase"),
    [
        ([], "--data"),
        (["--data", "nosuch"], "is no folder"),
        (["--data", "."], "has no jigsaw_balanced.jsonl"),
        (["--family", "lettres"], "did you mean 'letters'"),
    ],
)
def test_bad_input(
    flags: list[str],
    phrase: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train-scorer", "--out", "new", *flags]) == 2
    assert phrase in capsys.readouterr().err


def test_foreign_files_are_left_alone(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert run(["train-scorer", "--data", str(data), "--out", str(tmp_path / "mine")]) == 2
    assert "holds other files" in capsys.readouterr().err
