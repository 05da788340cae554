"""The most frequent words, the special ids that no text can reach, and files that are not ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtalk.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from backtalk.errors import InputError


def test_most_frequent_words_first_and_ties_by_alphabet() -> None:
    vocabulary = Vocabulary.from_counts({"d": 1, "c": 1, "b": 2, "a": 1}, size=3)
    assert vocabulary.entries == ("b", "a", "c")
    assert len(vocabulary) == 7


def test_ids_and_words() -> None:
    vocabulary = Vocabulary(("you", "are"))
    assert vocabulary.ids(["you", "are", "odd"]) == [4, 5, UNK]
    assert vocabulary.words([PAD, BOS, EOS, UNK, 4, 5]) == ["<pad>", "<bos>", "<eos>", "<unk>", "you", "are"]
    assert vocabulary.unknown(["odd", "you", "odd", "<unk>"]) == ["odd", "<unk>"]
    assert "you" in vocabulary
    for outside in (-1, 6):
        with pytest.raises(IndexError, match="outside a vocabulary of 6"):
            vocabulary.words([outside])


def test_text_never_reaches_a_special_id() -> None:
    vocabulary = Vocabulary.from_counts(dict.fromkeys(["<pad>", "<bos>", "<eos>", "<unk>", "a"], 1), size=9)
    assert vocabulary.entries == ("a",)
    assert vocabulary.ids(["<pad>", "<bos>", "<eos>"]) == [UNK, UNK, UNK]


def test_saved_and_loaded_it_is_the_same(tmp_path: Path) -> None:
    vocabulary = Vocabulary(("n't", "é", '"'))
    vocabulary.save(tmp_path / "vocab.json")
    assert Vocabulary.load(tmp_path / "vocab.json") == vocabulary


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"format": "backtalk-vocab', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[1, 2]", "format backtalk-vocabulary-1"),
        (b'{"words": ["a"]}', "format backtalk-vocabulary-1"),
        (b'{"format": "other", "words": ["a"]}', "format backtalk-vocabulary-1"),
        (b'{"format": "backtalk-vocabulary-1"}', "list of words"),
        (b'{"format": "backtalk-vocabulary-1", "words": ["a", 3]}', "list of words"),
        (b'{"format": "backtalk-vocabulary-1", "words": ["a", "a"]}', "holds 'a' twice"),
        (b'{"format": "backtalk-vocabulary-1", "words": ["<pad>"]}', "reserved word '<pad>'"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "vocab.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        Vocabulary.load(path)
    assert "vocab.json" in str(caught.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json"):
        Vocabulary.load(tmp_path / "none.json")
