"""MMI-antiLM against scores worked out by hand on six ids, and on a small model."""

from dataclasses import replace
from itertools import product

import pytest
import torch
from tests.models.test_contract import small_model
from tests.models.test_decode import CPU, LOGITS, A, B, C, Markov, Steps
from torch import Tensor

from backtalk.data.vocabulary import EOS
from backtalk.errors import InputError
from backtalk.models.lstm.decode import greedy
from backtalk.models.lstm.model import LocalModel
from backtalk.types import Turn
from reproduction.negative.mmi import MMI, AntiLanguageModel, Paired, mmi_ids

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
    assert mmi_ids(model, inputs, mmi) == alone
    monkeypatch.setattr("reproduction.negative.mmi.BATCH", 5)
    assert mmi_ids(model, inputs, mmi) == alone
    assert alone != model.greedy_ids(inputs)


def test_lambda_0_of_a_model_is_greedy(model: LocalModel, inputs: Tensor) -> None:
    assert mmi_ids(model, inputs, MMI(0.0)) == model.greedy_ids(inputs)


def test_a_model_without_a_language_model_is_refused(model: LocalModel, inputs: Tensor) -> None:
    bare = replace(model, language_model=None)
    with pytest.raises(InputError, match="small has no language model"):
        mmi_ids(bare, inputs, MMI())
