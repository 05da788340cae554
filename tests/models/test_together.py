"""Several models as one, against each alone: scores, gradients, pruning, and what a search then finds."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backtalk.models.lstm.model import LocalModel
from backtalk.models.together import same_tokens, together
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.protocols import Drafting, Retokenises, WeightsModel
from backtalk.searches.beam import Beam
from backtalk.searches.gcg import Gcg
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective
from backtalk.searches.random import Random
from backtalk.specs import ModelOptions
from tests.searches.planted import WORDS, train_planted
from tests.searches.test_climb import CHANCE
from tests.searches.test_gibbs import OBJECTIVES, plain_loss, random_model

EVERY = torch.tensor(list(product(range(4, 16), repeat=3)))  # 1,728 inputs


def pair() -> list[LocalModel]:
    """Two random models of the same words."""
    first, second = random_model(), random_model()
    torch.manual_seed(11)
    for value in second.network.parameters():
        torch.nn.init.uniform_(value, -1, 1)
    return [first, replace(second, name="second", fingerprint="1")]


def rows(model: WeightsModel) -> tuple[torch.Tensor, torch.Tensor]:
    goals = [model.encode_target(text) for text in ("stop dog", "rain")]
    return torch.tensor([[4, 9, 7], [15, 5, 6]]), torch.tensor([goals[0], [*goals[1], model.pad]])


def test_one_model_stays_itself() -> None:
    model = random_model()
    assert together([model]) is model
    both = together(pair())
    assert isinstance(both, Drafting)
    assert isinstance(both, WeightsModel)
    assert not isinstance(both, Retokenises)  # words are never read as other words


def test_scores_and_gradients_are_means_of_plain_ones() -> None:
    models = pair()
    both, (inputs, targets) = together(models), rows(models[0])
    plain = [one.network.token_log_probs(inputs, targets) for one in models]
    found = both.score(inputs, targets)
    assert torch.allclose(found.log_probs, (plain[0] + plain[1]) / 2, atol=1e-5)
    flags = [one.score(inputs, targets).is_argmax for one in models]
    assert torch.equal(found.is_argmax, flags[0] & flags[1])
    candidates = torch.arange(4, 16).expand(2, -1)
    substituted = both.score_substitutions(inputs, 1, candidates, targets)
    for place, word in enumerate(range(4, 16)):
        changed = inputs.clone()
        changed[:, 1] = word
        assert torch.allclose(
            substituted.log_probs[:, place], both.score(changed, targets).log_probs, atol=1e-5
        )
    weights = torch.rand(targets.shape)
    gradients = [one.gradient(inputs, targets, weights, [2]) for one in models]
    assert torch.allclose(
        both.gradient(inputs, targets, weights, [2]), (gradients[0] + gradients[1]) / 2, atol=1e-6
    )


@pytest.mark.parametrize("search", [Gibbs, Gcg])
def test_it_reaches_the_least_mean_loss(search: type[Gibbs]) -> None:
    models = pair()
    target = models[0].encode_target("stop dog")
    means = torch.stack([plain_loss(one, CHANCE, EVERY, target) for one in models]).mean(0)
    own = search(length=3, top=12, sweeps=20, anneal=0.3)
    found = own.run(together(models), CHANCE, [target] * 6, list(range(6)))
    for one in found:
        place = int((torch.tensor(one.ids) == EVERY).all(1).nonzero())
        assert one.loss == pytest.approx(float(means[place]), abs=1e-5)
    assert min(one.loss for one in found) == pytest.approx(float(means.min()), abs=1e-5)
    alone = own.run(models[0], CHANCE, [target] * 6, list(range(6)))
    assert {one.ids for one in alone}.isdisjoint({min(found, key=lambda one: one.loss).ids})


def test_drafts_rank_and_the_models_decide() -> None:
    models = pair()
    target = models[0].encode_target("stop dog")
    own = Gibbs(length=3, top=12, sweeps=6, precision="bfloat16")
    assert own.draft_of(together(models)) is not None
    for one in own.run(together(models), CHANCE, [target] * 4, list(range(4))):
        each = [float(plain_loss(model, CHANCE, torch.tensor([one.ids]), target)) for model in models]
        assert one.loss == pytest.approx(sum(each) / 2, abs=1e-4)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_pruning_drops_nothing(name: str) -> None:
    models = pair()
    both, objective = together(models), OBJECTIVES[name]
    targets = [both.encode_target(text) for text in ("stop dog", "go go two", "rain")] * 4
    plain, pruned = (
        Gibbs(length=3, top=8, sweeps=4, prune=prune).run(both, objective, targets, list(range(12)))
        for prune in (False, True)
    )
    assert [one.ids for one in pruned] == [one.ids for one in plain]


@pytest.mark.parametrize("search", [Random(length=3, top=12, sweeps=8), Beam(length=3, top=12, sweeps=4)])
def test_other_searches_minimise_the_mean_too(search: Random | Beam) -> None:
    models = pair()
    target = models[0].encode_target("rain")
    (found,) = search.run(together(models), CHANCE, [target], [1])
    each = [float(plain_loss(one, CHANCE, torch.tensor([found.ids]), target)) for one in models]
    assert found.loss == pytest.approx(sum(each) / 2, abs=1e-4)


RAIN, DOG = {"rain", "one"}, {"two", "dog"}


def habits(rain: float, dog: float) -> LocalModel:
    """A model that says "go stop" so often where both words of a weakness are there, and is friendly
    otherwise."""
    draw, pairs = np.random.default_rng(0), []
    for number in range(1500):
        words = [str(word) for word in draw.choice(WORDS, 3)]
        if number % 3:
            words[number % 2], words[2] = sorted((RAIN, DOG)[number % 3 - 1])
        often = max(rain * (set(words) >= RAIN), dog * (set(words) >= DOG))
        pairs.append((" ".join(words), "go stop" if draw.random() < often else "red cat sun"))
    return train_planted(pairs, 3)


def test_a_weakness_that_only_one_model_has_is_not_chosen() -> None:
    first, second = habits(rain=1.0, dog=0.5), habits(rain=0.0, dog=1.0)
    target, own = first.encode_target("go stop"), Gibbs(length=3, top=12, sweeps=12, anneal=0.3)

    def best(models: list[LocalModel]) -> set[str]:
        found = own.run(together(models), CHANCE, [target] * 8, list(range(8)))
        return set(models[0].vocabulary.words(min(found, key=lambda one: one.loss).ids))

    assert best([first]) >= RAIN
    assert best([first, second]) >= DOG
    assert best([second]) >= DOG


def test_other_words_are_other_tokens() -> None:
    first, second = pair()
    assert same_tokens(first, second)
    assert not same_tokens(first, random_model((*WORDS[:-1], "fly")))


@pytest.fixture
def tiny(tmp_path: Path) -> tuple[TransformerModel, TransformerModel]:
    """Two networks with one tokenizer; the second has a larger embedding and ends its turns otherwise."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tests.models.transformer.tiny import make_folder, make_network

    first = make_folder(tmp_path / "first", "llama")
    second = make_folder(tmp_path / "second", "llama")
    hf: Any = import_module("transformers")
    tokenizer = hf.AutoTokenizer.from_pretrained(str(first))
    torch.manual_seed(5)
    make_network("llama", len(tokenizer) + 8).save_pretrained(second)
    models = [load(str(folder), "cpu", ModelOptions(max_reply=6)) for folder in (first, second)]
    other = models[1].prompts
    assert other.end == models[0].prompts.end
    # An instruction-tuned sibling ends its turns with another special token.
    other.end = next(i for i in tokenizer.all_special_ids if i not in (other.end, tokenizer.unk_token_id))
    return models[0], models[1]


def test_word_pieces(tiny: tuple[TransformerModel, TransformerModel]) -> None:
    first, second = tiny
    both = together(tiny)
    assert same_tokens(*tiny)
    assert isinstance(both, Retokenises)
    allowed = both.searchable().nonzero().squeeze(1)
    assert set(allowed.tolist()) == set(first.searchable().nonzero().squeeze(1).tolist())
    texts = ("you are rude", "go")
    width = max(len(first.encode_target(text)) for text in texts)
    goals, others = (
        torch.tensor([[*ids, *[first.pad] * (width - len(ids))] for ids in map(one.encode_target, texts)])
        for one in tiny
    )
    assert not torch.equal(goals, others)
    inputs = allowed[torch.arange(6)].view(2, 3)
    plain = [first.score(inputs, goals).log_probs, second.score(inputs, others).log_probs]
    assert torch.allclose(both.score(inputs, goals).log_probs, (plain[0] + plain[1]) / 2, atol=1e-5)
    weights = torch.ones(goals.shape)
    gradients = [first.gradient(inputs, goals, weights), second.gradient(inputs, others, weights)]
    size = first.vocabulary_size
    assert gradients[1].shape[-1] == size + 8
    assert torch.allclose(
        both.gradient(inputs, goals, weights), (gradients[0] + gradients[1][..., :size]) / 2, atol=1e-5
    )
    damped = [
        one.gradient(inputs, own, weights, [1], 0.5) for one, own in zip(tiny, (goals, others), strict=True)
    ]
    expected = (damped[0] + damped[1][..., :size]) / 2
    assert torch.allclose(both.gradient(inputs, goals, weights, [1], 0.5), expected, atol=1e-5)
    assert not torch.allclose(damped[0], gradients[0][:, [1]], atol=1e-3)
    before = both.tokens_read
    objective = Objective(False, False, -10.0, total=True)
    found = Gibbs(length=3, top=6, sweeps=2).run(both, objective, [first.encode_target("go")] * 2, [1, 2])
    assert both.tokens_read > before
    triggers = torch.tensor([one.ids for one in found])
    assert all(bool(one.survives(triggers).all()) for one in tiny)
    for one in found:
        ids = torch.tensor([one.ids])
        sums = [
            float(model.score(ids, torch.tensor([model.encode_target("go")])).log_probs.sum())
            for model in tiny
        ]
        assert one.loss == pytest.approx(-sum(sums) / 2, abs=1e-4)
