"""A Python function as a model: what it is given, what it may return, and how its name can be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from backtalk.errors import InputError
from backtalk.models.service.budget import BudgetedQueries, MemoryAnswers
from backtalk.models.service.function import load
from backtalk.types import Access, Turn

HERE = "tests.models.test_function"
not_a_function = 5


def count_turns(conversation: list[dict[str, str]]) -> str:
    return f"{len(conversation)} turns, last by {conversation[-1]['role']}: {conversation[-1]['text']}"


def returns_a_number(conversation: list[dict[str, str]]) -> int:
    return len(conversation)


def test_the_function_is_given_the_whole_conversation() -> None:
    model = load(f"{HERE}:count_turns")
    dialogue = (Turn("user", "a"), Turn("model", "b"), Turn("user", "c"))
    assert model.reply([dialogue, dialogue[:1]]) == ["3 turns, last by user: c", "1 turns, last by user: a"]
    assert model.access == Access.TEXT
    assert model.name == model.fingerprint == f"py:{HERE}:count_turns"


def test_a_reply_that_is_no_text_is_an_error() -> None:
    with pytest.raises(InputError, match="returned int"):
        load(f"{HERE}:returns_a_number").reply([(Turn("user", "a"),)])


def stumbles(conversation: list[dict[str, str]]) -> str:
    if "stumble" in conversation[-1]["text"]:
        raise ValueError("over my own feet")
    return "fine"


def test_a_function_that_raises_now_and_then_gave_no_reply() -> None:
    asker = BudgetedQueries(load(f"{HERE}:stumbles"), MemoryAnswers())
    texts = [f"{'stumble' if i % 3 else 'walk'} {i}" for i in range(60)]
    assert asker.ask(texts, "pairs") == [None if i % 3 else "fine" for i in range(60)]
    assert asker.answers.spent() == {"pairs": 60}
    with pytest.raises(InputError, match=r"10 times .*\(ValueError: over my own feet\)"):
        asker.ask([f"stumble {i}" for i in range(100, 200)], "pairs")
    assert asker.answers.spent() == {"pairs": 68}  # the last two of before failed too


def test_the_current_folder_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_model_xyz.py").write_text("def talk(conversation):\n    return 'from the folder'\n")
    monkeypatch.syspath_prepend("")  # so that what load() puts in front is taken out again
    monkeypatch.chdir(tmp_path)
    assert load("my_own_model_xyz:talk").reply([(Turn("user", "a"),)]) == ["from the folder"]


@pytest.mark.parametrize(
    ("rest", "phrase"),
    [
        ("", "should read py:module:function"),
        ("module", "should read py:module:function"),
        (":function", "should read py:module:function"),
        ("module:", "should read py:module:function"),
        (".relative:function", "should read py:module:function"),
        ("no.such.module:f", "can't import 'no.such.module'"),
        (f"{HERE}:count_turn", "did you mean 'count_turns'"),
        (f"{HERE}:not_a_function", "unknown function"),
        (f"{HERE}:count_turns:more", "unknown function"),
    ],
)
def test_a_name_that_leads_nowhere_is_an_error(rest: str, phrase: str) -> None:
    with pytest.raises(InputError, match=phrase):
        load(rest)
