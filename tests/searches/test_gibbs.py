"""gibbs-enum against brute force and a planted weakness; what it promises of seeds, batches, pruning."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
import torch

from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import UNK, Vocabulary
from backtalk.models.lstm.language_model import LanguageModelConfig, LSTMLanguageModel
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from backtalk.registry import SEARCHES, search_config
from backtalk.searches.gibbs import Gibbs
from backtalk.searches.objective import Objective
from backtalk.searches.random import Random
from backtalk.searches.weights_search import WordSearch
from backtalk.types import TokenScores, Turn
from tests.searches.planted import WORDS, train_planted


def random_model(words: tuple[str, ...] = WORDS, scale: float = 1.0) -> LocalModel:
    torch.manual_seed(7)
    vocabulary = Vocabulary(words)
    network = Seq2Seq(Seq2SeqConfig(len(vocabulary), 8, 12))
    lm = LSTMLanguageModel(LanguageModelConfig(len(vocabulary), 8, 12))
    for part in (network, lm):
        for value in part.parameters():
            torch.nn.init.uniform_(value, -scale, scale)
        part.eval().requires_grad_(False)
    return LocalModel("random", network, vocabulary, get_recipe("he-glass-2019"), "0", lm)


def plain_loss(
    model: LocalModel, objective: Objective, inputs: torch.Tensor, target: list[int]
) -> torch.Tensor:
    goals = torch.tensor([target]).expand(len(inputs), -1)
    log_probs = model.network.token_log_probs(inputs, goals)
    scores = TokenScores(log_probs, model.score(inputs, goals).is_argmax)
    loss = objective.output_loss(scores, goals != model.pad)
    if objective.reads_input:
        assert model.language_model is not None
        loss = loss + objective.input_loss(model.language_model.token_log_probs(inputs, inputs), inputs)
    return loss


OBJECTIVES = {
    "greedy": Objective(greedy=True, average=False, enough_out=-1.0),
    "sample": Objective(greedy=False, average=False, enough_out=-1.0),
    "average": Objective(greedy=False, average=True, enough_out=-1.0),
    "io": Objective(greedy=False, average=True, enough_out=-1.0, enough_in=-1.5),
    "io-min": Objective(greedy=False, average=False, enough_out=-1.0, enough_in=-1.5),
    "io as published": Objective(False, True, enough_out=-1.0, enough_in=-1.5, as_published=True),
    "io of all words": Objective(False, True, enough_out=-1.0, enough_in=-1.5, whole=True),
    "fluent": Objective(False, False, enough_out=-1.0, total=True, fluency=2.0),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_it_reaches_the_exact_optimum_of_a_space_small_enough_to_enumerate(name: str) -> None:
    model, objective = random_model(), OBJECTIVES[name]
    every = torch.tensor(list(product(range(4, 16), repeat=3)))  # 1,728 inputs
    search = Gibbs(length=3, top=12, sweeps=20)
    for text in ("stop dog", "go go two", "rain"):
        target = model.encode_target(text)
        losses = plain_loss(model, objective, every, target)
        found = search.run(model, objective, [target] * 24, list(range(24)))
        best = min(found, key=lambda one: one.loss)
        assert best.loss == pytest.approx(float(losses.min()), abs=1e-5)
        assert float(plain_loss(model, objective, torch.tensor([best.ids]), target)) == pytest.approx(
            best.loss, abs=1e-5
        )


@pytest.mark.parametrize("name", OBJECTIVES)
def test_one_update_takes_the_best_of_all_words(name: str) -> None:
    """With G = V a position's update is the exact minimum over the vocabulary (eq. 7)."""
    model, objective = random_model(), OBJECTIVES[name]
    target = model.encode_target("stop dog")
    found = Gibbs(length=1, top=12, sweeps=1).run(model, objective, [target], [3])
    every = torch.arange(4, 16)[:, None]
    assert found[0].loss == pytest.approx(float(plain_loss(model, objective, every, target).min()), abs=1e-5)


@pytest.fixture(scope="module")
def planted() -> LocalModel:
    """A model that is friendly unless the input holds "rain": then it says "go stop"."""
    draw = np.random.default_rng(0)
    pairs = []
    for _ in range(1500):
        words = list(draw.choice(WORDS, 5))
        pairs.append((" ".join(words), "go stop" if "rain" in words else "red cat sun"))
    return train_planted(pairs, 5)


@pytest.mark.parametrize("prune", [False, True])
def test_a_planted_weakness_is_found_from_every_seed_and_really_said(
    planted: LocalModel, prune: bool
) -> None:
    target = planted.encode_target("go stop")
    harmless = [(Turn("user", "one two three blue green"),)]
    assert planted.reply(harmless) == ["Red cat sun"]
    search = Gibbs(length=5, top=4, sweeps=5, prune=prune)
    objective = Objective(greedy=True, average=False, enough_out=-1.0)
    found = search.run(planted, objective, [target] * 20, list(range(100, 120)))
    for one in found:
        assert one.loss == 0
        assert "rain" in planted.vocabulary.words(one.ids)
        assert planted.greedy_ids(torch.tensor([one.ids])) == [target]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_pruning_changes_nothing(name: str) -> None:
    model, objective = random_model(), OBJECTIVES[name]
    targets = [model.encode_target(text) for text in ("stop dog", "go go two rain", "rain")] * 4
    seeds = list(range(12))
    plain = Gibbs(4, 6, 8, prune=False).run(model, objective, targets, seeds)
    pruned = Gibbs(4, 6, 8, prune=True).run(model, objective, targets, seeds)
    assert [one.ids for one in plain] == [one.ids for one in pruned]
    assert [one.candidates for one in plain] == [one.candidates for one in pruned]
    for a, b in zip(plain, pruned, strict=True):
        assert a.loss_by_sweep == pytest.approx(b.loss_by_sweep, abs=1e-5)


@pytest.mark.parametrize("name", ["gibbs", "gcg", "random"])
class TestEverySearch:
    """What holds for searches that try words; test_contract.py asks what holds for every search."""

    def make(self, name: str, *sizes: int, **how: bool) -> WordSearch:
        search: WordSearch = search_config(name)(*sizes, **how)
        assert search.needs == SEARCHES[name].access
        return search

    def test_same_seeds_same_findings_and_others_with_other_seeds(self, name: str) -> None:
        model, objective = random_model(), OBJECTIVES["io"]
        targets = [model.encode_target("stop dog"), model.encode_target("rain")]
        search = self.make(name, 4, 3, 2)
        first = search.run(model, objective, targets, [1, 2])
        assert first == search.run(model, objective, targets, [1, 2])
        starts = [one.loss_by_sweep[0] for one in first]
        others = search.run(model, objective, targets, [3, 4])
        assert starts != [one.loss_by_sweep[0] for one in others]

    @pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
    def test_a_row_ends_alike_alone_and_in_a_batch(self, name: str, objective: Objective) -> None:
        model = random_model()
        texts = ["stop dog", "go go two", "rain", "red sun sun cat"]
        targets, seeds = [model.encode_target(text) for text in texts], list(range(4))
        sweeps = 1 if name == "gcg" else 4  # five steps each
        search = self.make(name, 5, 6, sweeps)
        together = search.run(model, objective, targets, seeds)
        alone = [
            search.run(model, objective, [target], [seed])[0]
            for target, seed in zip(targets, seeds, strict=True)
        ]
        assert [one.ids for one in together] == [one.ids for one in alone]

    def test_it_stays_in_its_budget_and_never_gets_worse(self, name: str) -> None:
        model, objective = random_model(), OBJECTIVES["sample"]
        search = self.make(name, 4, 3, 5)
        for one in search.run(model, objective, [model.encode_target("stop dog")] * 5, list(range(5))):
            assert 0 < one.candidates <= search.most_candidates == 60
            assert one.loss_by_sweep == sorted(one.loss_by_sweep, reverse=True)
            assert one.loss_by_sweep[-1] == one.loss

    @pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)
    def test_no_special_word_stands_in_a_trigger_unless_asked(self, name: str, objective: Objective) -> None:
        model = random_model()
        targets = [model.encode_target("stop dog")] * 30
        sweeps = 1 if name == "gcg" else 3  # six steps each
        for with_unknown in (False, True):
            search = self.make(name, 6, 12, sweeps, with_unknown=with_unknown)
            used = {i for one in search.run(model, objective, targets, list(range(30))) for i in one.ids}
            assert used.isdisjoint({0, 1, 2})
            assert UNK not in used or with_unknown


def test_stopping_at_the_first_hit_saves_candidates(planted: LocalModel) -> None:
    objective = Objective(greedy=False, average=True, enough_out=-2.0)
    targets = [planted.encode_target("go stop")] * 10
    whole = Gibbs(5, 4, 5).run(planted, objective, targets, list(range(10)))
    early = Gibbs(5, 4, 5, stop_at_hit=True).run(planted, objective, targets, list(range(10)))
    assert sum(one.candidates for one in early) < sum(one.candidates for one in whole)
    for one in early:
        scores = planted.score(torch.tensor([one.ids]), torch.tensor([targets[0]]))
        assert float(scores.log_probs.mean()) > -2.0


def test_following_the_gradient_beats_chance_at_equal_candidates() -> None:
    model = random_model(tuple(f"w{i}" for i in range(300)), scale=0.7)
    objective = Objective(greedy=False, average=False, enough_out=-0.5)
    draw = np.random.default_rng(5)
    targets = [[int(i) for i in draw.integers(4, 304, 3)] + [2] for _ in range(30)]
    ours = Gibbs(5, 10, 3).run(model, objective, targets, list(range(30)))
    chance = Random(5, 10, 3).run(model, objective, targets, list(range(30)))
    better = sum(a.loss < b.loss for a, b in zip(ours, chance, strict=True))
    assert better >= 25


@pytest.mark.parametrize("name", ["greedy", "sample", "io-min"])
def test_a_draft_ranks_and_the_model_decides(name: str) -> None:
    """Losses of a search with a bfloat16 draft are the model's own, in float32, and lead as far."""
    model, objective = random_model(), OBJECTIVES[name]
    targets = [model.encode_target(text) for text in ("stop dog", "go go two", "rain")] * 8
    plain = Gibbs(length=4, top=12, sweeps=8).run(model, objective, targets, range(24))
    draft = Gibbs(length=4, top=12, sweeps=8, precision="bfloat16").run(model, objective, targets, range(24))
    for one, target in zip(draft, targets, strict=True):
        own = float(plain_loss(model, objective, torch.tensor([one.ids]), target))
        assert one.loss == pytest.approx(own, abs=1e-5)
        assert all(
            later < earlier
            for earlier, later in zip(one.loss_by_sweep[:-2], one.loss_by_sweep[1:-1], strict=True)
        )
    same = sum(a.ids == b.ids for a, b in zip(plain, draft, strict=True))
    assert same >= 20  # of 24: bfloat16 may rank the winner behind four others, but seldom
    assert [one.loss for one in draft] == pytest.approx([one.loss for one in plain], abs=0.2)


def test_a_draft_is_another_network_and_leaves_the_model_alone() -> None:
    model = random_model()
    before = {name: value.clone() for name, value in model.network.named_parameters()}
    draft = model.draft()
    assert draft.network.output.weight.dtype == torch.bfloat16
    assert draft.language_model is not None
    assert draft.language_model.output.weight.dtype == torch.bfloat16
    assert all(torch.equal(value, before[name]) for name, value in model.network.named_parameters())
    inputs, targets = torch.tensor([[4, 5, 6], [7, 8, 9]]), torch.tensor([[5, 6, 2], [7, 2, 0]])
    coarse, exact = draft.score(inputs, targets), model.score(inputs, targets)
    assert coarse.log_probs.dtype == torch.float32
    assert torch.allclose(coarse.log_probs, exact.log_probs, atol=0.05, rtol=0.02)


def test_the_output_part_of_the_loss_is_kept_by_sweep() -> None:
    model, objective = random_model(), OBJECTIVES["io-min"]
    target = model.encode_target("stop dog")
    (found,) = Gibbs(length=4, top=12, sweeps=6).run(model, objective, [target], [3])
    output = found.series["output_loss_by_sweep"]
    assert len(output) == len(found.loss_by_sweep) > 1
    assert all(part <= whole + 1e-6 for part, whole in zip(output, found.loss_by_sweep, strict=True))
    ends = model.score(torch.tensor([found.ids]), torch.tensor([target]))
    alone = objective.output_loss(ends, torch.ones(1, len(target), dtype=torch.bool))
    assert output[-1] == pytest.approx(float(alone), abs=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="what a GPU waits for")
@pytest.mark.parametrize("name", ["sample", "io"])
def test_a_longer_sweep_makes_the_processor_wait_no_oftener(name: str) -> None:
    """The processor may read something back between sweeps, never at a position."""
    model = random_model()
    model.network.cuda()
    assert model.language_model is not None
    model.language_model.cuda()
    targets = [model.encode_target(text) for text in ("go stop", "rain", "red cat sun")]

    def waits(length: int, sweeps: int) -> int:
        search = Gibbs(length, top=6, sweeps=sweeps, precision="bfloat16")
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                search.run(model, OBJECTIVES[name], targets, [1, 2, 3])
            finally:
                torch.cuda.set_sync_debug_mode("default")
        return sum("synchroni" in str(one.message) for one in seen)

    waits(3, 2), waits(9, 2)  # compile the kernels
    assert waits(9, 2) - waits(9, 1) == waits(3, 2) - waits(3, 1) > 0
