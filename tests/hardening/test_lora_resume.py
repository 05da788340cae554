"""A killed hardening of a Hugging Face model ends where the unbroken one does; bad input is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtalk.cli import run
from backtalk.hardening import flow
from tests.hardening.commands import command, read, trained
from tests.killing import kill_once_there
from tests.rude import ends_before_an_update

pytestmark = pytest.mark.usefixtures("one_thread", "in_an_empty_folder")


def test_killed_in_the_middle_it_ends_with_the_same_adapter(place: Path, hardened: Path) -> None:
    broken = command(place, "broken", "--checkpoint-s", "0", "--no-audits")
    for killed_after in ("checkpoint.safetensors", "model"):
        kill_once_there(broken, Path("broken", killed_after))
    assert not Path("broken/summary.json").exists()
    assert run(command(place, "broken", "--no-audits")) == 0
    name = "model/adapter_model.safetensors"
    assert Path("broken", name).read_bytes() == (hardened / name).read_bytes()
    assert trained(Path("broken")) == trained(hardened)
    told = [read(out / "summary.json") for out in (Path("broken"), hardened)]
    assert told[0]["cost"] == told[1]["cost"]


def test_the_same_command_shows_it_again_and_changes_nothing(
    place: Path, hardened: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [hardened / "model" / "adapter_model.safetensors", *hardened.glob("audits/*/*/run.sqlite")]
    assert len(files) == 1 + 2 * 4
    before = [file.stat().st_mtime_ns for file in files]
    told = read(hardened / "summary.json")
    assert run(command(place, str(hardened))) == 0
    shown = capsys.readouterr()
    assert "Measuring" not in shown.err
    words = " ".join(shown.out.split())
    assert all(name in words for name in ("12 of 12", "0 of 12", "20 of 20", "report.html"))
    assert "f***" in words or "fool" not in words  # what is offensive is masked
    assert [file.stat().st_mtime_ns for file in files] == before
    assert read(hardened / "summary.json") == told


def test_time_ends_training_and_what_it_came_to_is_measured(place: Path, planted: Path) -> None:
    flags = ["--iterations", "500", "--hit", "contains", "--lr", "0.00001", "--max-time", "4s", "--no-audits"]
    assert run(command(place, "short", *flags, "--measure", "4")) == 0
    assert 0 < len(read(Path("short/summary.json"))["hardening"]["candidates"]) < 500


def test_time_that_ends_before_an_update_is_said(
    place: Path, planted: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "check_time", ends_before_an_update)
    flags = ["--hit", "contains", "--no-audits", "--measure", "4"]
    assert run(command(place, "hasty", *flags)) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "the time was over before its first update" in told
    assert "was hit" not in told
    assert read(Path("hasty/summary.json"))["hardening"]["updates"] == 0


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--findings", ""], "name what was found"),
        (["--targets", "mal"], "--targets is for models of ours"),
        (["--findings", "none.jsonl"], "none.jsonl"),
        (["--hit", "io-sample-avg-k1"], "can't aim at"),
        (["--length", "3"], "--length belongs to models of ours"),
        (["--against", "frequent"], "models of ours"),
        (["--method", "gan"], "--method gan"),
        (["--rank", "0"], "--rank should not be 0; the range is 1 to "),
        (["--r-thres", "3%"], "--r-thres belongs to --against frequent"),
        (["--reward", "toxicity"], "--reward does nothing"),
        (["--lora-layers", "nope"], "names no layer"),
    ],
)
def test_bad_input_is_one_sentence(
    place: Path, planted: Path, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(command(place, "out", "--no-audits", "--measure", "2", *flags)) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_flags_of_adapters_are_refused_for_models_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["harden", "--rank", "8", "--device", "cpu"]) == 2
    assert "--rank belongs to Hugging Face models" in capsys.readouterr().err
