"""Prompts, replies and their ends, spelt out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backtalk.errors import InputError
from backtalk.models.transformer.loading import load
from backtalk.specs import ModelOptions
from backtalk.types import Dialogue, Turn
from tests.models.transformer.tiny import CHATML, INST, make_folder

ONE: Dialogue = (Turn("user", "hello there"),)
THREE: Dialogue = (*ONE, Turn("model", "leave me alone"), Turn("user", "why?"))


def prompt(folder: Path, dialogue: Dialogue, **options: Any) -> str:
    model = load(str(folder), "cpu", ModelOptions(**options))
    text: str = model.tokenizer.decode(model.prompt_ids(dialogue), clean_up_tokenization_spaces=False)
    return text


def test_plain_turns_end_as_in_dialogpt(tmp_path: Path) -> None:
    end = "<|endoftext|>"
    folder = make_folder(tmp_path, "gpt2")
    assert prompt(folder, THREE) == f"hello there{end}leave me alone{end}why?{end}"
    assert prompt(folder, ONE, system="be kind") == f"be kind{end}hello there{end}"


def test_a_plain_prompt_begins_once(tmp_path: Path) -> None:
    assert prompt(make_folder(tmp_path, "llama"), ONE) == "<s>hello there</s>"


def test_a_template_begins_once(tmp_path: Path) -> None:
    """The template writes <s>, and the tokenizer would too."""
    folder = make_folder(tmp_path, "llama", INST)
    assert prompt(folder, THREE) == "<s>[INST] hello there [/INST] leave me alone</s>[INST] why? [/INST]"
    assert prompt(folder, ONE, template="plain") == "<s>hello there</s>"


def test_a_template_with_a_system_role(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "llama", CHATML)
    assert prompt(folder, ONE, system="be kind") == (
        "<|im_start|>system\nbe kind<|im_end|>\n<|im_start|>user\nhello there<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_template_without_a_system_role(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "llama", INST)
    assert prompt(folder, ONE, system="be kind") == "<s>[INST] be kind\n\nhello there [/INST]"


def test_chat_asks_for_a_template(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "gpt2")
    with pytest.raises(InputError, match="--template plain"):
        load(str(folder), "cpu", ModelOptions(template="chat"))


def test_a_template_that_refuses_is_one_sentence(tmp_path: Path) -> None:
    picky = "{% if messages[0]['role'] != 'user' %}{{ raise_exception('users first') }}{% endif %}" + CHATML
    model = load(str(make_folder(tmp_path, "llama", picky)), "cpu")
    with pytest.raises(InputError, match=r"\(users first\)"):
        model.prompt_ids((Turn("model", "hello"), *ONE))


@pytest.mark.parametrize(
    ("kind", "template", "expected"),
    [
        ("gpt2", "", "you are rude<|endoftext|>"),
        ("llama", "", "you are rude</s>"),
        ("llama", CHATML, "you are rude<|im_end|>"),
        ("llama", INST, " you are rude</s>"),
        ("t5", "", "you are rude</s>"),
        ("bart", "", "you are rude</s>"),
    ],
)
def test_a_reply_ends_once(tmp_path: Path, kind: str, template: str, expected: str) -> None:
    model = load(str(make_folder(tmp_path, kind, template)), "cpu")
    ids = model.reply_ids("you are rude")
    assert model.tokenizer.decode(ids, clean_up_tokenization_spaces=False) == expected
    assert ids[-1] == model.prompts.end
    assert model.read(ids) == "you are rude"


def test_a_decoder_is_given_what_stands_before_a_reply(tmp_path: Path) -> None:
    assert load(str(make_folder(tmp_path / "t5", "t5")), "cpu").prompts.lead == (0,)
    assert load(str(make_folder(tmp_path / "bart", "bart")), "cpu").prompts.lead == (2, 1)


def test_encoders_read_the_text_itself(tmp_path: Path) -> None:
    assert prompt(make_folder(tmp_path / "t5", "t5"), ONE) == "hello there</s>"
    folder = make_folder(tmp_path / "bart", "bart")
    assert prompt(folder, THREE, system="be kind") == "<s>be kind\nhello there\nleave me alone\nwhy?</s>"


def test_blenderbot_reads_blanks_between_turns(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "blenderbot")
    assert prompt(folder, ONE) == "hello there"
    assert prompt(folder, THREE) == " hello there  leave me alone   why?"


@pytest.mark.parametrize("kind", ["llama", "bart"])
def test_long_prompts_lose_their_oldest_part(
    tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = load(str(make_folder(tmp_path, kind)), "cpu", ModelOptions(max_reply=28))
    text = "cats and dogs " * 60 + "the end"
    ids = [model.prompt_ids((Turn("user", text),)) for _ in range(2)]
    assert len(ids[0]) == (128 if kind == "bart" else 100)  # an encoder shares its places with no reply
    shown = model.tokenizer.decode(ids[0], clean_up_tokenization_spaces=False)
    assert shown.startswith("<s>")
    assert shown.endswith("the end</s>")
    assert caplog.text.count("oldest part") == 1
    assert len(model.log_prob([(Turn("user", text),)], ["no"])[0]) == len(model.reply_ids("no"))
    assert len(model.reply([(Turn("user", text),)])) == 1


def test_a_reply_without_room_is_refused(tmp_path: Path) -> None:
    folder = str(make_folder(tmp_path, "gpt2"))
    with pytest.raises(InputError, match=r"128 tokens .* --max-reply"):
        load(folder, "cpu", ModelOptions(max_reply=128)).reply([ONE])
    with pytest.raises(InputError, match="does not fit"):
        load(folder, "cpu").log_prob([ONE], ["cats and dogs " * 60])
