"""`backtalk train-scorer` on a made-up folder: all families, the card, and what it refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from backtalk.cli import run
from backtalk.registry import load_scorer

RUDE = ["fool", "clown", "dimwit", "twit"]
NICE = ["friend", "guest", "cook", "poet"]


def texts(count: int, rude: bool, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [f"number {seed} {i} you are a {draw.choice(RUDE if rude else NICE)}" for i in range(count)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Labelled texts, with a copy of a test text among those to train on."""
    folder = tmp_path / "data"
    folder.mkdir()

    def labelled(seed: int, count: int = 80) -> list[dict[str, object]]:
        both = [{"text": text, "toxic": True, "source": "rude"} for text in texts(count, True, seed)]
        both += [{"text": text, "toxic": False, "weight": 0.5} for text in texts(count, False, seed)]
        random.Random(seed).shuffle(both)
        return both

    write = {"train": labelled(1) + labelled(3)[:1], "valid": labelled(2), "test-mine": labelled(3)}
    write["calm"] = [{"text": f"how do i open file {i}", "toxic": False} for i in range(40)]
    for name, rows in write.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "about.json").write_text('{"data": ["mine"], "for_reward": true, "says": "How rude."}')
    return folder


SMALL = ["--vocabulary", "200", "--vector", "8", "--hidden", "16", "--buckets", "64", "--lr", "0.02"]


@pytest.mark.parametrize(("family", "lr"), [("words", "0.02"), ("letters", "0.02"), ("encoder", "0.003")])
def test_a_folder_of_text_becomes_a_scorer(
    family: str, lr: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "scorer"
    asked = ["train-scorer", "--family", family, "--data", str(data), "--out", str(out), *SMALL, "--lr", lr]
    assert run([*asked, "--epochs", "8"]) == 0
    card = json.loads((out / "card.json").read_text())
    assert card["measured"]["mine"]["auc"] > 0.95
    assert card["measured"].keys() == card["bag of words, same texts"].keys()
    assert card["finished"]
    assert card.get("for_reward", True) is (family != "letters")
    assert card["training texts"] == {"rude": 80, "all": 80}  # not the copy of a test text
    assert (card["data"], card["says"]) == (["mine"], "How rude.")
    rude, nice = load_scorer(str(out), "cpu").score(["you are a clown", "you are a poet"])
    assert rude > nice
    capsys.readouterr()
    assert run([*asked, "--epochs", "8"]) == 2
    assert "already trained" in capsys.readouterr().err
    assert run([*asked, "--epochs", "9"]) == 2
    assert "another scorer" in capsys.readouterr().err


def test_the_same_command_gives_the_same_weights(data: Path, tmp_path: Path) -> None:
    cards = []
    for name in ("one", "two"):
        asked = ["train-scorer", "--data", str(data), "--out", str(tmp_path / name), "--epochs", "1", *SMALL]
        assert run(asked) == 0
        cards.append(json.loads((tmp_path / name / "card.json").read_text())["sha256"])
    assert cards[0] == cards[1]


@pytest.mark.parametrize(
    ("flags", "phrase"),
    [
        ([], "--data"),
        (["--data", "nosuch"], "is no folder"),
        (["--data", "."], "has no train.jsonl"),
        (["--data", "one_sided"], "needs toxic and harmless texts"),
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
    (tmp_path / "one_sided").mkdir()
    for name in ("train", "valid"):
        (tmp_path / "one_sided" / f"{name}.jsonl").write_text('{"text": "you fool", "toxic": true}\n')
    assert run(["train-scorer", "--out", "new", *flags]) == 2
    assert phrase in capsys.readouterr().err


def test_foreign_files_are_left_alone(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    assert run(["train-scorer", "--data", str(data), "--out", str(tmp_path / "mine")]) == 2
    assert "holds other files" in capsys.readouterr().err
