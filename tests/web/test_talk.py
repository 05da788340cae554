"""The chat page's model: known chances come through, and what makes no sense is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from backtalk.types import Access, Dialogue, Turn
from tests.web.worlds import Client, Parrot, served


class Mute:
    """Shows its replies only."""

    name = fingerprint = "mute"
    access = Access.TEXT

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        return ["<b>hm</b> \u202e" for _ in dialogues]


@pytest.fixture
def parrot() -> Parrot:
    return Parrot()


@pytest.fixture
def client(tmp_path: Path, parrot: Parrot) -> Iterator[Client]:
    with served(tmp_path, parrot) as server:
        yield Client(server).enter()


def user(*texts: str) -> dict[str, Any]:
    return {"turns": [{"role": ("user", "model")[i % 2], "text": text} for i, text in enumerate(texts)]}


def test_each_word_comes_with_its_probability(client: Client, parrot: Parrot) -> None:
    said = client.json("POST", "/api/chat", user("hello there"))
    assert said["reply"] == "hello there"
    assert [word["text"] for word in said["words"]] == ["hello", "there", "(end)"]
    assert [word["share"] for word in said["words"]] == pytest.approx([1 / 2, 1 / 4, 1 / 8])
    assert said["whole"] == "1 in 64"
    assert parrot.heard == [(Turn("user", "hello there"),)]


def test_the_whole_conversation_is_heard(client: Client, parrot: Parrot) -> None:
    client.json("POST", "/api/chat", user("one", "two", "three"))
    assert parrot.heard == [(Turn("user", "one"), Turn("model", "two"), Turn("user", "three"))]


def test_a_sample_depends_on_its_seed(client: Client) -> None:
    said = client.json("POST", "/api/chat", {**user("hello"), "sample": True, "seed": 7})
    assert said["reply"] == "hello 7"


def test_a_model_without_probabilities_just_replies(tmp_path: Path) -> None:
    with served(tmp_path, Mute()) as server:
        client = Client(server).enter()
        said = client.json("POST", "/api/chat", user("hello"))
        assert (said["reply"], said["words"], said["whole"]) == ("<b>hm</b> ", [], "")
        assert client.json("POST", "/api/chat", {**user("hello"), "sample": True})["status"] == 400


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"turns": "hello"},
        {"turns": []},
        {"turns": [{"role": "model", "text": "x"}]},
        {"turns": [{"role": "system", "text": "x"}]},
        {"turns": [{"role": "user", "text": 3}]},
        {"turns": ["hello"]},
        user(" "),
        user("x" * 4001),
        user(*["x"] * 101),
        user("a", "b"),
        {**user("a"), "seed": "1"},
        {**user("a"), "seed": -1},
        {**user("a"), "seed": True},
    ],
)
def test_what_is_no_conversation_is_refused(client: Client, parrot: Parrot, asked: dict[str, Any]) -> None:
    assert client.json("POST", "/api/chat", asked)["status"] == 400
    assert parrot.heard == []


def test_the_browser_can_name_no_model(client: Client, parrot: Parrot) -> None:
    client.json("POST", "/api/chat", {**user("hello"), "model": "py:os:system"})
    assert len(parrot.heard) == 1


def test_a_model_that_fails_is_one_sentence_and_the_next_turn_works(client: Client) -> None:
    said = client.json("POST", "/api/chat", user("fail"))
    assert said["status"] == 502
    assert "failed: RuntimeError" in said["error"]
    assert client.json("POST", "/api/chat", user("again"))["status"] == 200
