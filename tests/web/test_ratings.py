"""Answers of the rate page: they are what `backtalk rate` reads, and nothing tells which model is which."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backtalk.rating.folder import own_answers, read_ratings
from backtalk.rating.result import tally
from backtalk.store.folder import lock_folder
from backtalk.web.run_list import key_of
from tests.web.worlds import Client, make_ratings, served

PATH = f"/api/rate/{key_of('pairs')}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_ratings(tmp_path / "pairs")


@pytest.fixture
def client(folder: Path) -> Iterator[Client]:
    with served(folder.parent) as server:
        yield Client(server).enter()


def judge(client: Client, pair: Any, choice: str, rater: str = "anna") -> Any:
    return client.json("POST", PATH, {"rater": rater, "pair": pair and pair["pair"], "choice": choice})


def test_answers_go_where_backtalk_rate_reads_them(client: Client, folder: Path) -> None:
    state = client.json("GET", f"{PATH}?rater=anna")
    assert (state["done"], state["total"]) == (0, 4)
    preferred = 0
    while state["pair"]:  # always the second model's reply
        choice = "1" if state["pair"]["reply_1"].startswith("second") else "2"
        state = judge(client, state["pair"], choice)
        preferred += 1
    assert preferred == 4
    ratings = read_ratings(folder)
    result = tally(ratings, own_answers(ratings))
    assert result["shares"]["second"]["hits"] == 4
    assert result["raters"] == {"anna": {"tie": 0, "first": 0, "second": 4, "skip": 0}}


def test_it_goes_on_where_the_rater_left_and_raters_do_not_meet(client: Client) -> None:
    first = client.json("GET", f"{PATH}?rater=anna")["pair"]
    second = judge(client, first, "tie")["pair"]
    assert second != first
    assert client.json("GET", f"{PATH}?rater=anna")["pair"] == second
    assert client.json("GET", f"{PATH}?rater=ben")["pair"] == first


def test_undo_takes_the_last_answer_back(client: Client, folder: Path) -> None:
    first = client.json("GET", f"{PATH}?rater=anna")["pair"]
    second = judge(client, first, "1")["pair"]
    judge(client, second, "skip")
    assert judge(client, None, "undo")["pair"] == second
    assert judge(client, None, "undo")["pair"] == first
    assert judge(client, None, "undo")["status"] == 409
    assert tally(read_ratings(folder), own_answers(read_ratings(folder)))["judged"] == 0


def test_a_pair_is_judged_once(client: Client) -> None:
    first = client.json("GET", f"{PATH}?rater=anna")["pair"]
    judge(client, first, "1")
    assert judge(client, first, "2")["status"] == 409


@pytest.mark.parametrize(
    "asked",
    [
        {"rater": "anna", "pair": "p0001-deadbeef", "choice": "1"},
        {"rater": "anna", "pair": 3, "choice": "1"},
        {"rater": "anna", "choice": "first"},
        {"rater": "", "choice": "undo"},
        {"rater": "x" * 61, "choice": "undo"},
        {"rater": "\x1b[31m", "choice": "undo"},
        {"rater": None, "choice": "undo"},
    ],
)
def test_what_is_no_answer_is_refused(client: Client, folder: Path, asked: dict[str, Any]) -> None:
    assert client.json("POST", PATH, asked)["status"] == 400
    assert not (folder / "answers.jsonl").exists()


def test_nothing_tells_which_model_is_which(client: Client) -> None:
    state = client.json("GET", f"{PATH}?rater=anna")
    assert state.keys() == {"status", "pair", "done", "total"}
    assert state["pair"].keys() == {"pair", "input", "reply_1", "reply_2"}


def test_a_rater_at_a_terminal_is_not_disturbed(client: Client, folder: Path) -> None:
    import os

    first = client.json("GET", f"{PATH}?rater=anna")["pair"]
    lock = lock_folder(folder)
    try:
        said = judge(client, first, "1")
        assert said["status"] == 422
        assert "another process" in said["error"]
    finally:
        os.close(lock)
    assert judge(client, first, "1")["done"] == 1
