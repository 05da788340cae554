"""`backtalk harden --augment` from end to end at a tiny size: what it tells, a kill, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.cli import run
from backtalk.data.targets import read_targets
from tests.killing import kill_once_there

TARGETS = ("go away", "you are slow", "i am loud", "stop it", "you bore me", "i will go")
PAIRS = (
    "just go\tplease stop it",
    "you are so slow\ti am really loud",
    "you bore me\ti will go away",
    "i'm slow\tyou're loud",
    "really\ti'll go",
    "please go\tjust stop",
    "i am so loud\tyou are really slow",
)


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("small")
    (place / "pairs.tsv").write_text("\n".join(PAIRS * 20) + "\n")
    (place / "targets.txt").write_text("\n".join(TARGETS) + "\n")
    command = ["train", "--data", str(place / "pairs.tsv"), "--out", str(place / "model"), "--epochs", "3"]
    assert run([*command, "--embedding", "8", "--hidden", "12", "--lr", "0.01", "--device", "cpu"]) == 0
    return place


def harden_command(place: Path, out: str, *more: str) -> list[str]:
    return [
        "harden", "--model", str(place / "model"), "--targets", str(place / "targets.txt"),
        "--hit", "o-sample-avg-k1", "--avoid", "none", "--length", "2", "--top", "10", "--sweeps", "2",
        "--search-sweeps", "2", "--restarts", "1", "--iterations", "3", "--rounds", "4",
        "--max-ppl-increase", "50%", "--kl", "10", "--escalate", "0", "--out", out, "--device", "cpu", *more,
    ]  # fmt: skip


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text())
    return value


@pytest.fixture(scope="module")
def hardened(place: Path) -> Path:
    assert run(harden_command(place, str(place / "hardened"), "--augment", "1")) == 0
    return place / "hardened"


def test_the_training_list_alone_is_widened_and_told_of(place: Path, hardened: Path) -> None:
    train, selection, held_out = (
        read_targets(hardened / f"{name}.jsonl") for name in ("train", "selection", "held-out")
    )
    assert len(selection) + len(held_out) == 2
    added = [target for target in train if target.origin]
    assert 1 <= len(added) <= 4
    assert len(train) == 4 + len(added)
    assert not {target.text for target in added} & {target.text for target in selection + held_out}
    for told in (read(hardened / "model" / "card.json"), read(hardened / "summary.json")):
        assert told["hardening"]["lists"]["train"] == len(train)
        assert told["hardening"]["augmentation"]["added"] == len(added)
        assert sum(told["hardening"]["augmentation"]["removed"].values()) >= 0
    assert read(hardened / "hardening.json")["augment"] == 1


def test_the_preflight_says_how_many_were_added_and_removed(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(harden_command(place, "out", "--augment", "2", "--iterations", "1")) == 0
    said = capsys.readouterr().err
    assert "paraphrases added; removed:" in " ".join(said.split())
    assert "words that the model does not know" in " ".join(said.split())


def test_killed_in_the_middle_it_ends_with_the_same_weights(place: Path, hardened: Path) -> None:
    command = harden_command(place, "broken", "--augment", "1", "--checkpoint-s", "0")
    kill_once_there(command, Path("broken/checkpoint.safetensors"))
    assert not Path("broken/summary.json").exists()
    assert run(command) == 0
    name = "model/model.safetensors"
    assert Path("broken", name).read_bytes() == (hardened / name).read_bytes()
    assert Path("broken/train.jsonl").read_text() == (hardened / "train.jsonl").read_text()


def test_another_number_of_paraphrases_is_another_hardening(
    place: Path, hardened: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(harden_command(place, str(hardened), "--augment", "2")) == 2
    assert "other settings (augment, lists_sha256)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--augment", "-1"], "augment should not be -1"),
        (["--augment", "1.5"], "should be a whole number"),
        (["--augment", "1", "--targets", "odd.txt"], "no paraphrase of the"),
    ],
)
def test_bad_input_is_one_sentence(
    place: Path, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("odd.txt").write_text("slow slow\nme stop\nloud loud\naway away\nbore bore\n")
    assert run(harden_command(place, "out", *flags)) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not Path("out").exists()
