"""`backtalk train` from end to end on a made-up corpus: what it writes, and that nothing is lost when it is
stopped, killed, or out of room."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from backtalk.cli import run
from backtalk.models.folder import load_folder, sha256
from backtalk.types import Turn
from tests.killing import files_no_larger_than, finish, start

FILES = {"config.json", "vocab.json", "model.safetensors", "card.json"}
OURS = {".backtalk", ".lock"}
"""What says whose folder it is, and who writes to it."""
OPENERS = ("hello", "why", "please", "well", "stop", "maybe")
ANSWERS = ("hi there .", "because .", "of course !", "well what ?", "i will n't", "maybe so , maybe not .")
REST = ("you", "the dog", "we all", "my friend", "the long day", "a cat and a dog")
SMALL = ["--embedding", "8", "--hidden", "12", "--batch", "16", "--lr", "0.01", "--device", "cpu"]


pytestmark = pytest.mark.usefixtures("one_thread")


def write_corpus(path: Path, count: int = 200, seed: int = 0) -> Path:
    """The first word fixes the reply."""
    draw = random.Random(seed)
    rows = []
    for number in range(count):
        kind = draw.randrange(len(OPENERS))
        rows.append(f"{OPENERS[kind]} {draw.choice(REST)} {number}\t{ANSWERS[kind]}\n")
    path.write_text("".join(rows))
    return path


def read_card(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / "card.json").read_text())
    return card


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def times(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*")}


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    assert line.startswith("backtalk: ")
    return line


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a corpus, a test file and a trained model."""
    place = tmp_path_factory.mktemp("train")
    write_corpus(place / "pairs.tsv")
    write_corpus(place / "test.tsv", 30, seed=1)
    assert run(train_command(place)) == 0
    return place


def train_command(place: Path, *more: str, out: str = "model") -> list[str]:
    return [
        "train", "--data", str(place / "pairs.tsv"), "--test", str(place / "test.tsv"),
        "--out", str(place / out), "--epochs", "2", "--licence", "CC0", *SMALL, *more,
    ]  # fmt: skip


def test_the_folder_is_whole(place: Path) -> None:
    out = place / "model"
    assert {path.name for path in out.iterdir()} == {*FILES, *OURS, "lm"}
    assert {path.name for path in (out / "lm").iterdir()} == FILES
    model = load_folder(str(out), "cpu")
    assert model.language_model is not None
    assert model.reply([(Turn("user", "hello you"),)])[0]


def test_the_card_says_what_was_measured(place: Path) -> None:
    card, lm = read_card(place / "model"), read_card(place / "model" / "lm")
    assert card["finished"] is True
    assert card["name"] == "model"
    assert card["licence"] == "CC0"
    assert card["sha256"] == sha256(place / "model" / "model.safetensors")
    assert lm["sha256"] == sha256(place / "model" / "lm" / "model.safetensors")
    assert card["T_in"] == lm["T_in"]
    assert card["language_model_test_perplexity"] == lm["test_perplexity"]
    # 200 pairs, each a dialogue of its own: 10 for validation, 10 set aside though a test file is given.
    assert card["pairs"] == {"train": 180, "valid": 10, "test": 30}
    assert card["spec"]["hidden"] == 12
    # The numbers again, by another way: each test reply by itself, through the loaded model.
    model = load_folder(str(place / "model"), "cpu")
    rows = [line.split("\t") for line in (place / "test.tsv").read_text().splitlines()]
    scores = model.log_prob([(Turn("user", text),) for text, _ in rows], [reply for _, reply in rows])
    tokens = [score for row in scores for score in row]
    assert card["T_out"] == pytest.approx(sum(tokens) / len(tokens), abs=1e-5)
    assert card["test_perplexity"] == pytest.approx(2.718281828 ** -card["T_out"], abs=0.01)


def test_the_same_command_again_changes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = times(place / "model")
    # What does not change the training may differ.
    assert run(train_command(place, "--checkpoint-s", "5")) == 0
    assert "already trained" in " ".join(capsys.readouterr().err.split())
    assert times(place / "model") == before


def test_other_settings_are_refused_by_name(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = times(place / "model")
    assert run(train_command(place, "--hidden", "13", "--clip", "4")) == 2
    line = one_line(capsys.readouterr().err)
    assert "(hidden, clip)" in line
    assert "--fresh" in line
    assert times(place / "model") == before


def test_a_card_without_the_language_models_numbers_is_completed(place: Path) -> None:
    """A kill between the two cards leaves it so."""
    card = read_card(place / "model")
    short = {k: v for k, v in card.items() if k not in {"T_in", "language_model_test_perplexity"}}
    (place / "model" / "card.json").write_text(json.dumps(short))
    assert run(train_command(place)) == 0
    assert read_card(place / "model") == card


def test_fresh_trains_anew_but_not_before_the_data_is_there(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(train_command(place, "--no-language-model", out="again")) == 0
    out = place / "again"
    first = everything(out)
    assert first.keys() == FILES | OURS
    capsys.readouterr()
    missing = train_command(place, "--fresh", "--no-language-model", "--data", "no-such-file", out="again")
    assert run(missing) == 2
    assert "no-such-file" in one_line(capsys.readouterr().err)
    assert everything(out) == first
    assert run(train_command(place, "--fresh", "--no-language-model", "--hidden", "13", out="again")) == 0
    assert read_card(out)["spec"]["hidden"] == 13
    assert everything(out)["model.safetensors"] != first["model.safetensors"]
    assert run(train_command(place, "--fresh", "--no-language-model", out="again")) == 0
    assert everything(out)["model.safetensors"] == first["model.safetensors"], "same seed, same weights"


def test_a_language_model_may_be_added_later(place: Path) -> None:
    assert run(train_command(place, "--no-language-model", out="later")) == 0
    assert "T_in" not in read_card(place / "later")
    before = (place / "later" / "model.safetensors").stat().st_mtime_ns
    assert run(train_command(place, out="later")) == 0
    assert (place / "later" / "model.safetensors").stat().st_mtime_ns == before
    assert read_card(place / "later")["T_in"] == read_card(place / "later" / "lm")["T_in"]


@pytest.mark.parametrize("arch", ["last-h", "lm"])
def test_other_architectures_from_a_yaml_file(place: Path, tmp_path: Path, arch: str) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        f"data: {place / 'pairs.tsv'}\nout: {tmp_path / 'm'}\narch: {arch}\nepochs: 9\nembedding: 8\n"
        "hidden: 12\nhalf: true\ndevice: cpu\nlanguage-model: false\noptimizer: sgd\nlr: 0.5\n"
    )
    assert run(["train", "--config", str(spec), "--epochs", "1"]) == 0
    card = read_card(tmp_path / "m")
    assert card["spec"]["epochs"] == 1, "flags win over the file"
    assert card["spec"]["optimizer"] == "sgd"
    assert card["licence"] == "as its owner says"
    assert ("T_in" if arch == "lm" else "T_out") in card
    assert json.loads((tmp_path / "m" / "config.json").read_text())["kind"] == (
        "lm" if arch == "lm" else "seq2seq"
    )


def test_a_folder_with_other_files_is_left_alone(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = place / "theirs"
    for name, text in (("notes.txt", "mine"), ("config.json", '{"architectures": ["Other"]}')):
        theirs.mkdir(exist_ok=True)
        (theirs / name).write_text(text)
        for more in ([], ["--fresh"]):
            assert run(train_command(place, *more, out="theirs")) == 2
            assert "holds other files" in one_line(capsys.readouterr().err)
            assert (theirs / name).read_text() == text


@pytest.mark.parametrize("left", ["checkpoint.safetensors.partial", ".backtalk.partial"])
def test_a_training_killed_at_its_first_write_is_taken_up(place: Path, left: str, tmp_path: Path) -> None:
    out = tmp_path / "m"
    out.mkdir()
    (out / left).write_bytes(b"half a file")
    (out / ".lock").touch()
    if left.startswith("checkpoint"):
        (out / ".backtalk").write_text("train\n")
    command = train_command(place, "--no-language-model")
    command[command.index("--out") + 1] = str(out)
    assert run(command) == 0
    assert sha256(out / "model.safetensors") == sha256(place / "model" / "model.safetensors")


def test_a_full_disk_is_one_line_and_the_same_command_goes_on(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = train_command(place, "--no-language-model", out="full")
    with files_no_larger_than(20_000):
        assert run(command) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "the checkpoint" in line
    assert run(command) == 0
    assert {path.name for path in (place / "full").iterdir()} == FILES | OURS
    assert sha256(place / "full" / "model.safetensors") == sha256(place / "model" / "model.safetensors")


# --- killed and stopped --------------------------------------------------------------------------------

KILLS = 4
EPOCHS = 5
STEPS = EPOCHS * 11
"""Of each of the two networks: 180 training pairs in batches of 16."""


def begin(place: Path, out: str) -> BaseProcess:
    """The command as a process, a checkpoint after every step; what it says goes to a file beside `out`."""
    flags = ["--epochs", str(EPOCHS), "--dropout", "0.2", "--name", "m", "--checkpoint-s", "0"]
    return start(train_command(place, *flags, out=out), errors=str(place / f"{out}.txt"))


def steps_done(out: Path) -> int:
    """Steps of both networks that the folder holds."""
    for folder, before in ((out / "lm", STEPS), (out, 0)):
        try:
            with (folder / "checkpoint.safetensors").open("rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            return before + int(json.loads(header["__metadata__"]["facts"])["step"])
        except FileNotFoundError:
            continue
    return 0


def wait_for(process: BaseProcess, out: Path, steps: int) -> None:
    end = time.monotonic() + 300
    while process.is_alive() and steps_done(out) < steps:
        assert time.monotonic() < end, "training stands still"
        time.sleep(0.001)


@pytest.fixture(scope="module")
def unbroken(place: Path) -> dict[str, bytes]:
    assert finish(begin(place, "unbroken")) == 0, (place / "unbroken.txt").read_text()
    found = everything(place / "unbroken")
    assert found.keys() == FILES | OURS | {f"lm/{name}" for name in FILES}
    return found


def test_killed_or_stopped_at_any_moment_the_model_is_the_same(
    place: Path, unbroken: dict[str, bytes]
) -> None:
    draw = random.Random(20)
    out = place / "broken"
    signals = [signal.SIGKILL] * KILLS
    signals.insert(2, signal.SIGINT)  # Ctrl-C
    moments = sorted(draw.sample(range(1, 2 * STEPS - 5), len(signals)))
    for moment, number in zip(moments, signals, strict=True):
        process = begin(place, "broken")
        wait_for(process, out, moment)
        assert process.pid is not None
        os.kill(process.pid, number)
        status = finish(process)
        if number == signal.SIGKILL:
            assert status == -signal.SIGKILL
        else:
            assert_stopped(status, (place / "broken.txt").read_text())
        assert steps_done(out) >= moment, "what was saved is still there"
    assert finish(begin(place, "broken")) == 0, (place / "broken.txt").read_text()
    assert everything(out) == unbroken


def assert_stopped(status: int | None, error: str) -> None:
    """Ctrl-C: one line of ours, the last, and no traceback."""
    assert status == 2
    assert "Traceback" not in error
    own = [line for line in error.splitlines() if "backtalk:" in line]
    assert own == [error.splitlines()[-1]]
    assert own[0].startswith("backtalk: stopped; ")
