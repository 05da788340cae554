"""Diverse beams on a planted model: with no penalty they are the plain beam, with one they part."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from backtalk.data.vocabulary import EOS
from backtalk.models.lstm.decode import beam, diverse_beam
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from tests.models.test_decode import CPU, NEVER, A, B, C, Markov, Remembering, Steps


@pytest.mark.parametrize("model", [Markov(), Remembering()])
@pytest.mark.parametrize("width", [1, 3])
def test_without_a_penalty_every_group_is_the_plain_beam(model: Markov, width: int) -> None:
    plain = [[one.ids for one in row] for row in beam(model, model.start(2), 2, 5, width, CPU)]
    found = diverse_beam(model, model.start(2), 2, 5, width, 3, 0.0, CPU)
    assert found == [[row] * 3 for row in plain]


class Open(Markov):
    """From <bos>: A 0.5, B 0.3, C 0.2; then the end."""

    def next(self, words: Tensor, state: Steps) -> tuple[Tensor, Steps]:
        first = torch.tensor([0, 0, 0, 0.5, 0.3, 0.2]).log()
        ended = torch.tensor([NEVER, NEVER, 0.0, NEVER, NEVER, NEVER])
        begun = state.so_far.shape[1] > 0
        return (ended if begun else first).repeat(len(words), 1), Steps(
            torch.cat([state.so_far, words[:, None]], dim=1)
        )


def test_a_group_leaves_what_the_groups_before_it_said() -> None:
    """The end costs every group the same, so only the first words decide: 0.5, 0.3 and 0.2."""

    def firsts(penalty: float) -> list[int]:
        (row,) = diverse_beam(Open(), Open().start(1), 1, 3, 1, 4, penalty, CPU)
        assert all(group[0][1:] == [EOS] for group in row)
        return [group[0][0] for group in row]

    assert firsts(0.0) == [A, A, A, A]
    # log(0.5 / 0.3) = 0.51 and log(0.5 / 0.2) = 0.92
    assert firsts(0.4) == [A, A, B, A]
    assert firsts(0.6) == [A, B, A, C]
    assert firsts(1.0) == [A, B, C, A]


def test_rows_and_states_do_not_mix() -> None:
    torch.manual_seed(0)
    network = Seq2Seq(Seq2SeqConfig(vocabulary=30, embedding=8, hidden=12, attention=True)).eval()
    with torch.no_grad():
        network.output.bias[: EOS + 1] -= 5.0  # else saying nothing is likeliest
    inputs = torch.randint(4, 30, (3, 5))
    together = diverse_beam(network, network.start(inputs), 3, 6, 2, 3, 8.0, CPU)
    for row in range(3):
        alone = diverse_beam(network, network.start(inputs[row : row + 1]), 1, 6, 2, 3, 8.0, CPU)
        assert alone[0] == together[row]
    assert [len({tuple(group[0]) for group in groups}) for groups in together] == [3, 3, 3]
