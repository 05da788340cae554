"""The corpus formats of the papers, each on a file of a few lines."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from backtalk.data.corpora import FORMATS, read_corpus
from reproduction.data import switchboard
from reproduction.data.formats import PAPER_FORMATS

SWITCHBOARD = {
    "swda": "2038\tA\tUh, hello.\tfp\n2038\tB\tHi.\tfp\n",
    "swda-csv": "conversation_no,caller,text,act_tag\n2038,A,Hello. /,fp\n2038,B,Hi. /,fp\n",
}


def test_the_formats_are_registered() -> None:
    assert PAPER_FORMATS.keys() <= FORMATS.keys()


@pytest.mark.parametrize("format", SWITCHBOARD)
def test_switchboard_is_cleaned_and_has_a_fixed_test_set(tmp_path: Path, format: str) -> None:
    (tmp_path / "file").write_text(SWITCHBOARD[format])
    corpus = read_corpus(str(tmp_path / "file"), format)
    assert corpus.pairs() == [("hello", "hi")]
    assert corpus.fixed_test == {*switchboard.TEST_25, *switchboard.VALID_25}


def test_switchboard_uncleaned_and_as_a_folder(tmp_path: Path) -> None:
    (tmp_path / "swda_x.tsv").write_text(SWITCHBOARD["swda"])
    ((_, turns),) = switchboard.read_tsv(tmp_path, cleaned=False)
    assert [turn.text for turn in turns] == ["Uh, hello.", "Hi."]


def test_next_words_are_pairs_within_a_line_from_text_that_is_noised_once(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("".join(f"the cat number{i} sat\n" for i in range(250)) + "alone\n")
    corpus = read_corpus(str(path), "next-word")
    assert corpus == read_corpus(str(path), "next-word")
    assert len(corpus.pairs()) == 750  # a line of one word gives none
    assert len(set(corpus.groups)) == 3
    for (_, reply), (following, _) in pairwise(corpus.pairs()[:3]):
        assert reply == following
    plain = read_corpus(str(path), "next-word-clean")
    assert plain.pairs()[:3] == [("the", "cat"), ("cat", "number0"), ("number0", "sat")]
    changed = sum(a != b for a, b in zip(corpus.pairs(), plain.pairs(), strict=True))
    assert 500 < changed < 625  # of 750 pairs three quarters hold a changed word
