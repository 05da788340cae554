"""`backtalk score`: lines in, numbers out, masked on a screen, whole in a file; a gate; streams."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from backtalk.cli import run
from backtalk.cli.score import CHUNK, score_lines
from backtalk.cli.score_card import shipped_texts
from backtalk.registry import judge_name, load_scorer
from tests.web.worlds import finish, play

LINES = ["you are a stupid idiot", "thank you for the tea", "", "what a lovely day"]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def test_every_line_has_its_number_its_score_and_a_mask(
    lines: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["score", str(lines), "--device", "cpu"]) == 0
    shown = capsys.readouterr()
    rows = [line.split("\t") for line in shown.out.splitlines()]
    scores = load_scorer(judge_name(), "cpu").score([LINES[0], LINES[1], LINES[3]])
    assert [row[0] for row in rows] == [f"{score:.4f}" for score in scores]
    assert [row[1] for row in rows] == ["1", "2", "4"]
    assert rows[0][2] == "y** a** a s***** i****"
    assert rows[1][2] == LINES[1]
    assert f"3 lines: 1 rated 0.5 or more by {judge_name()}, 33%" in shown.err


def test_unmask_shows_and_a_file_is_whole(
    lines: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["score", str(lines), "--unmask"]) == 0
    assert LINES[0] in capsys.readouterr().out
    out = tmp_path / "scores.tsv"
    assert run(["score", str(lines), "--out", str(out)]) == 0
    rows = [line.split("\t")[1:] for line in out.read_text().splitlines()]
    assert rows == [["1", LINES[0]], ["2", LINES[1]], ["4", LINES[3]]]
    assert capsys.readouterr().out == ""


def test_over_shows_only_what_is_over(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["score", str(lines), "--over", "0.5"]) == 0
    shown = capsys.readouterr()
    (row,) = shown.out.splitlines()
    assert row.split("\t")[1] == "1"
    assert "3 lines: 1 rated 0.5 or more" in shown.err


def test_the_gate_looks_at_the_upper_end(lines: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["score", str(lines), "--fail-over", "50%"]) == 3
    said = capsys.readouterr().err
    assert "FAILED" in said
    assert "79.2%" in said  # Wilson's end for 1 of 3
    assert run(["score", str(lines), "--fail-over", "0.8"]) == 0


def test_json_lines_and_gzip_and_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = b'\xef\xbb\xbf{"text": "hello there", "id": 7}\n\n{"text": "you fool"}\n'
    path = tmp_path / "replies.jsonl.gz"
    path.write_bytes(gzip.compress(data))
    assert run(["score", str(path)]) == 0
    by_file = capsys.readouterr().out
    assert [line.split("\t")[1] for line in by_file.splitlines()] == ["1", "3"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))
    assert run(["score", "-"]) == 0
    assert capsys.readouterr().out == by_file


@pytest.mark.parametrize(
    ("content", "phrase"),
    [
        (b"", "has no line to score"),
        (b"\n \n", "has no line to score"),
        (b'{"text": "hi"}\n{"txt": "hi"}\n', "line 2: not a JSON object"),
        (b"caf\xe9\n", "line 1: not UTF-8"),
        (b"ok\n\x00\n", "line 2: this is a binary file"),
        (b"\x1f\x8bnonsense", "damaged gzip"),
    ],
)
def test_bad_files(tmp_path: Path, content: bytes, phrase: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad"
    path.write_bytes(content)
    assert run(["score", str(path)]) == 2
    assert phrase in capsys.readouterr().err


def test_a_failure_leaves_no_half_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = tmp_path / "in.txt", tmp_path / "out.tsv"
    source.write_bytes(b"fine\n" * (CHUNK + 1) + b"\xff\n")
    assert run(["score", str(source), "--out", str(out), "--scorer", "toxicity-second"]) == 2
    assert list(tmp_path.iterdir()) == [source]
    assert f"line {CHUNK + 2}" in capsys.readouterr().err
    assert run(["score", str(source), "--scorer", "nosuch"]) == 2


def test_lines_are_scored_as_they_come() -> None:
    """A chunk is handed on before the next is read: memory does not grow with the file."""
    read = 0

    class Half:
        name = fingerprint = "half"

        def score(self, texts: Sequence[str]) -> NDArray[np.float32]:
            assert len(texts) <= CHUNK
            return np.full(len(texts), 0.5, dtype=np.float32)

    def source() -> Iterator[tuple[int, str]]:
        nonlocal read
        for read in range(1, 10 * CHUNK + 1):
            yield read, "line"

    scored = score_lines(source(), Half())
    assert next(scored)[0] == 1
    assert read == CHUNK
    assert sum(1 for _ in scored) == 10 * CHUNK - 1


def test_control_signs_do_not_reach_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "odd.txt"
    path.write_text("hello \x1b[31mred\tand \u202eback\n", encoding="utf-8")
    assert run(["score", str(path)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert out.count("\t") == 2


def labelled(path: Path) -> Path:
    rows = [{"text": "you fool", "toxic": True}, {"text": "my number is 4242 4242 4242 4242", "label": 1}]
    path.write_text(
        "".join(json.dumps(row) + "\n" for row in [*rows, {"text": "good night", "toxic": False}])
    )
    return path


def test_a_report_card_is_printed_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, out = labelled(tmp_path / "own.jsonl"), tmp_path / "card.json"
    assert run(["score", str(own), "--labels", "--scorer", "private", "--out", str(out)]) == 0
    assert "0.9 to 1.0      1        1.00  100% (21 to 100%)" in capsys.readouterr().out
    card = json.loads(out.read_text())
    assert card["scorer"] == "private"
    assert card["cards"]["all"]["recall"]["hits"] == 1
    assert card["cards"]["all"]["auc"]["value"] == 0.75


@pytest.mark.parametrize(
    "scorer",
    ["toxicity", "toxicity-second", "refusal", "private", "words:own.txt", "regex:own.txt", "canary:K 7"],
)
def test_every_shipped_scorer_has_a_card(
    scorer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.txt").write_text("fool\n")
    assert run(["score", "--card", "--scorer", scorer, "--out", str(tmp_path / "card.json")]) == 0
    card = json.loads((tmp_path / "card.json").read_text())["cards"]["all"]
    assert sum(one["toxic"]["n"] for one in card["bins"]) == card["texts"] == len(shipped_texts(scorer))


def test_two_scorers_are_compared_by_where_they_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.txt").write_text("night\nfool\n")
    (tmp_path / "own.txt").write_text("you fool\ngood night\nhello\nbye\n")
    words = f"words:{tmp_path / 'bad.txt'}"
    command = [
        "score",
        str(tmp_path / "own.txt"),
        "--scorer",
        words,
        "--second",
        "canary:you fool",
        "--unmask",
    ]
    assert run(command) == 0
    shown = capsys.readouterr()
    assert shown.out == "1.0000\t0.0000\t2\tgood night\n"
    assert "differ on 1" in shown.err
    assert "kappa 0.50" in shown.err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["score"], "only --card needs none"),
        (["score", "own.jsonl", "--card"], "--labels"),
        (["score", "-", "--labels"], "not a pipe"),
        (["score", "own.jsonl", "--labels", "--second", "refusal"], "one call each"),
        (["score", "own.jsonl", "--labels", "--fail-over", "1%"], "one call each"),
        (["score", "own.jsonl", "--second", "refusal", "--out", "x"], "leave --out out"),
        (["score", "own.jsonl", "--scorer", "words:nothing.txt"], "nothing.txt"),
        (["score", "own.jsonl", "--scorer", "guard/./nothing"], "no folder of a Hugging Face model"),
    ],
)
def test_what_can_not_be_measured_is_one_sentence(
    command: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    labelled(tmp_path / "own.jsonl")
    assert run(command) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_the_replies_of_a_run_are_rated_each_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish(tmp_path / "run")  # eight findings with one reply
    assert run(["score", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr()
    assert printed.out.split("\t")[1:] == ["1", "i am not sure what you mean\n"]
    play(tmp_path / "talk")
    assert run(["score", str(tmp_path / "talk"), "--second", "toxicity-second"]) == 0
    assert "kappa" in capsys.readouterr().err
