"""The corpus formats of the papers, each on a file of a few lines."""

import gzip
from itertools import pairwise
from pathlib import Path

import pytest

from backtalk.data.corpora import FORMATS, read_corpus
from backtalk.errors import InputError
from reproduction.data import switchboard
from reproduction.data.formats import PAPER_FORMATS


def test_the_formats_are_registered() -> None:
    assert PAPER_FORMATS.keys() <= FORMATS.keys()


def test_switchboard_is_cleaned_and_has_a_fixed_test_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("2038\tA\tUh, hello.\tfp\n2038\tB\tHi.\tfp\n")
    corpus = read_corpus(str(tmp_path / "file"), "swda")
    assert corpus.pairs() == [("hello", "hi")]
    assert corpus.fixed_test == {*switchboard.TEST_25, *switchboard.VALID_25}


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


@pytest.mark.parametrize("zipped", [False, True])
def test_utterances_between_marks(tmp_path: Path, zipped: bool) -> None:
    content = b"hello <eou> hi <eou> fine <eou>\nbye <eou> bye now <eou>\n"
    (tmp_path / "file").write_bytes(gzip.compress(content) if zipped else content)
    corpus = read_corpus(str(tmp_path / "file"), "eou")
    assert corpus.pairs() == [("hello", "hi"), ("hi", "fine"), ("bye", "bye now")]
    assert len(set(corpus.groups)) == 2


def test_ubuntu_chat(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text(
        "f1\t3\t4\tann\thelp\tbob\tread this\nf1\t3\t6\tann\thelp\tcy\tno\nf2\t1\t2\td\tq\te\ta\n"
    )
    corpus = read_corpus(str(path), "ubuntu-pairs")
    assert corpus.pairs() == [("help", "read this"), ("help", "no"), ("q", "a")]
    assert len(set(corpus.groups)) == 2
    path.write_text("f\t1\t2\ta\tb\n")
    with pytest.raises(InputError, match="line 1: 5 columns"):
        read_corpus(str(path), "ubuntu-pairs")


def test_subtitles_answer_each_other_within_a_stretch(tmp_path: Path) -> None:
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress("".join(f"line {i}\n\n" for i in range(250)).encode()))
    corpus = read_corpus(str(path), "opensubtitles")
    inside = [i for i in range(249) if (i + 1) % 100]
    assert corpus.pairs() == [(f"line {i}", f"line {i + 1}") for i in inside]
    assert len(set(corpus.groups)) == 3
