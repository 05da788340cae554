"""`backtalk chat`, through its command: what it prints for what it is told."""

from __future__ import annotations

import io
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import backtalk
from backtalk.cli import run
from backtalk.data.tokenise import detokenise
from backtalk.models.folder import load_folder
from backtalk.models.lstm.model import LocalModel
from backtalk.types import Turn
from backtalk.wording import chance
from tests.models.test_contract import small_folder

SHOUT = "py:tests.talkers:shout"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("chat") / "m"
    small_folder(path)
    return str(path)


@pytest.fixture(scope="module")
def model(folder: str) -> LocalModel:
    return load_folder(folder, "cpu")


def escape_sequence(conversation: list[dict[str, str]]) -> str:
    """A model for `py:` that tries to clear the screen, and counts the turns."""
    return f"\x1b[2J{len(conversation)} turns\u202e"


class Pipe:
    """What a test types into the command, and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def chat(self, *argv: str) -> list[str]:
        self.capsys.readouterr()
        assert run(["chat", "--device", "cpu", *argv]) == 0
        printed = self.capsys.readouterr()
        assert printed.err == ""
        return printed.out.splitlines()


@pytest.fixture
def pipe(capsys: pytest.CaptureFixture[str]) -> Pipe:
    return Pipe(capsys)


def test_say_prints_both_sides(pipe: Pipe, folder: str, model: LocalModel) -> None:
    lines = pipe.chat("--model", folder, "--say", "you go", "--say", "stop")
    replies = [model.reply([(Turn("user", text),)])[0] for text in ("you go", "stop")]
    assert lines == [
        "you> you go",
        f"{folder}> {replies[0]}",
        "you> stop",
        f"{folder}> {replies[1]}",
    ]


def test_a_beam_shows_its_sentences_best_first(pipe: Pipe, folder: str, model: LocalModel) -> None:
    lines = pipe.chat("--model", folder, "--say", "you go", "--beam", "4")
    (best,) = model.beams([(Turn("user", "you go"),)], 4)
    assert lines[1] == f"{folder}> {best[0][0]}"
    assert lines[2:] == [f"    {chance(log_prob)}  {text}" for text, log_prob in best]
    assert len(lines) == 6


def test_samples_follow_their_seed(pipe: Pipe, folder: str) -> None:
    def sampled(*more: str) -> list[str]:
        return pipe.chat("--model", folder, "--say", "you go", "--say", "you go", "--sample", *more)

    first = sampled("--seed", "1")
    assert sampled("--seed", "1") == first
    assert sampled("--seed", "2") != first
    assert first[1] != first[3], "two utterances of one chat are sampled apart"


@pytest.mark.parametrize("how", [[], ["--sample", "--seed", "3"], ["--sample", "--seed", "8"]])
def test_the_words_chances_multiply_to_the_replys(pipe: Pipe, folder: str, how: list[str]) -> None:
    _, reply, line = pipe.chat("--model", folder, "--say", "yes we do", "--probabilities", *how)
    words, whole = re.fullmatch(r"    (.*)   \(whole reply: (.*)\)", line).groups()  # type: ignore[union-attr]
    parts = [part.rsplit(" ", 1) for part in words.split("  ")]
    shares = [float(percent.removesuffix("%")) / 100 for _, percent in parts]
    # Each is printed to a tenth of a percent.
    low = math.prod(max(0.0, share - 0.0005) for share in shares)
    high = math.prod(share + 0.0005 for share in shares)
    # The whole is printed to a percent, to two digits, or to a power of ten.
    if whole.endswith("%"):
        share = float(whole.removeprefix("over ").removesuffix("%")) / 100
        printed = share - 0.005, share + 0.01
    elif "^" in whole:
        power = float(whole.split("^")[1])
        printed = 10 ** (-power - 0.5), 10 ** (-power + 0.5)
    else:
        count, *scale = whole.removeprefix("1 in ").replace(",", "").split()
        total = float(count) * {"million": 1e6, "billion": 1e9, "trillion": 1e12}.get("".join(scale), 1)
        printed = 1 / (total * 1.06), 1 / (total * 0.94)
    assert low <= printed[1]
    assert printed[0] <= high
    assert high < 1.5
    shown = [word for word, _ in parts if word not in {"(end)", "<pad>"}]
    assert reply == f"{folder}> {detokenise(shown)}"


def test_what_a_model_says_cannot_steer_the_terminal(pipe: Pipe) -> None:
    name = "py:tests.web.test_chat:escape_sequence"
    lines = pipe.chat("--model", name, "--say", "a\x1b[31m", "--say", "b")
    assert lines == ["you> a[31m", f"{name}> [2J1 turns", "you> b", f"{name}> [2J3 turns"]


def test_brackets_are_not_read_as_markup(pipe: Pipe) -> None:
    lines = pipe.chat("--model", "py:tests.talkers:shout", "--say", "[bold]x[/bold] [/]")
    assert lines[0] == "you> [bold]x[/bold] [/]"
    assert lines[1].endswith("> [BOLD]X[/BOLD] [/]")


class Typed(io.TextIOWrapper):
    """Standard input with given bytes, from a pipe or a keyboard."""

    def __init__(self, data: bytes, keyboard: bool = False) -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8")
        self.keyboard = keyboard

    def isatty(self) -> bool:
        return self.keyboard


def test_lines_of_a_pipe_are_answered_one_by_one(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Typed("hello\n\n   \nzwölf\nno end of line".encode()))
    lines = pipe.chat("--model", "py:tests.talkers:shout")
    said = [line.partition("> ")[2] for line in lines]
    assert said == ["hello", "HELLO", "zwölf", "ZWÖLF", "no end of line", "NO END OF LINE"]


@pytest.mark.parametrize("typed", [b"hi\n\nnot read\n", b"hi\n"], ids=["empty line", "Ctrl-D"])
def test_at_a_keyboard_an_empty_line_or_the_end_leaves(
    typed: bytes, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Typed(typed, keyboard=True))
    text = "\n".join(pipe.chat("--model", "py:tests.talkers:shout"))
    assert text.startswith("Talking with py:tests.talkers:shout.")
    assert "> HI" in text
    assert "NOT READ" not in text


def test_a_pipe_that_is_no_text_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", Typed(b"\xff\xfe\x00bad\n"))
    assert run(["chat", "--model", "py:tests.talkers:shout"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("is not UTF-8 text")


def test_as_a_process_of_its_own(folder: str, model: LocalModel) -> None:
    source = str(Path(backtalk.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-m", "backtalk", "chat", "--model", folder, "--device", "cpu"],
        input="you go\nstop\n",
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    replies = [model.reply([(Turn("user", text),)])[0] for text in ("you go", "stop")]
    assert [line.partition("> ")[2] for line in done.stdout.splitlines()] == [
        "you go",
        replies[0],
        "stop",
        replies[1],
    ]
