"""What hardenings share: the same numbers as without, worked out once, and anew where anything changed."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from backtalk.data.corpora import reference_pairs
from backtalk.hardening import pairs
from backtalk.hardening.pairs import Kept, Pairs, Recall, compute, read_pairs
from backtalk.models.folder import load_embedded, text_digest
from backtalk.models.lstm.model import LocalModel
from reproduction.shared import Shared

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return load_embedded("chitchat", "cpu")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [f"{text}\t{reply}".replace("\n", " ") for text, reply in reference_pairs("")[:120]]
    (tmp_path / "pairs.tsv").write_text("\n".join(rows) + "\n")
    return tmp_path / "pairs.tsv"


def read(data: Path, model: LocalModel, recall: Recall, measure: int = 12, apart: bool = True) -> Pairs:
    return read_pairs(str(data), "auto", model, measure, 1, apart, recall)


def unread(*_: object) -> None:
    raise AssertionError("it was worked out again")


def test_pairs_are_read_once_and_are_those_that_would_be_read(
    data: Path, model: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(tmp_path / "shared")
    plain, first = read(data, model, compute), read(data, model, shared.recall)
    monkeypatch.setattr(pairs, "read_corpus", unread)
    second = read(data, model, Shared(tmp_path / "shared").recall)
    for found in (first, second):
        assert (found.digest(), found.source) == (plain.digest(), plain.source)
        assert found.measured_texts == plain.measured_texts
        assert found.positive.inputs.dtype == np.int64
    assert read(data, model, shared.recall).selection is not None
    for other in (replace(model, max_output=9), replace(model, card={"spec": {"seed": 2}})):
        with pytest.raises(AssertionError, match="again"):
            read(data, other, shared.recall)
    for measure, apart in ((11, True), (12, False)):
        with pytest.raises(AssertionError, match="again"):
            read(data, model, shared.recall, measure, apart)


def test_other_text_in_the_same_place_is_read(data: Path, model: LocalModel, tmp_path: Path) -> None:
    shared = Shared(tmp_path / "shared")
    before = read(data, model, shared.recall)
    data.write_text(data.read_text().replace("you", "we"))
    assert read(data, model, shared.recall).digest() == read(data, model, compute).digest() != before.digest()


def test_a_changed_package_reads_again(
    data: Path, model: LocalModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(tmp_path / "shared")
    read(data, model, shared.recall)
    monkeypatch.setattr("reproduction.shared.code_digest", lambda: "another")
    monkeypatch.setattr(pairs, "read_corpus", unread)
    with pytest.raises(AssertionError, match="again"):
        read(data, model, shared.recall)


def test_the_digest_of_a_folder_knows_names_and_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    seen = {text_digest(tmp_path)}
    (tmp_path / "a").write_text("two")
    seen.add(text_digest(tmp_path))
    (tmp_path / "a").rename(tmp_path / "b")
    seen.add(text_digest(tmp_path))
    assert len(seen) == 3
    with pytest.raises(FileNotFoundError):
        text_digest(tmp_path / "a")


def test_who_asks_while_it_is_made_waits_and_reads(tmp_path: Path) -> None:
    made: list[str] = []
    at_work, go_on = threading.Event(), threading.Event()

    def make() -> Kept:
        made.append("made")
        at_work.set()
        assert go_on.wait(60)
        return {"ids": torch.arange(3)}, {"text": "once"}

    found: list[Kept] = []

    def ask() -> None:
        found.append(Shared(tmp_path / "shared").recall("thing", lambda: {"of": 1}, make))

    first, second = threading.Thread(target=ask), threading.Thread(target=ask)
    first.start()
    assert at_work.wait(60)
    second.start()
    second.join(0.1)
    assert second.is_alive()
    go_on.set()
    first.join()
    second.join()
    assert made == ["made"]
    assert [(ids["ids"].tolist(), kept) for ids, kept in found] == [([0, 1, 2], {"text": "once"})] * 2


@pytest.mark.parametrize("left", ["damaged", "partial", "failed"])
def test_what_a_kill_or_a_failure_leaves_is_no_result(tmp_path: Path, left: str) -> None:
    shared = Shared(tmp_path)

    def make() -> Kept:
        return {}, {"text": "whole"}

    def fail() -> Kept:
        raise ZeroDivisionError

    if left == "failed":
        with pytest.raises(ZeroDivisionError):
            shared.recall("thing", lambda: {}, fail)
    else:
        shared.recall("thing", lambda: {}, make)
        (file,) = tmp_path.glob("thing-*.safetensors")
        half = file.read_bytes()[:20]
        file.unlink()
        (file if left == "damaged" else file.with_name(file.name + ".partial")).write_bytes(half)
    assert shared.recall("thing", lambda: {}, make) == ({}, {"text": "whole"})
    assert shared.recall("thing", lambda: {}, fail) == ({}, {"text": "whole"})
