"""Conversations as tokens: running text, chat turns, truncation; logPPL against a plain forward pass."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.errors import InputError
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.prompts import keep_newest, token_ids
from backtalk.searches.ast import players
from backtalk.searches.ast.players import (
    Adversary,
    ChatTurns,
    Defender,
    RunningText,
    continuation,
    messages_of,
    reading_of,
)
from backtalk.specs import ModelOptions
from backtalk.types import Turn
from tests.models.transformer.tiny import CHATML, make_folder
from tests.searches.ast.worlds import open_model

TALK = ("we went out today", " to the river", " it was a fine day", " again")


def test_running_text_is_the_pieces_one_after_another(planted: Path) -> None:
    model = open_model(planted)
    reading = reading_of(model)
    assert isinstance(reading, RunningText)
    whole = [
        token for piece in TALK for token in model.tokenizer(piece, add_special_tokens=False)["input_ids"]
    ]
    assert reading.before_and_turn(TALK, "")[0] == whole
    assert model.tokenizer.decode(whole) == "".join(TALK)
    assert reading.before_and_turn(("",), "")[0] == [model.prompts.end], "something must be read"
    assert (
        reading.before_and_turn(TALK, " to the garden")[1]
        == (model.tokenizer(" to the garden", add_special_tokens=False)["input_ids"])
    )


def test_texts_that_were_met_together_are_cut_as_each_alone(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_model(planted)
    talks = [TALK, (*TALK[:2], "", "  two\nlines \N{CAT}"), (TALK[0],)]
    together, alone = RunningText(model), RunningText(model)
    calls: list[list[str]] = []

    def count(tokenizer: Any, texts: list[str], **settings: Any) -> list[list[int]]:
        calls.append(list(texts))
        return token_ids(tokenizer, texts, **settings)

    expected = [alone.before_and_turn(talk, "")[0] for talk in talks]
    monkeypatch.setattr(players, "token_ids", count)
    together.tokenize(talks)
    assert [together.before_and_turn(talk, "")[0] for talk in talks] == expected
    assert together.before_and_turn(TALK, TALK[1])[1] == alone.before_and_turn(TALK, TALK[1])[1]
    assert calls == [[*TALK, "", "  two\nlines \N{CAT}"]], "each once, in one call"
    monkeypatch.setattr(players, "REMEMBERED", 5)  # fewer than there are
    small = RunningText(model)
    for _ in range(2):
        small.tokenize(talks[:1])
        small.tokenize(talks)
        assert [small.before_and_turn(talk, "")[0] for talk in talks] == expected


def test_what_was_said_keeps_its_blank_and_loses_half_a_character(planted: Path) -> None:
    tokenizer = open_model(planted).tokenizer
    before = tokenizer("we went", add_special_tokens=False)["input_ids"]
    said = tokenizer(" to the river", add_special_tokens=False)["input_ids"]
    assert continuation(tokenizer, before, said) == " to the river"
    cat = tokenizer(" \N{CAT}", add_special_tokens=False)["input_ids"]
    assert continuation(tokenizer, before, cat[:-1]).strip() == ""


def test_the_oldest_part_is_cut() -> None:
    ids = list(range(10))
    assert keep_newest(ids, 10, 1) == ids
    assert keep_newest(ids, 4, 1) == [0, 7, 8, 9]
    assert keep_newest(ids, 4, 0) == [6, 7, 8, 9]
    assert keep_newest(ids, 1, 1) == [0]


def plain_log_ppl(defender: Defender, before: list[int], said: list[int]) -> float:
    """Without a batch, a hook or a cache."""
    ids = torch.tensor([[*before, *said]])
    logs = defender.model.network(ids).logits[0].float().log_softmax(1)
    picked = [logs[len(before) + t - 1, token] for t, token in enumerate(said)]
    return -float(torch.stack(picked).mean())


@torch.no_grad()
def test_log_ppl_is_that_of_a_plain_forward_pass(planted: Path) -> None:
    defender = Defender(open_model(planted))
    talks = [TALK[:1], TALK[:3], ("they went out again",), ("",)]
    texts = [" to the garden", " to", " river river fool", "we went"]
    found = defender.log_ppl(talks, texts)
    for talk, text, value in zip(talks, texts, found, strict=True):
        before = defender.reading.before_and_turn(talk, "")[0]
        expected = plain_log_ppl(defender, before, defender.reading.before_and_turn(talk, text)[1])
        assert value == pytest.approx(expected, abs=1e-5)


@torch.no_grad()
def test_a_long_conversation_is_cut_and_a_long_turn_too(planted: Path) -> None:
    defender = Defender(open_model(planted), context=100)
    talk = (" it was a fine day for all" * 20,)
    text = " to the river" * 40
    before = defender.reading.before_and_turn(talk, "")[0][-36:]
    expected = plain_log_ppl(defender, before, defender.reading.before_and_turn(talk, text)[1][:64])
    assert defender.log_ppl([talk], [text]) == [pytest.approx(expected, abs=1e-4)]
    adversary = Adversary(open_model(planted), context=100)
    assert adversary.before(talk) == adversary.reading.before_and_turn(talk, "")[0][-(100 - 24) :]
    assert adversary.speak([talk], [1])


def test_a_turn_of_nothing_is_as_likely_as_a_random_token(planted: Path) -> None:
    defender = Defender(open_model(planted))
    nothing, something = defender.log_ppl([TALK[:1]] * 2, ["", " to the river"])
    assert nothing == pytest.approx(math.log(defender.model.network.config.vocab_size))
    assert nothing > something


def test_messages_begin_with_the_opening_and_the_first_turn() -> None:
    assert messages_of(("o.", " a", "\nd\n", " b")) == (
        Turn("user", "o. a"),
        Turn("assistant", "d"),
        Turn("user", " b"),
    )


@torch.no_grad()
def test_a_chat_model_answers_as_an_assistant(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path / "chat", "llama", CHATML)), "cpu", ModelOptions())
    defender = Defender(model)
    assert isinstance(defender.reading, ChatTurns)

    def ids(text: str) -> list[int]:
        found: list[int] = model.tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    talk = ("hello there.", " how are you", "\nfine\n")
    start = "<|im_start|>user\nhello there. how are you<|im_end|>\n<|im_start|>assistant\nfine<|im_end|>\n"
    assert defender.reading.before_and_turn(talk, "")[0] == ids(start + "<|im_start|>user\n")
    assert defender.reading.before_defender((*talk, "and you")) == ids(
        start + "<|im_start|>user\nand you<|im_end|>\n<|im_start|>assistant\n"
    )
    assert defender.reading.before_and_turn(talk[:1], "")[0] == ids("<|im_start|>user\nhello there.")
    before, said = defender.reading.before_and_turn(talk, "")[0], ids("you like cats")
    (found,) = defender.log_ppl([talk], ["you like cats"])
    assert found == pytest.approx(plain_log_ppl(defender, before, said), abs=1e-4)
    (reply,) = defender.speak([(*talk, "and you")], [3])
    assert reply == f"\n{reply.strip()}\n"


def test_an_encoder_decoder_is_refused(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path / "t5", "t5")), "cpu")
    with pytest.raises(InputError, match="causal"):
        Defender(model)
    with pytest.raises(InputError, match="causal"):
        Adversary(model)
