"""`backtalk harden --against frequent` from end to end: a model that says one thing to everything says more,
the pairs that measure were never used, and a killed hardening ends where the unbroken one does."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from backtalk.cli import run
from backtalk.data.corpora import reference_pairs
from backtalk.hardening.methods.negative import Negative
from backtalk.models.folder import load_embedded, load_folder
from backtalk.specs import parse_share
from backtalk.specs.harden import Frequent
from backtalk.training.frequent import FrequentConfig
from backtalk.training.pairs import read_pairs
from backtalk.training.resumable import load_checkpoint
from backtalk.types import Turn
from tests.killing import kill_once_there

OPENERS = ("hello", "why", "please", "well", "stop", "maybe")
ANSWERS = ("hi there", "because", "of course", "well what", "i will", "maybe so")
REST = ("you", "the dog", "we all", "my friend", "the day", "a cat")
DULL = "i do not know"
WEIGHTS = "model/model.safetensors"


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of pairs of which a little more than half have the same reply: greedy gives no other."""
    place = tmp_path_factory.mktemp("dull")
    draw = random.Random(0)
    lines = []
    for _ in range(600):
        kind = draw.randrange(len(OPENERS))
        reply = DULL if draw.random() < 0.55 else ANSWERS[kind]
        lines.append(f"{OPENERS[kind]} {draw.choice(REST)}\t{reply}")
    (place / "pairs.tsv").write_text("\n".join(lines) + "\n")
    (place / "window.yaml").write_text("published: {window: 5}\n")
    (place / "eos.yaml").write_text("published: {window: 5, eos_scale: 1}\n")
    command = ["train", "--data", str(place / "pairs.tsv"), "--out", str(place / "model"), "--epochs", "10"]
    sizes = ["--embedding", "12", "--hidden", "24", "--batch", "32", "--lr", "0.01", "--device", "cpu"]
    assert run([*command, *sizes, "--no-language-model"]) == 0
    return place


def harden_command(place: Path, out: str, *more: str) -> list[str]:
    return [
        "harden", "--against", "frequent", "--model", str(place / "model"), "--r-thres", "20%",
        "--config", str(place / "window.yaml"), "--steps-per-iteration", "20", "--iterations", "4",
        "--lr", "0.01", "--max-ppl-increase", "50%", "--out", out, "--device", "cpu", *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def hardened(place: Path) -> Path:
    assert run(harden_command(place, str(place / "hardened"))) == 0
    return place / "hardened"


def read(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def replies(folder: Path) -> Counter[str]:
    model = load_folder(str(folder), "cpu")
    return Counter(model.reply([(Turn("user", f"{a} {b}"),) for a in OPENERS for b in REST]))


# --- a planted weakness --------------------------------------------------------------------------------


def test_a_model_that_says_one_thing_says_more(place: Path, hardened: Path) -> None:
    before, after = replies(place / "model"), replies(hardened / "model")
    assert before.most_common(1) == [("I do not know", 36)]
    assert after.most_common(1)[0][1] <= 28
    assert len(after) >= 3
    cost = read(hardened / "summary.json")["cost"]
    assert cost["most_said"][0] == cost["real_most_said"] == "I do not know"
    assert cost["commonest"][0] == cost["pairs"] == 30
    assert cost["commonest"][1] <= 24
    assert cost["distinct_1"][1] > cost["distinct_1"][0]


def test_the_numbers_of_the_real_replies_by_hand(place: Path, hardened: Path) -> None:
    model = load_folder(str(place / "model"), "cpu")
    pairs = read_pairs("", "auto", model, 1000, 1, apart=True)
    cost = read(hardened / "summary.json")["cost"]
    texts = [reply for _, reply in pairs.measured_texts]
    assert cost["real"]["commonest"] == texts.count(DULL)
    assert cost["real"]["length"] == pytest.approx(sum(len(text.split()) for text in texts) / len(texts))


def test_the_lowest_max_ratio_within_the_bound_is_kept(place: Path, hardened: Path) -> None:
    card = read(hardened / "model/card.json")
    told = card["hardening"]
    base = told["candidates"][0]["perplexity"]
    allowed = [one for one in told["candidates"] if one["perplexity"] <= 1.5 * base]
    best = min(allowed, key=lambda one: (one["hits"], one["perplexity"]))
    assert told["iterations_kept"] == best["iterations"] > 0
    assert told["perplexity_after"] == best["perplexity"]
    assert (told["against"], told["method"], told["r_thres"], told["window"]) == (
        "frequent", "negative", 0.2, 5
    )  # fmt: skip
    parent = read(place / "model/card.json")
    assert card["parent"]["name"] == str(place / "model")
    assert card["T_out"] == parent["T_out"]
    measured = read(hardened / "summary.json")["cost"]["perplexity"]
    assert card["test_perplexity"] == pytest.approx(measured[1], abs=0.01)
    assert measured[0] == pytest.approx(parent["test_perplexity"], abs=0.01)


def test_pairs_that_train_choose_and_measure_are_different_ones(tmp_path: Path) -> None:
    model = load_embedded("chitchat", "cpu")
    words = [word for word in model.vocabulary.entries if word.isalpha()][:200]
    (tmp_path / "pairs.tsv").write_text("".join(f"what is {word}\tno idea\n" for word in words))
    pairs = read_pairs("pairs.tsv", "auto", model, 1000, 1, apart=True)
    assert pairs.selection is not None
    parts = [set(map(tuple, part.inputs)) for part in (pairs.positive, pairs.selection, pairs.measured)]
    assert [len(part) for part in parts] == [180, 10, 10]
    assert len(set.union(*parts)) == 200
    joined = read_pairs("pairs.tsv", "auto", model, 1000, 1)
    assert joined.selection is None
    assert set(map(tuple, joined.measured.inputs)) == parts[1] | parts[2]  # where nothing is apart
    assert pairs.digest() != joined.digest()


# --- the folder ----------------------------------------------------------------------------------------


def test_the_same_command_shows_it_again_and_changes_nothing(
    place: Path, hardened: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (hardened / WEIGHTS).stat().st_mtime_ns
    assert run(harden_command(place, str(hardened))) == 0
    shown = capsys.readouterr()
    assert "Measuring" not in shown.err
    words = " ".join(shown.out.split())
    assert "max-ratio" in words
    assert "real replies" in words
    assert "I do not know" in (hardened / "report.html").read_text()
    assert (hardened / WEIGHTS).stat().st_mtime_ns == before
    assert not (hardened / "checkpoint.safetensors").exists()
    assert run(harden_command(place, str(hardened), "--config", str(place / "eos.yaml"))) == 2
    assert "other settings (eos_scale)" in capsys.readouterr().err


def test_the_hardened_model_can_be_asked_audited_and_hardened_again(place: Path, hardened: Path) -> None:
    model = str(hardened / "model")
    assert run(["chat", "--model", model, "--say", "hello you", "--device", "cpu"]) == 0
    Path("targets.txt").write_text("you stop\n")
    small = ["--hit", "o-sample-avg-k1", "--length", "2", "--top", "5", "--sweeps", "1", "--restarts", "1"]
    audit = ["audit", "--model", model, "--targets", "targets.txt", "--out", "run", "--device", "cpu"]
    assert run([*audit, *small]) == 0
    again = harden_command(place, "again", "--iterations", "1")
    again[again.index("--model") + 1] = model
    assert run(again) == 0
    assert read(Path("again/model/card.json"))["parent"]["name"] == model


def test_killed_in_the_middle_it_ends_with_the_same_weights(place: Path) -> None:
    """In mini-batches, whose order counts, and late enough for updates to have been made."""
    assert run(harden_command(place, "whole", "--batch", "16")) == 0
    command = harden_command(place, "broken", "--batch", "16", "--checkpoint-s", "0")
    kill_once_there(command, Path("broken/checkpoint.safetensors"), written=20)
    checkpoint = load_checkpoint(Path("broken/checkpoint.safetensors"), with_tensors=False)
    assert checkpoint is not None
    assert checkpoint[1]["updates"] > 0
    assert not Path("broken/summary.json").exists()
    assert run(harden_command(place, "broken", "--batch", "16")) == 0
    assert Path("broken", WEIGHTS).read_bytes() == Path("whole", WEIGHTS).read_bytes()
    told = [read(Path(out, "summary.json"))["hardening"] for out in ("broken", "whole")]
    for part in ("candidates", "steps"):
        first, second = ([{**row, "seconds": 0} for row in one[part]] for one in told)
        assert first == second


def test_time_ends_training_and_fresh_starts_anew(place: Path, hardened: Path) -> None:
    assert run(harden_command(place, "out", "--iterations", "5000", "--max-time", "1s")) == 0
    assert len(read(Path("out/summary.json"))["hardening"]["candidates"]) < 500
    assert run(harden_command(place, "out", "--fresh")) == 0
    assert Path("out", WEIGHTS).read_bytes() == (hardened / WEIGHTS).read_bytes()


def test_the_gan_shares_the_way(place: Path) -> None:
    command = ["harden", "--against", "frequent", "--method", "gan", "--model", str(place / "model")]
    sizes = ["--gan-filters", "4", "--gan-hidden", "8", "--steps-per-iteration", "8", "--iterations", "2"]
    assert run([*command, *sizes, "--gan-lr", "0.01", "--out", "gan", "--device", "cpu"]) == 0
    told = read(Path("gan/summary.json"))["hardening"]
    assert (told["method"], told["gan_lr"], told["gan_filters"]) == ("gan", 0.01, 4)
    assert told["candidates"][-1]["updates"] == 2 * 2 * 2  # every fourth step: generator and positive
    assert "r_thres" not in told
    control = [*command, *sizes, "--gan-lr", "0", "--out", "control", "--device", "cpu"]
    assert run(control) == 0
    told = read(Path("control/summary.json"))["hardening"]
    assert (told["gan_lr"], told["candidates"][-1]["updates"]) == (0.0, 2 * 2)


def test_the_embedded_model_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [f"{text}\t{reply}" for text, reply in reference_pairs("")[:300] if "\t" not in text + reply]
    (tmp_path / "pairs.tsv").write_text("\n".join(pairs) + "\n")
    command = ["harden", "--against", "frequent", "--data", "pairs.tsv", "--out", "out", "--device", "cpu"]
    Path("window.yaml").write_text("published: {window: 2}\n")
    small = ["--batch", "8", "--config", "window.yaml", "--steps-per-iteration", "6", "--iterations", "1"]
    assert run([*command, *small, "--kl", "1", "--r-thres", "5%"]) == 0
    assert "out/model" in " ".join(capsys.readouterr().out.split())
    assert run(["chat", "--model", "out/model", "--say", "hello there", "--device", "cpu"]) == 0


# --- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--targets", "mine.txt"], "--targets belongs to --against targets"),
        (["--hit", "contains"], "--hit belongs to --against targets"),
        (["--rounds", "3"], "--rounds belongs to --against targets"),
        (["--r-thres", "often"], "--r-thres should be a number"),
        (["--r-thres", "100%"], "--r-thres should read like 5%"),
        (["--gan-lr", "0.01"], "--gan-lr belongs to --method gan"),
        (["--method", "gan", "--r-thres", "3%"], "with a method that counts replies"),
        (["--method", "gan", "--gan-hidden", "0"], "--gan-hidden should not be 0; the range is 1 to "),
        (["--method", "gan", "--gan-lr", "-1"], "gan-lr should not be -1.0"),
        (["--method", "gan", "--gan-lr", "0", "--config", "none.yaml"], "--kl above 0"),
        (["--model", "sealed:chitchat"], "needs its weights"),
        (["--iterations", "1"], "100 mini-batches never fill a window of 200"),
        (["--against", "targets", "--r-thres", "5%"], "--r-thres belongs to --against frequent"),
        (["--against", "targets", "--method", "gan"], "add --against frequent"),
        (["--against", "often"], "often"),
    ],
)
def test_bad_input_is_one_sentence(flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("none.yaml").write_text("published: {lambda_pos: 0}\n")
    Path("pairs.tsv").write_text("\n".join(f"hello {i}\tgood day" for i in range(40)) + "\n")
    assert run(["harden", "--against", "frequent", "--data", "pairs.tsv", "--device", "cpu", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not Path("hardened").exists()


def test_the_papers_numbers_are_the_defaults() -> None:
    config = FrequentConfig(method=Negative())
    assert (config.window, config.eos_scale, config.always_positive) == (200, 0.1, False)
    assert parse_share(Frequent().r_thres, "it") == config.r_thres == 0.01
