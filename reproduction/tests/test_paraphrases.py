"""Paraphrase corpora on made-up rows: who is paired with whom, in which groups, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from backtalk.data.corpora import read_corpus
from backtalk.errors import InputError
from backtalk.paraphrase.model import persons

REWRITES = (
    "toxic\tneutral1\tneutral2\tneutral3\n"
    "this is a rotten plan\tThis is a bad plan.\tthe plan is bad\tthis is a bad plan\n"
    "the rotten soup\tthe soup is bad\t\t\n"
    'rotten rain\t"the rain\nis bad"\tit rains badly\t\n'
    "go you rotten one\tyou should go\the should go\t\n"
)
SENTENCES = (
    "Go home.\tVete a casa.\tby ann\nGo to your house.\tVete a casa.\tby bob\n"
    "Leave for home.\tVete a casa.\tby cy\nGo away.\tVete.\tby ann\nLeave.\tVete.\tby bob\n"
    "Leave for home.\tSal a casa.\tby ann\nOff to home.\tSal a casa.\tby ann\n"
    "Go home.\tVete a casa.\tby dan\nGO HOME!\tVete a casa.\tby dan\n"
)


def test_rewrites_of_one_sentence_are_paired_and_the_toxic_one_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "paradetox.tsv.gz"
    path.write_bytes(gzip.compress(REWRITES.encode()))
    corpus = read_corpus(str(path), "paradetox")
    assert sorted(corpus.pairs()) == sorted(
        [
            ("This is a bad plan.", "the plan is bad"),
            ("the plan is bad", "This is a bad plan."),
            ("the rain is bad", "it rains badly"),
            ("it rains badly", "the rain is bad"),
        ]
    )
    assert len(set(corpus.groups)) == 2
    assert not any("rotten" in text for pair in corpus.pairs() for text in pair)
    assert read_corpus(str(tmp_path), "paradetox").pairs() == corpus.pairs()


def test_sentences_meet_by_their_translation_and_chains_stay_together(tmp_path: Path) -> None:
    (tmp_path / "spa.tsv").write_text(SENTENCES)
    corpus = read_corpus(str(tmp_path), "tatoeba")
    one_way = {
        ("Go home.", "Leave for home."),
        ("Go away.", "Leave."),
        ("Leave for home.", "Off to home."),
        ("Leave for home.", "GO HOME!"),
    }
    assert {frozenset(pair) for pair in corpus.pairs()} == {frozenset(pair) for pair in one_way}
    assert len(corpus.pairs()) == 2 * len(one_way)
    groups = dict(zip((dialogue[0].text for dialogue in corpus.dialogues), corpus.groups, strict=True))
    assert groups["Go home."] == groups["Leave for home."] == groups["Off to home."]
    assert groups["Go away."] != groups["Go home."]


def test_a_folder_holds_both(tmp_path: Path) -> None:
    (tmp_path / "paradetox.tsv").write_text(REWRITES)
    (tmp_path / "spa.tsv").write_text(SENTENCES)
    both = read_corpus(str(tmp_path), "paraphrases")
    assert len(both.pairs()) == 4 + 8
    assert "CC0" in both.licence
    assert "CC-BY" in both.licence


def test_persons_are_told_apart() -> None:
    assert persons(["you", "hate", "my", "dog"]) == persons(["i", "dislike", "yours"])
    assert persons(["he"]) != persons(["she"])
    assert persons(["the", "dog", "barks"]) == frozenset()


@pytest.mark.parametrize(
    ("format", "name", "text", "said"),
    [
        ("paradetox", "paradetox.tsv", "one column alone\n", "line 1: no tab"),
        ("tatoeba", "spa.tsv", "Go.\tVe.\nHello there\n", "line 2: no tab"),
        ("tatoeba", "spa.tsv", "Go.\tVe.\nStop.\tAlto.\n", "no dialogue of two"),
        ("paraphrases", "spa.tsv", SENTENCES, "holds no paradetox.tsv"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path: Path, format: str, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=said):
        read_corpus(str(tmp_path), format)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "spa.tsv").write_text(SENTENCES)
    with pytest.raises(InputError, match="is no folder"):
        read_corpus(str(tmp_path / "spa.tsv"), "paraphrases")
