"""Replies against a plain loop: one row, no cache, the whole sequence read again for every token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backtalk.errors import InputError
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.specs import ModelOptions
from backtalk.types import Dialogue
from tests.models.transformer.test_log_prob import CASES, DIALOGUES
from tests.models.transformer.tiny import CHATML, KINDS, make_folder

pytestmark = pytest.mark.usefixtures("one_thread")

UNRULY: dict[str, Any] = {
    "do_sample": True, "temperature": 1.7, "top_k": 3, "num_beams": 3, "repetition_penalty": 9.0,
    "no_repeat_ngram_size": 2, "min_length": 30, "max_length": 31, "max_new_tokens": 33,
}  # fmt: skip
"""Generation settings as models bring them along, at their worst."""
SHORT = ModelOptions(max_reply=12)


def plain_loop(model: TransformerModel, dialogue: Dialogue, numbers: Any = None) -> list[int]:
    """Greedy, or with one uniform number a token sampled."""
    prompt, written = model.prompt_ids(dialogue), list(model.prompts.lead)
    first = len(written)
    network: Any = model.network
    for t in range(model.options.max_reply):
        with torch.no_grad():
            if model.is_encoder_decoder:
                given = {"decoder_input_ids": torch.tensor([written])}
                logits = network(input_ids=torch.tensor([prompt]), **given).logits[0, -1]
            else:
                logits = network(input_ids=torch.tensor([prompt + written])).logits[0, -1]
        if numbers is None:
            token = int(logits.argmax())
        else:
            token = int(np.searchsorted(logits.double().softmax(0).cumsum(0).numpy(), numbers[t], "right"))
        if token in model.prompts.stops:
            break
        written.append(token)
    return written[first:]


@pytest.mark.parametrize(("kind", "template"), CASES)
def test_greedy_replies_equal_a_plain_loop(
    tmp_path: Path, kind: str, template: str, capfd: pytest.CaptureFixture[str]
) -> None:
    model = load(str(make_folder(tmp_path, kind, template, **UNRULY)), "cpu", SHORT)
    expected = [model.read(plain_loop(model, dialogue)) for dialogue in DIALOGUES]
    capfd.readouterr()
    assert model.reply(DIALOGUES) == expected
    assert [model.reply([dialogue])[0] for dialogue in DIALOGUES] == expected
    assert any(expected)
    assert model.reply([]) == []
    assert capfd.readouterr().err == ""  # the library has nothing to complain about


@pytest.mark.parametrize("kind", KINDS)
def test_samples_depend_on_their_own_seed_alone(tmp_path: Path, kind: str) -> None:
    model = load(str(make_folder(tmp_path, kind)), "cpu", SHORT)
    dialogues, seeds = DIALOGUES * 3, list(range(9))
    found = model.sample(dialogues, seeds)
    assert found == [model.sample([d], [s])[0] for d, s in zip(dialogues, seeds, strict=True)]
    assert found[::-1] == model.sample(dialogues[::-1], seeds[::-1])
    assert len({found[0], found[3], found[6]}) > 1
    numbers = np.random.default_rng(4).random(SHORT.max_reply)
    assert found[4] == model.read(plain_loop(model, dialogues[4], numbers))
    with pytest.raises(InputError, match="9 dialogues but 1 seeds"):
        model.sample(dialogues, [1])


def test_samples_follow_the_model(tmp_path: Path) -> None:
    """How often each first token is drawn, against its probability."""
    model = load(str(make_folder(tmp_path, "gpt2")), "cpu", ModelOptions(max_reply=1))
    dialogue, draws = DIALOGUES[0], 2000
    found = model.sample([dialogue] * draws, range(draws))
    network: Any = model.network
    with torch.no_grad():
        logits = network(input_ids=torch.tensor([model.prompt_ids(dialogue)])).logits[0, -1]
    chances = logits.double().softmax(0)
    token = int(chances.argmax())
    alike = [other for other in range(len(chances)) if model.read([other]) == model.read([token])]
    chance = float(chances[alike].sum())
    share = sum(text == model.read([token]) for text in found) / draws
    assert abs(share - chance) < 4 * (chance * (1 - chance) / draws) ** 0.5


def test_every_stop_token_ends_a_reply(tmp_path: Path) -> None:
    plain = load(str(make_folder(tmp_path / "plain", "llama")), "cpu", SHORT)
    written = plain_loop(plain, DIALOGUES[0])
    third = next(token for token in written[2:] if token not in written[:2])
    folder = make_folder(tmp_path / "stops", "llama", eos_token_id=[2, third])
    model = load(str(folder), "cpu", SHORT)
    assert third in model.prompts.stops
    assert model.reply(DIALOGUES[:1]) == [model.read(written[: written.index(third)])]


def test_the_end_of_turn_of_a_template_ends_a_reply(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path, "llama", CHATML)), "cpu", SHORT)
    tokenizer: Any = model.tokenizer
    assert model.prompts.end == tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert model.prompts.stops == {model.prompts.end, tokenizer.eos_token_id}


def test_the_models_own_settings_stay_as_they_are(tmp_path: Path) -> None:
    model = load(str(make_folder(tmp_path, "llama", **UNRULY)), "cpu", SHORT)
    model.reply(DIALOGUES)
    assert model.network.generation_config.repetition_penalty == 9.0
