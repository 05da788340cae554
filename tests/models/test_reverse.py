"""The reverse generator: its policy against all sentences it can write, crafting, and its folder."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch
from torch import Tensor

from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import EOS, PAD, Vocabulary
from backtalk.errors import InputError
from backtalk.models.folder import TextSettings, save_folder, write_card
from backtalk.models.lstm.decode import sample
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.reverse import InputPolicy, craft, load_generator, save_generator
from tests.training.networks import CPU, make_network, same, weights

pytestmark = pytest.mark.usefixtures("one_thread")


def make_generator(words: int = 3, max_words: int = 2) -> LocalModel:
    """Words a, b, c, ...; at most `max_words` of them."""
    entries = tuple("abcdefghij"[:words])
    network = make_network(vocabulary=words + 4).eval().requires_grad_(False)
    recipe = get_recipe("he-glass-2019")
    return LocalModel("tiny", network, Vocabulary(entries), recipe, "", max_output=max_words)


def all_sentences(words: int = 3) -> Tensor:
    """Every sentence of one or two words: the first ends, the second is cut off."""
    ids = range(4, 4 + words)
    return torch.tensor([[w, EOS] for w in ids] + [[a, b] for a, b in itertools.product(ids, ids)])


def test_the_chances_of_all_sentences_add_up_to_one() -> None:
    policy = InputPolicy(make_generator().network)
    sentences = all_sentences()
    targets = torch.tensor([[4, 6, 5]]).expand(len(sentences), -1)
    assert float(policy.log_prob(targets, sentences).exp().sum()) == pytest.approx(1.0, abs=1e-6)


def test_the_chance_of_a_sentence_word_by_word() -> None:
    policy = InputPolicy(make_generator().network)
    target, sentence = torch.tensor([[4, 6]]), [5, 6]
    logits, state = policy.network.next(torch.tensor([1]), policy.network.start(target))
    first = logits[0, [4, 5, 6]].log_softmax(0)[1]  # no special symbol, no end yet
    logits, _ = policy.network.next(torch.tensor([5]), state)
    second = logits[0, [EOS, 4, 5, 6]].log_softmax(0)[3]
    got = policy.log_prob(target, torch.tensor([sentence]))
    assert float(got) == pytest.approx(float(first + second), abs=1e-5)


def test_padding_changes_nothing() -> None:
    policy = InputPolicy(make_generator(max_words=4).network)
    short = policy.log_prob(torch.tensor([[4, 6]]), torch.tensor([[5, EOS]]))
    long = policy.log_prob(torch.tensor([[4, 6, PAD]]), torch.tensor([[5, EOS, PAD, PAD]]))
    assert float(short) == pytest.approx(float(long), abs=1e-6)


def test_samples_come_as_often_as_the_policy_says() -> None:
    policy = InputPolicy(make_generator().network)
    sentences, count = all_sentences(), 6000
    targets = torch.tensor([[4, 6, 5]])
    chances = policy.log_prob(targets.expand(len(sentences), -1), sentences).exp().tolist()
    drawn = sample(policy, policy.network.start(targets.expand(count, -1)), range(count), 2, CPU).tolist()
    for sentence, chance in zip(sentences.tolist(), chances, strict=True):
        deviation = (chance * (1 - chance) / count) ** 0.5
        assert drawn.count(sentence) / count == pytest.approx(chance, abs=4.5 * deviation)


def test_a_beam_as_wide_as_all_sentences_finds_them_in_order() -> None:
    generator = make_generator()
    sentences = all_sentences()
    targets = ["a c b", "b"]
    ranked = []
    for target in targets:
        read = generator.encode_texts([target]).expand(len(sentences), -1)
        order = InputPolicy(generator.network).log_prob(read, sentences).argsort(descending=True)
        ranked.append([generator.decode(sentences[i].tolist()) for i in order])
    assert craft(generator, targets, 12) == ranked
    assert craft(generator, targets, 5) == [own[:5] for own in ranked], "on so few words a beam is exact"


def test_greedy_is_the_likeliest_word_each_time() -> None:
    generator = make_generator(words=5, max_words=4)
    policy = InputPolicy(generator.network)
    for target, (said,) in zip(["a b", "c"], craft(generator, ["a b", "c"], 1), strict=True):
        written = torch.zeros(1, 0, dtype=torch.long)
        while written.shape[1] < 4 and not (written == EOS).any():
            tried = torch.stack([torch.cat([written[0], torch.tensor([w])]) for w in [EOS, *range(4, 9)]])
            tried = tried if written.shape[1] else tried[1:]
            chances = policy.log_prob(generator.encode_texts([target]).expand(len(tried), -1), tried)
            written = tried[chances.argmax()][None]
        assert said == generator.decode(written[0].tolist())


@pytest.mark.parametrize("decode", ["beam", "sample"])
def test_crafted_inputs_are_distinct_words_and_never_empty(decode: str) -> None:
    generator = make_generator(words=6, max_words=3)
    targets = ["a b", "zzz", "", "c . d", "a b"]
    rows = craft(generator, targets, 7, decode)  # type: ignore[arg-type]  # the two that there are
    assert len(rows) == 5
    for row in rows:
        assert len(row) == len(set(row)) == 7
        for text in row:
            words = generator.recipe.words(text)
            assert 1 <= len(words) <= 3
            assert set(words) <= set("abcdef")


def test_a_targets_inputs_do_not_depend_on_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = make_generator(words=8, max_words=4)
    targets = ["a b", "c d e", "f", "g h a"]
    for decode in ("beam", "sample"):
        whole = craft(generator, targets, 5, decode, seeds=[3, 5, 7, 9])
        alone = [
            craft(generator, [t], 5, decode, seeds=[s])[0] for t, s in zip(targets, (3, 5, 7, 9), strict=True)
        ]
        monkeypatch.setattr("backtalk.models.lstm.softmax.CHUNK_FLOATS_CPU", 1)
        assert whole == alone == craft(generator, targets, 5, decode, seeds=[3, 5, 7, 9])
        monkeypatch.undo()
    assert craft(generator, targets, 5, "sample", [1, 2, 3, 4]) != craft(
        generator, targets, 5, "sample", [5, 6, 7, 8]
    )


TEMPERATURE = "backtalk.models.lstm.reverse.TEMPERATURE"


def test_a_low_temperature_writes_the_likeliest_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = make_generator(words=8, max_words=4)
    targets = ["a b", "c d e"]
    monkeypatch.setattr(TEMPERATURE, 1e-4)
    assert craft(generator, targets, 1, "sample") == craft(generator, targets, 1)


def test_more_distinct_samples_than_sentences_are_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TEMPERATURE, 3.0)
    (row,) = craft(make_generator(), ["a"], 20, "sample")
    assert sorted(row) == sorted(craft(make_generator(), ["a"], 12)[0])


def test_a_generator_comes_back_from_its_folder(tmp_path: Path) -> None:
    generator = make_generator(words=5, max_words=4)
    save_generator(generator, tmp_path / "g", {"of": "a model"})
    again = load_generator(tmp_path / "g", "cpu")
    assert same(weights(generator.network), weights(again.network))
    assert again.fingerprint == generator.fingerprint
    assert again.card["of"] == "a model"
    assert craft(again, ["a b"], 9) == craft(generator, ["a b"], 9)
    assert again.max_output == 4


def test_another_model_is_no_generator(tmp_path: Path) -> None:
    model = make_generator()
    digest = save_folder(tmp_path, model.network, model.vocabulary, TextSettings())
    write_card(tmp_path, {"kind": "seq2seq", "sha256": digest})
    with pytest.raises(InputError, match="no reverse generator"):
        load_generator(tmp_path, "cpu")
