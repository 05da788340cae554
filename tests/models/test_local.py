"""A model of ours as its callers see it: text in, text and log-probabilities out."""

from __future__ import annotations

import math

import pytest
import torch

from backtalk.data.vocabulary import BOS, EOS, PAD, UNK
from backtalk.errors import InputError
from backtalk.models.lstm import model as local
from backtalk.models.lstm.model import LocalModel
from backtalk.types import Dialogue, Turn
from tests.models.test_contract import small_model


def say(*texts: str) -> Dialogue:
    return tuple(Turn("user", text) for text in texts)


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return small_model(attention=True, pad_as_word=False)


def ids(model: LocalModel, text: str) -> list[int]:
    return model.vocabulary.ids(text.split())


def test_inputs_are_cut_to_words_and_unknown_ones_marked(model: LocalModel) -> None:
    assert model.encode_input("I don't like THE giraffe") == [*ids(model, "i do n't like the"), UNK]
    assert model.encode_target("Yes") == [*ids(model, "yes"), EOS]
    assert model.encode_target("") == [EOS]
    assert model.unknown_words("the giraffe and the zebra, giraffe") == ["giraffe", "zebra", ","]


def test_the_last_utterance_alone_is_read_cropped_and_padded(model: LocalModel) -> None:
    long = " ".join(["cat"] * 99)
    rows = model.encode_dialogues([say("rain", "you go"), say(long), say("stop")])
    assert rows.shape == (3, model.max_input)
    assert rows[0].tolist() == [*ids(model, "you go"), *[PAD] * 13]
    assert rows[1].tolist() == ids(model, "cat") * 15
    short = model.encode_dialogues([say("you go"), say("stop")])
    assert short.tolist() == [ids(model, "you go"), [*ids(model, "stop"), PAD]]
    first_only = model.reply([say("rain and sun", "you go")])
    assert first_only == model.reply([say("you go")])


def test_pads_that_are_words_always_fill_the_whole_input() -> None:
    model = small_model(attention=False, pad_as_word=True)
    rows = model.encode_dialogues([say("you go")])
    assert rows.tolist() == [[*ids(model, "you go"), *[PAD] * 13]]
    replies = model.reply([say("you go"), say("i do n't like the rain")])
    assert replies[0] == model.reply([say("you go")])[0]


@pytest.mark.parametrize("text", ["", "   ", "\u200b\t"])
def test_an_empty_text_is_one_unknown_word(model: LocalModel, text: str) -> None:
    assert model.encode_dialogues([say(text)]).tolist() == [[UNK]]
    assert model.reply([say(text)]) == model.reply([say("giraffe")])


def test_a_dialogue_without_turns_is_an_error(model: LocalModel) -> None:
    with pytest.raises(InputError, match="no turns"):
        model.reply([say("stop"), ()])


def test_as_many_replies_as_dialogues(model: LocalModel) -> None:
    with pytest.raises(InputError, match="2 dialogues but 1 replies"):
        model.log_prob([say("stop"), say("go")], ["yes"])


def test_log_prob_is_the_score_of_the_encoded_reply(model: LocalModel) -> None:
    dialogues = [say("you go"), say("stop"), say("yes we do")]
    replies = ["no", "oh i like the dog so", ""]
    found = model.log_prob(dialogues, replies)
    assert [len(row) for row in found] == [2, 7, 1]
    for dialogue, reply, row in zip(dialogues, replies, found, strict=True):
        inputs = torch.tensor([model.encode_input(dialogue[-1].text)])
        targets = torch.tensor([model.encode_target(reply)])
        score = model.score(inputs, targets).log_probs
        assert sum(row) == pytest.approx(float(score.sum()), abs=1e-5)
        forward = model.network.token_log_probs(inputs, targets)
        assert sum(row) == pytest.approx(float(forward.sum()), abs=1e-5)


def test_more_dialogues_than_a_batch_change_nothing(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialogues = [say(text) for text in ("you go", "stop", "yes", "the sun", "well so")]
    replies = ["no", "yes", "oh", "you and i", "go"]
    whole = (model.reply(dialogues), model.sample(dialogues, range(5)))
    log_probs = model.log_prob(dialogues, replies)
    monkeypatch.setattr(local, "BATCH", 2)
    assert (model.reply(dialogues), model.sample(dialogues, range(5))) == whole
    for row, expected in zip(model.log_prob(dialogues, replies), log_probs, strict=True):
        assert row == pytest.approx(expected, abs=1e-5)


def test_no_dialogues_no_replies(model: LocalModel) -> None:
    assert model.reply([]) == []
    assert model.log_prob([], []) == []
    assert model.sample([], []) == []


def test_beams_are_sorted_and_as_likely_as_they_say(model: LocalModel) -> None:
    (row,) = model.beams([say("you go")], 8)
    values = [log_prob for _, log_prob in row]
    assert values == sorted(values, reverse=True)
    assert len({text for text, _ in row}) > 1
    greedy = model.greedy_ids(model.encode_dialogues([say("you go")]))[0]
    targets = torch.tensor([greedy])
    greedy_log_prob = float(model.score(model.encode_dialogues([say("you go")]), targets).log_probs.sum())
    assert model.beams([say("you go")], 1)[0][0][1] == pytest.approx(greedy_log_prob, abs=1e-4)
    assert values[0] >= greedy_log_prob - 1e-5


def test_greedy_ids_are_the_argmax_of_their_own_score(model: LocalModel) -> None:
    inputs = model.encode_dialogues([say("you go"), say("stop")])
    for row, written in zip(inputs, model.greedy_ids(inputs), strict=True):
        scores = model.score(row[None], torch.tensor([written]))
        assert scores.is_argmax.all()
        assert math.isfinite(float(scores.log_probs.sum()))


def test_ids_are_read_up_to_the_end_of_turn(model: LocalModel) -> None:
    words = ids(model, "i do n't like the sun")
    assert model.read([*words, EOS, *ids(model, "cat")]) == "I don't like the sun"
    assert model.encode_input(model.decode([*words, EOS, PAD])) == words
    assert model.decode([UNK]) == "<unk>"
    assert model.read([UNK, EOS]) == "[?]"
    assert model.read([EOS]) == ""


def test_no_special_token_may_be_searched(model: LocalModel) -> None:
    allowed = model.searchable()
    assert allowed.tolist() == [False] * 4 + [True] * (model.vocabulary_size - 4)
    assert not allowed[[PAD, BOS, EOS, UNK]].any()
