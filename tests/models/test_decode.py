"""Decoding on a model small enough to write down: six ids, and a table of what follows what."""

from __future__ import annotations

import math
from itertools import product
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from backtalk.data.vocabulary import BOS, EOS, PAD
from backtalk.models.lstm.decode import Sampling, beam, greedy, sample, trim

CPU = torch.device("cpu")
A, B, C = 3, 4, 5
NEVER = -math.inf
# Row: the word before. Column: pad, bos, eos, A, B, C.
TABLE = torch.tensor(
    [
        [NEVER, NEVER, 0.25, 0.25, 0.25, 0.25],
        [NEVER, NEVER, 0.10, 0.35, 0.30, 0.25],
        [NEVER, NEVER, 0.25, 0.25, 0.25, 0.25],
        [NEVER, NEVER, 0.20, 0.30, 0.26, 0.24],
        [NEVER, NEVER, 0.90, 0.02, 0.03, 0.05],
        [NEVER, NEVER, 0.15, 0.05, 0.60, 0.20],
    ]
)
PROBABILITIES = TABLE.clamp(min=0.0)
LOGITS = torch.where(TABLE > 0, TABLE.log(), NEVER) + torch.tensor([0.0, 3.0, 0.0, -2.0, 5.0, 1.0])[:, None]
"""Each row is moved by a constant, which changes no probability."""


class Steps(NamedTuple):
    """A decoding state with something to select: the words so far."""

    so_far: Tensor

    def select(self, rows: Tensor) -> Steps:
        return Steps(self.so_far[rows])


class Markov:
    """The next word depends on the last one alone; it checks that states follow their rows."""

    def next(self, words: Tensor, state: Steps) -> tuple[Tensor, Steps]:
        return LOGITS[words], Steps(torch.cat([state.so_far, words[:, None]], dim=1))

    def start(self, rows: int) -> Steps:
        return Steps(torch.zeros(rows, 0, dtype=torch.long))


class Counting(Markov):
    """Says A until the state has grown to the row's own length, then <eos>: wrong if a state strays."""

    def next(self, words: Tensor, state: Steps) -> tuple[Tensor, Steps]:
        lengths = state.so_far[:, 0] - 1
        wanted = torch.where(lengths > 0, A, EOS)
        logits = torch.full((len(words), 6), -20.0).scatter(1, wanted[:, None], 0.0)
        logits[:, [B, C]] = -3.0
        return logits, Steps(state.so_far - 1)


def all_sentences(length: int) -> dict[tuple[int, ...], float]:
    """Every sentence of at most `length` words, unfinished ones only at full length, with its probability."""
    found = {}
    for size in range(1, length + 1):
        for words in product((EOS, A, B, C), repeat=size):
            if EOS in words[:-1] or (size < length and words[-1] != EOS):
                continue
            path = zip((BOS, *words), words, strict=False)
            found[words] = math.prod(float(PROBABILITIES[before, word]) for before, word in path)
    assert sum(found.values()) == pytest.approx(1, abs=1e-6)
    return found


def test_greedy_takes_the_likeliest_word_each_time() -> None:
    model = Markov()
    written = greedy(model, model.start(2), 2, 4, CPU)
    assert written.tolist() == [[A, A, A, A]] * 2, "from <bos> A is likeliest, and from A again A"


def test_greedy_stops_and_pads_each_row_at_its_own_end() -> None:
    written = greedy(Counting(), Steps(torch.tensor([[3], [1], [2]])), 3, 10, CPU)
    assert written.tolist() == [[A, A, EOS], [EOS, PAD, PAD], [A, EOS, PAD]]


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_a_beam_wide_enough_finds_the_best_sentences(length: int) -> None:
    truth = sorted(all_sentences(length).items(), key=lambda item: -item[1])
    width = len(truth)
    model = Markov()
    (found,) = beam(model, model.start(1), 1, length, width, CPU)
    assert [tuple(best.ids) for best in found[:10]] == [words for words, _ in truth[:10]]
    assert {tuple(best.ids) for best in found} == {words for words, _ in truth}
    for best in found:
        assert best.log_prob == pytest.approx(math.log(dict(truth)[tuple(best.ids)]), abs=1e-5)


def test_a_beam_beats_greedy_and_rows_do_not_mix() -> None:
    model = Markov()
    single = beam(model, model.start(1), 1, 4, 3, CPU)[0]
    assert single[0].ids == [B, EOS]
    assert single[0].log_prob == pytest.approx(math.log(0.30 * 0.90))
    values = [best.log_prob for best in single]
    assert values == sorted(values, reverse=True)
    assert beam(model, model.start(3), 3, 4, 3, CPU) == [single] * 3
    found = beam(Counting(), Steps(torch.tensor([[3], [1], [2]])), 3, 10, 2, CPU)
    assert [row[0].ids for row in found] == [[A, A, EOS], [EOS], [A, EOS]]


class Remembering(Markov):
    """What follows depends on all words so far: a beam must take its state along."""

    def next(self, words: Tensor, state: Steps) -> tuple[Tensor, Steps]:
        logits, state = super().next(words, state)
        logits = logits.clone()
        logits[:, A] += 0.8 * (state.so_far.sum(1) % 5)
        return logits, state


def test_a_beam_takes_its_states_along() -> None:
    model = Remembering()
    (found,) = beam(model, model.start(1), 1, 4, 30, CPU)
    for best in found:
        state, total = model.start(1), 0.0
        for before, word in zip((BOS, *best.ids), best.ids, strict=False):
            logits, state = model.next(torch.tensor([before]), state)
            total += float(logits.log_softmax(1)[0, word])
        assert best.log_prob == pytest.approx(total, abs=1e-5)


class Forking(Markov):
    """<eos> at once has 0.25; A (0.6) goes on to B or C by halves, and those to three words by thirds."""

    def next(self, words: Tensor, state: Steps) -> tuple[Tensor, Steps]:
        third = 1 / 3
        table = torch.zeros(6, 6)
        table[BOS] = torch.tensor([0, 0, 0.25, 0.6, 0.15, 0])
        table[A] = torch.tensor([0, 0, 0, 0, 0.5, 0.5])
        table[B] = table[C] = torch.tensor([0, 0, third, 0, third, third])
        return table[words].log(), Steps(torch.cat([state.so_far, words[:, None]], dim=1))


def test_a_finished_sentence_is_not_pushed_out_by_unfinished_ones() -> None:
    """After two words A B and A C (0.3 each) are ahead of the finished one (0.25), but end far below it."""
    (found,) = beam(Forking(), Forking().start(1), 1, 6, 2, CPU)
    assert found[0].ids == [EOS]
    assert math.exp(found[0].log_prob) == pytest.approx(0.25)
    assert math.exp(found[1].log_prob) == pytest.approx(0.1)


def test_a_beam_wider_than_all_sentences_shows_only_what_can_be_said() -> None:
    (found,) = beam(Markov(), Markov().start(1), 1, 1, 6, CPU)
    assert sorted(one.ids for one in found) == [[EOS], [A], [B], [C]]


def test_the_largest_draw_still_picks_a_word_that_can_be_said() -> None:
    from backtalk.models.lstm.decode import draw

    probabilities = torch.tensor([[0.1, 0.2, 0.7, 0.0], [1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    largest = torch.full((2,), 1.0, dtype=torch.float64).nextafter(torch.zeros(2, dtype=torch.float64))
    assert draw(probabilities, largest).tolist() == [2, 0]
    assert draw(probabilities, torch.zeros(2, dtype=torch.float64)).tolist() == [0, 0]


def test_a_beam_of_one_is_greedy() -> None:
    model = Markov()
    (found,) = beam(model, model.start(1), 1, 5, 1, CPU)
    assert found[0].ids == greedy(model, model.start(1), 1, 5, CPU)[0].tolist()
    assert found[0].log_prob == pytest.approx(math.log(0.35 * 0.3**4))


def test_samples_come_as_often_as_they_are_likely() -> None:
    count = 20_000
    model = Markov()
    written = sample(model, model.start(count), range(count), 3, CPU)
    seen: dict[tuple[int, ...], int] = {}
    for row in written.tolist():
        words = tuple(trim(row))
        seen[words] = seen.get(words, 0) + 1
    truth = all_sentences(3)
    assert seen.keys() <= truth.keys()
    chi_square = sum((seen.get(words, 0) - count * p) ** 2 / (count * p) for words, p in truth.items())
    # 40 sentences, 39 degrees of freedom: above 80 by chance once in ten thousand times.
    assert len(truth) == 40
    assert chi_square < 80


def test_a_sample_depends_on_its_seed_alone() -> None:
    model = Markov()
    together = sample(model, model.start(50), range(50), 6, CPU).tolist()
    for seed in (0, 7, 49):
        alone = sample(model, model.start(1), [seed], 6, CPU)[0].tolist()
        assert trim(together[seed]) == trim(alone)
    assert together[:25] != together[25:]


HAND = torch.tensor([[0.5, 0.2, 0.25, 0.05]]).log()


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0.5, 0.2, 0.25, 0.05]),
        (Sampling(temperature=0.5), [0.25 / 0.355, 0.04 / 0.355, 0.0625 / 0.355, 0.0025 / 0.355]),
        (Sampling(temperature=1e-320), [1, 0, 0, 0]),
        (Sampling(temperature=1e300), [0.25] * 4),
    ],
    ids=str,
)
def test_what_is_cut_and_what_is_left(sampling: Sampling, expected: list[float]) -> None:
    assert sampling.probabilities(HAND)[0].tolist() == pytest.approx(expected, abs=1e-6)
    moved = torch.cat([HAND, HAND + 40.0])  # a constant changes nothing, nor does a neighbour
    assert sampling.probabilities(moved)[1].tolist() == pytest.approx(expected, abs=1e-5)


def test_sampling_settings_reach_the_samples() -> None:
    model = Markov()
    cold = sample(model, model.start(50), range(50), 3, CPU, Sampling(temperature=1e-3))
    assert cold.tolist() == [[A, A, A]] * 50


def test_a_fixed_length_holds_allowed_words_only() -> None:
    model = Markov()
    allowed = torch.tensor([False, False, False, True, False, True])
    written = sample(model, model.start(4000), range(4000), 5, CPU, allowed=allowed)
    assert written.shape == (4000, 5)
    assert set(written.flatten().tolist()) == {A, C}
    # From <bos>: A and C as 0.35 to 0.25; from C: A and C as 0.05 to 0.20.
    assert float((written[:, 0] == A).float().mean()) == pytest.approx(0.35 / 0.60, abs=0.03)
    after_c = written[:, 1][written[:, 0] == C]
    assert float((after_c == A).float().mean()) == pytest.approx(0.2, abs=0.03)


def test_trim_ends_with_the_first_eos() -> None:
    assert trim([A, EOS, B, EOS]) == [A, EOS]
    assert trim([EOS]) == [EOS]
    assert trim([A, B]) == [A, B]
    assert trim([]) == []
