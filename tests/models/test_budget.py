"""Asking a black box: nothing twice, never over the budget, and a failed question is never a reply."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backtalk.deadline import check_time
from backtalk.errors import InputError
from backtalk.models.service.budget import BATCH, FIRST, Answers, BudgetedQueries, MemoryAnswers
from backtalk.protocols import Meter, Reply
from backtalk.store import Run
from backtalk.store.answers import StoredAnswers
from backtalk.types import Access, Dialogue
from tests.store.test_store import create


@dataclass
class Own:
    """A model of ours that shouts, and says nothing to an empty input."""

    name: str = "own"
    fingerprint: str = "own"
    access: Access = Access.TEXT
    heard: list[str] = field(default_factory=list)

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        texts = [dialogue[-1].text for dialogue in dialogues]
        self.heard += texts
        return [f" {text.upper()} " for text in texts]


@dataclass
class Failing(Own):
    """A service: refuses words with an x after two requests, can't be reached for those with a y, and is gone
    once it has answered `life` questions."""

    life: int = 1_000_000

    def answer(self, dialogues: Sequence[Dialogue], meter: Meter) -> Iterator[tuple[int, Reply]]:
        for place in reversed(range(len(dialogues))):
            text = dialogues[place][-1].text
            for _ in range(2 if "x" in text else 1):
                if not meter.take():
                    return
                if "y" in text:
                    meter.give_back()
                else:
                    self.heard.append(text)
            if self.life == 0:
                raise InputError("gone")
            self.life -= 1
            yield place, (Reply("", "refused") if "x" in text or "y" in text else Reply(text.upper()))


@pytest.fixture(params=["memory", "run"])
def answers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Answers]:
    if request.param == "memory":
        yield MemoryAnswers()
    else:
        with create(tmp_path / "run") as run:
            yield StoredAnswers(run)


def test_replies_come_in_order_and_each_input_is_asked_once(answers: Answers) -> None:
    model = Own()
    asker = BudgetedQueries(model, answers)
    assert asker.ask(["b", "a", "b", "\ud800 ü"], "pairs") == ["B", "A", "B", "\ud800 Ü"]
    assert asker.ask(["c", "a"], "rl") == ["C", "A"]
    assert model.heard == ["b", "a", "\ud800 ü", "c"]
    assert answers.spent() == {"pairs": 3, "rl": 1}
    assert asker.left is None


def test_where_a_model_of_ours_says_nothing_it_is_no_reply_and_not_asked_again(answers: Answers) -> None:
    model = Own()
    for _ in range(2):
        assert BudgetedQueries(model, answers).ask(["", "a"], "pairs") == [None, "A"]
    assert model.heard == ["", "a"]


@pytest.mark.parametrize("kind", [Own, Failing])
def test_the_budget_holds_over_phases_and_sessions(answers: Answers, kind: type[Own]) -> None:
    model = kind()
    texts = [f"w{i}" for i in range(BATCH + 10)]
    assert BudgetedQueries(model, answers, most=BATCH + 5).ask(texts[:2], "pairs") == ["W0", "W1"]
    asker = BudgetedQueries(model, answers, most=BATCH + 5)
    assert asker.left == BATCH + 3
    replies = asker.ask(texts, "rerank")
    assert sum(reply is None for reply in replies) == 5
    assert len(model.heard) == BATCH + 5 == sum(answers.spent().values())
    assert asker.left == 0
    assert asker.ask(["new", "w0"], "verify") == [None, "W0"]
    assert answers.spent() == {"pairs": 2, "rerank": BATCH + 3}


def test_failed_questions_cost_and_are_no_answers(answers: Answers) -> None:
    model = Failing()
    asker = BudgetedQueries(model, answers, most=100)
    assert asker.ask(["a", "x", "y", "b"], "rl") == ["A", None, None, "B"]
    assert answers.spent() == {"rl": 4}  # x twice; y was never sent
    assert answers.get(["a", "x", "y", "b"]) == {"a": "A", "b": "B"}
    assert asker.ask(["x"], "rl") == [None]  # not worth another request in this session
    assert answers.spent() == {"rl": 4}
    assert BudgetedQueries(model, answers).ask(["x"], "rl") == [None]
    assert answers.spent() == {"rl": 6}


def test_what_was_answered_before_a_service_went_is_kept(answers: Answers) -> None:
    texts = [f"w{i}" for i in range(50)]
    model = Failing(life=20)
    with pytest.raises(InputError, match="gone"):
        BudgetedQueries(model, answers).ask(texts, "pairs")
    assert len(answers.get(texts)) == 20
    assert answers.spent() == {"pairs": 21}  # what was counted ahead and not sent is taken back
    model = Failing()
    assert BudgetedQueries(model, answers).ask(texts, "pairs") == [text.upper() for text in texts]
    assert len(model.heard) == 30


@dataclass
class Slow(Own):
    """Takes three questions at once, and breaks at the word "break"."""

    at_once: int = 3

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        assert len(dialogues) <= self.at_once
        if any(dialogue[-1].text == "break" for dialogue in dialogues):
            raise RuntimeError("it broke")
        return super().reply(dialogues)


def test_a_slow_model_is_asked_little_at_once_and_loses_little(answers: Answers) -> None:
    asker = BudgetedQueries(Slow(), answers)
    with pytest.raises(RuntimeError, match="it broke"):
        asker.ask([*"abcdefg", "break"], "pairs")
    assert set(answers.get([*"abcdefg"])) == set("abcdef")
    assert answers.spent() == {"pairs": 6}


def test_nothing_is_asked_twice_after_the_run_is_opened_again(tmp_path: Path) -> None:
    texts = [f"w{i}" for i in range(1200)]  # more than one look-up
    with create(tmp_path / "run") as run:
        BudgetedQueries(Own(), StoredAnswers(run)).ask(texts, "pairs")
    model = Own()
    with Run.open(tmp_path / "run", write=True) as run:
        asker = BudgetedQueries(model, StoredAnswers(run), most=1201)
        assert asker.ask([*texts, "more", "most"], "rl") == [*(text.upper() for text in texts), "MORE", None]
        assert model.heard == ["more"]
    with Run.open(tmp_path / "run") as run:
        stored = StoredAnswers(run)
        assert stored.spent() == {"pairs": 1200, "rl": 1}
        assert stored.pairs("rl") == [("more", "MORE")]
        assert stored.pairs()[:2] == [("w0", "W0"), ("w1", "W1")]
        with pytest.raises(ValueError, match="read only"):
            stored.add("rl", {"a": "b"})


def test_a_run_that_asked_nothing_has_no_answers_and_is_as_before(tmp_path: Path) -> None:
    with create(tmp_path / "run") as run:
        stored = StoredAnswers(run)
        assert (stored.get(["a"]), stored.pairs(), stored.spent()) == ({}, [], {})
        tables = run._database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'answers'")
        assert tables.fetchone() == (0,)


def test_answers_that_are_no_texts_are_damage(tmp_path: Path) -> None:
    with create(tmp_path / "run") as run:
        StoredAnswers(run).add("pairs", {"a": "b"})
        run._database.execute("UPDATE answers SET reply = '[1]'")
        with pytest.raises(InputError, match="is damaged"):
            StoredAnswers(run).get(["a"])


@dataclass
class Hasty(Own):
    """A model of ours whose limit is over once it has read `life` inputs."""

    life: int = 3 * FIRST
    at_once: int = 4 * FIRST

    def late(self, seconds: float) -> str:
        return "the time" if len(self.heard) >= self.life else ""

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        found = super().reply(dialogues)
        check_time()  # as a model does between tokens
        return found


def test_what_was_answered_in_time_is_kept() -> None:
    model, answers = Hasty(), MemoryAnswers()
    asker = BudgetedQueries(model, answers)
    asker.late = model.late
    found = asker.ask([f"w{i}" for i in range(10 * FIRST)], "pairs")
    # The first batch has FIRST inputs, the second twice as many; the limit is reached within that one.
    assert found == [*(f"W{i}" for i in range(FIRST)), *[None] * (9 * FIRST)]
    assert asker.stopped == "the time"
    assert answers.spent() == {"pairs": FIRST}
