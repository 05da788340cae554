"""`label`: public corpora become labelled texts that `backtalk train-scorer` reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backtalk.data.contrast import LabelledText
from backtalk.data.toxicity import read_labelled
from backtalk.errors import InputError
from reproduction.__main__ import run_command
from reproduction.data import labelled


def written(folder: Path, text: str) -> Path:
    path = folder / "corpus"
    path.write_text(text, encoding="utf-8")
    return path


def test_civil_comments_are_labelled_by_sentence(tmp_path: Path) -> None:
    text = "You are all fools here. The weather is fine today. Ok."
    path = written(tmp_path, f'spans,text\n"{list(range(12, 17))}","{text}"\n')
    assert list(labelled.civil_sentences(path)) == [
        LabelledText("You are all fools here.", True),
        LabelledText("The weather is fine today.", False),
    ]


def test_tweets_lose_names_and_links(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        ",count,hate_speech,offensive_language,neither,class,tweet\n"
        '0,3,0,3,0,1,"RT @someone: you fool &amp; more http://t.co/x"\n1,3,0,0,3,2,hello\n',
    )
    assert list(labelled.davidson(path)) == [
        LabelledText(": you fool more", True),
        LabelledText("hello", False),
    ]


def test_help_messages_are_harmless_and_lose_whom_they_are_said_to(tmp_path: Path) -> None:
    said = ["bob: how do i open it", "ann, how do i open it", "and close it then", "so what"]
    path = written(tmp_path, "".join(f"train\tlog\t{i}\tann\t{text}\n" for i, text in enumerate(said)))
    harmless = [LabelledText("and close it then", False), LabelledText("how do i open it", False)]
    assert list(labelled.ubuntu_messages(path)) == harmless


def test_a_toxic_sentence_has_neutral_rewrites(tmp_path: Path) -> None:
    path = written(tmp_path, "toxic\tneutral1\tneutral2\na\tb\t\n")
    assert list(labelled.paradetox(path)) == [LabelledText("a", True), LabelledText("b", False)]


def test_a_record_of_another_file_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, '{"continuation": {"text": "x", "toxicity": 0.7}}\n{"other": 1}\n')
    with pytest.raises(InputError, match="line 2: no record of RealToxicityPrompts"):
        list(labelled.rtp_continuations(path))


def test_the_corpora_that_are_there_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    below = tmp_path / "corpora" / "below"
    below.mkdir(parents=True)
    (below / "jigsaw_balanced.csv").write_text('"a line\nand another",1\nhello,0\n')
    (below / "jigsaw_natural.csv").write_text("n,text,toxic\n0,hi,0\n1,fool,1\n")
    rated = [("kind ", 0.1), ("bad", 0.5), ("unrated", None)]
    rows = [{"continuation": {"text": text, "toxicity": toxicity}} for text, toxicity in rated]
    (below / "quark_val_5k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "labelled"
    assert run_command(["label", str(tmp_path / "corpora"), str(out)]) == 0
    assert "left out: there is no davidson.csv" in capsys.readouterr().out
    assert read_labelled(out / "jigsaw_balanced.jsonl") == [("a line\nand another", True), ("hello", False)]
    assert read_labelled(out / "jigsaw_natural.jsonl") == [("hi", False), ("fool", True)]
    assert read_labelled(out / "realtoxicityprompts.jsonl") == [("kind", False), ("bad", True)]
    assert {path.stem for path in out.iterdir()} == {
        "jigsaw_balanced",
        "jigsaw_natural",
        "realtoxicityprompts",
    }
