"""MMI-antiLM against scores worked out by hand on six ids, and against every sentence there is."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from tests.models.test_contract import small_model
from tests.models.test_decode import CPU, LOGITS, PROBABILITIES, A, B, C, Markov, Steps, all_sentences
from torch import Tensor

from backtalk.data.vocabulary import BOS, EOS, PAD
from backtalk.errors import InputError
from backtalk.models.lstm.decode import beam, greedy
from backtalk.models.lstm.model import LocalModel
from backtalk.types import Turn
from reproduction.negative.mmi import MMI, AntiLanguageModel, Paired, mmi_beams, mmi_ids, rerank

# What the language model gives, by the word before; pad and bos never.
U = torch.tensor(
    [
        [0.0, 0.0, 0.25, 0.25, 0.25, 0.25],
        [0.0, 0.0, 0.05, 0.60, 0.30, 0.05],
        [0.0, 0.0, 0.25, 0.25, 0.25, 0.25],
        [0.0, 0.0, 0.40, 0.20, 0.20, 0.20],
        [0.0, 0.0, 0.70, 0.10, 0.10, 0.10],
        [0.0, 0.0, 0.10, 0.10, 0.70, 0.10],
    ]
)


class Usual(Markov):
    """The language model of the table; it counts how often it is asked."""

    asked = 0

    def next(self, words: Tensor, state: Steps) -> tuple[Tensor, Steps]:
        self.asked += 1
        return U[words].log() + 2.0, Steps(torch.cat([state.so_far, words[:, None]], dim=1))


def log_u(ids: Tensor) -> Tensor:
    before = torch.cat([torch.full_like(ids[:, :1], BOS), ids[:, :-1]], dim=1)
    return U[before, ids].clamp(min=1e-9).log().masked_fill(ids == PAD, 0.0)


def score_by_hand(words: tuple[int, ...], mmi: MMI) -> float:
    total = 0.0
    for t, (before, word) in enumerate(zip((BOS, *words), words, strict=False)):
        total += math.log(PROBABILITIES[before, word])
        if t < mmi.words:
            total -= mmi.weight * math.log(U[before, word])
    return total + mmi.length * sum(word != EOS for word in words)


def written(mmi: MMI, rows: int = 1, length: int = 4) -> list[list[int]]:
    both = AntiLanguageModel(Markov(), Usual(), mmi)
    start = Paired(Markov().start(rows), Usual().start(rows))
    return greedy(both, start, rows, length, CPU).tolist()


def test_each_word_is_the_best_of_hand_computed_scores() -> None:
    """From <bos>, lambda 1: <eos> .10/.05 = 2, A .35/.60, B 1, C .25/.05 = 5, so C.
    From C: <eos> .15/.10 = 1.5, A .5, B .60/.70, C 2, so C again; past gamma P alone counts: B, <eos>."""
    assert written(MMI(1.0, 1)) == [[C, B, EOS]]
    assert written(MMI(1.0, 2)) == [[C, C, B, EOS]]
    # From B, lambda 1: <eos> .90/.70 = 1.29 is the best; others are .2, .3, .5.
    assert written(MMI(1.0, 4)) == [[C, C, C, C]]
    # lambda 0.5: roots of U. <bos>: .10/.224 = .447, .35/.775 = .452, .30/.548 = .548, .25/.224 = 1.118.
    assert written(MMI(0.5, 1)) == [[C, B, EOS]]
    # lambda 0.2: .10/.549 = .182, .35/.903 = .388, .30/.786 = .382, .25/.549 = .455: still C, from A no more.
    assert written(MMI(0.2, 1)) == [[C, B, EOS]]
    assert written(MMI(0.05, 1)) == [[A, A, A, A]]


def test_each_word_adds_mu_and_the_end_does_not() -> None:
    assert written(MMI(0.0, 0, 0.0), length=3) == [[A, A, A]]
    # B -> <eos> has 0.9 and C 0.05: log 18 = 2.89 is what a word must bring to go on.
    assert written(MMI(1.0, 1, 2.8)) == [[C, B, EOS]]
    assert written(MMI(1.0, 1, 2.95)) == [[C, B, C, B]]
    # <bos>: <eos> 0.10 against A 0.35 is log 3.5 = 1.25.
    assert written(MMI(0.0, 0, -1.2))[0][0] == A
    assert written(MMI(0.0, 0, -1.3)) == [[EOS]]


def test_lambda_0_is_greedy_and_asks_no_language_model() -> None:
    usual = Usual()
    both = AntiLanguageModel(Markov(), usual, MMI(0.0, 9, 0.0))
    plain = greedy(Markov(), Markov().start(2), 2, 6, CPU)
    assert greedy(both, Paired(Markov().start(2), usual.start(2)), 2, 6, CPU).equal(plain)
    assert usual.asked == 0


def test_the_language_model_is_asked_for_the_first_words_alone() -> None:
    usual = Usual()
    both = AntiLanguageModel(Markov(), usual, MMI(0.01, 2))
    greedy(both, Paired(Markov().start(1), usual.start(1)), 1, 6, CPU)
    assert usual.asked == 2


def test_ids_that_are_no_words_gain_nothing() -> None:
    """A model that leaves pad and bos a little, as real ones do: U there is 0, and A still wins."""

    class Leaky(Markov):
        def next(self, words: Tensor, state: Steps) -> tuple[Tensor, Steps]:
            return LOGITS[words].clamp(min=-30.0), state

    both = AntiLanguageModel(Leaky(), Usual(), MMI(1.0, 4))
    assert greedy(both, Paired(Markov().start(1), Usual().start(1)), 1, 4, CPU).tolist() == [[C, C, C, C]]


def test_states_follow_their_rows() -> None:
    state = Paired(Steps(torch.arange(6).view(3, 2)), Steps(torch.arange(3).view(3, 1)), 4)
    picked = state.select(torch.tensor([2, 0]))
    assert picked.dialogue.so_far.tolist() == [[4, 5], [0, 1]]
    assert picked.language.so_far.tolist() == [[2], [0]]
    assert picked.written == 4


@pytest.mark.parametrize(
    "mmi",
    [MMI(0.0, 0, 0.0), MMI(0.5, 2), MMI(1.0, 1), MMI(1.0, 9), MMI(0.3, 3, 0.7), MMI(2.0, 2, -1.0)],
    ids=str,
)
@pytest.mark.parametrize("length", [1, 2, 3])
def test_reranking_equals_scoring_every_sentence(mmi: MMI, length: int) -> None:
    truth = {words: score_by_hand(words, mmi) for words in all_sentences(length)}
    found = beam(Markov(), Markov().start(1), 1, length, len(truth), CPU)
    (ranked,) = rerank(found, log_u, mmi, CPU)
    assert {tuple(one.ids) for one in ranked} == truth.keys()
    for one in ranked:
        assert one.score == pytest.approx(truth[tuple(one.ids)], abs=1e-4)
        assert one.log_prob == pytest.approx(math.log(all_sentences(length)[tuple(one.ids)]), abs=1e-4)
    scores = [one.score for one in ranked]
    assert scores == sorted(scores, reverse=True)
    assert truth[tuple(ranked[0].ids)] == pytest.approx(max(truth.values()), abs=1e-4)


def test_lambda_0_leaves_the_beam_as_it_is() -> None:
    found = beam(Markov(), Markov().start(2), 2, 4, 7, CPU)
    ranked = rerank(found, log_u, MMI(0.0, 5, 0.0), CPU)
    assert [[(one.ids, one.log_prob) for one in row] for row in ranked] == [
        [(one.ids, one.log_prob) for one in row] for row in found
    ]
    assert all(one.score == one.log_prob for row in ranked for one in row)


# --- a model of ours -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return small_model(attention=True, pad_as_word=False)


@pytest.fixture(scope="module")
def inputs(model: LocalModel) -> Tensor:
    words = ("you", "stop", "the", "cat", "maybe", "rain")
    texts = [f"{a} {b}" for a, b in product(words, words)]
    return model.encode_dialogues([(Turn("user", text),) for text in texts])


def test_a_whole_set_is_answered_as_one_by_one(
    model: LocalModel, inputs: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    mmi = MMI(0.7, 3, 0.1)
    alone = [mmi_ids(model, row[None], mmi)[0] for row in inputs]
    lists = [mmi_beams(model, row[None], 4, mmi)[0] for row in inputs]
    assert mmi_ids(model, inputs, mmi) == alone
    for row, own in zip(mmi_beams(model, inputs, 4, mmi), lists, strict=True):
        assert [one.ids for one in row] == [one.ids for one in own]
        assert [one.score for one in row] == pytest.approx([one.score for one in own], abs=1e-4)
    monkeypatch.setattr("reproduction.negative.mmi.BATCH", 5)
    assert mmi_ids(model, inputs, mmi) == alone
    assert alone != model.greedy_ids(inputs)


def test_lambda_0_is_greedy_and_the_plain_beam(model: LocalModel, inputs: Tensor) -> None:
    assert mmi_ids(model, inputs, MMI(0.0)) == model.greedy_ids(inputs)
    state = model.network.start(inputs)
    plain = beam(model.network, state, len(inputs), model.max_output, 3, CPU)
    ranked = mmi_beams(model, inputs, 3, MMI(0.0))
    assert [[one.ids for one in row] for row in ranked] == [[one.ids for one in row] for row in plain]


def test_a_replys_score_is_that_of_both_models_under_teacher_forcing(
    model: LocalModel, inputs: Tensor
) -> None:
    mmi = MMI(0.7, 3, 0.2)
    assert model.language_model is not None
    for row, found in zip(inputs[:5], mmi_beams(model, inputs[:5], 3, mmi), strict=True):
        for one in found:
            ids = torch.tensor([one.ids])
            log_p = float(model.score(row[None], ids).log_probs.sum())
            log_u = float(model.language_model.score(ids)[0, :3].sum())
            words = len([i for i in one.ids if i != EOS])
            assert one.score == pytest.approx(log_p - 0.7 * log_u + 0.2 * words, abs=1e-4)


def test_a_model_without_a_language_model_is_refused(model: LocalModel, inputs: Tensor) -> None:
    bare = replace(model, language_model=None)
    with pytest.raises(InputError, match="small has no language model"):
        mmi_ids(bare, inputs, MMI())
