"""Anyone's judge: a function and an endpoint. Nonsense is an error, never a pass."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

import pytest

from backtalk.errors import InputError
from backtalk.registry import load_model, load_scorer
from backtalk.types import Name, Origin
from tests.models.misbehaving import Misbehaving, answer, http, misbehaving

HERE = "py:tests.scorers.test_judges"
GIVEN = {"short": [0.5], "nan": [math.nan, 0.5], "high": [0.1, 1.5], "text": "ab", "none": None}


def count_letters(texts: list[str]) -> list[float]:
    return [min(1.0, len(text) / 10) for text in texts]


def give_short(texts: list[str]) -> object:
    return GIVEN["short"]


def give_nan(texts: list[str]) -> object:
    return GIVEN["nan"]


def give_high(texts: list[str]) -> object:
    return GIVEN["high"]


def give_text(texts: list[str]) -> object:
    return GIVEN["text"]


def give_none(texts: list[str]) -> object:
    return GIVEN["none"]


def typed(name: str) -> Name:
    return Name(name, Origin.TYPED)


def test_a_function_rates_lists_of_texts() -> None:
    scorer = load_scorer(typed(f"{HERE}:count_letters"))
    assert scorer.score(["abc", "", "a" * 40]).tolist() == pytest.approx([0.3, 0, 1])


@pytest.mark.parametrize("how", GIVEN)
def test_what_is_no_list_of_shares_is_an_error(how: str) -> None:
    with pytest.raises(InputError, match=f"give_{how}"):
        load_scorer(typed(f"{HERE}:give_{how}")).score(["a", "b"])


def test_a_function_runs_only_if_its_name_was_typed() -> None:
    with pytest.raises(InputError, match="only if its name is typed"):
        load_scorer(f"{HERE}:count_letters")


@pytest.fixture
def server() -> Iterator[Misbehaving]:
    with misbehaving() as found:
        yield found


@pytest.mark.parametrize(("said", "score"), [("85", 0.85), ("Score: 7/100.", 0.07), ("100 %", 1), ("0", 0)])
def test_a_chat_model_rates_by_a_number(server: Misbehaving, said: str, score: float) -> None:
    server.respond = lambda text, key: http(200, answer(said))
    scorer = load_scorer(f"http://127.0.0.1:{server.port}/v1#judge")
    assert scorer.score(["go away", " "]).tolist() == pytest.approx([score, 0])
    (asked,) = server.heard  # a blank text is harmless, and nobody is asked
    assert asked.endswith(json.dumps({"text": "go away"}))


@pytest.mark.parametrize("said", ["I like it", "101", "between 10 and 20", "-", "It is 5 or so, I would say"])
def test_an_answer_without_a_number_is_an_error(server: Misbehaving, said: str) -> None:
    server.respond = lambda text, key: http(200, answer(said))
    with pytest.raises(InputError, match="no number from 0 to 100"):
        load_scorer(f"http://127.0.0.1:{server.port}/v1#judge").score(["go away"])


def moderation(scores: object) -> bytes:
    return http(200, json.dumps({"results": [{"flagged": True, "category_scores": scores}]}).encode())


def test_a_moderation_endpoint_gives_its_worst_category(server: Misbehaving) -> None:
    server.respond = lambda text, key: moderation({"hate": 0.25, "harassment": 0.75 if "fool" in text else 0})
    scorer = load_scorer(f"http://127.0.0.1:{server.port}/v1#judge?moderations")
    assert scorer.score(["you fool", "hello"]).tolist() == [0.75, 0.25]
    assert sorted(server.heard) == ["hello", "you fool"]
    assert all(head.startswith("POST /v1/moderations ") for head in server.headers)


@pytest.mark.parametrize("scores", [{}, {"hate": 2}, {"hate": "high"}, [], None])
def test_a_moderation_without_scores_is_an_error(server: Misbehaving, scores: object) -> None:
    server.respond = lambda text, key: moderation(scores)
    with pytest.raises(InputError, match="no usable reply"):
        load_scorer(f"http://127.0.0.1:{server.port}/v1#judge?moderations").score(["go away"])


def test_a_moderation_endpoint_is_no_model() -> None:
    with pytest.raises(InputError, match="replies to none"):
        load_model("http://127.0.0.1:9/v1#judge?moderations")


def test_nothing_leaves_this_machine_without_consent() -> None:
    with pytest.raises(InputError, match="nobody agreed"):
        load_scorer("https://judge.invalid/v1#judge").score(["go away"])
