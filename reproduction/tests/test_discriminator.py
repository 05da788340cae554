"""The discriminator against plain loops; padding and short sentences leave no trace."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.vocabulary import PAD
from reproduction.negative.gan import Discriminator, DiscriminatorConfig, Highway


@pytest.fixture
def judge() -> Discriminator:
    torch.manual_seed(3)
    return Discriminator(DiscriminatorConfig(12, 4, filters=3, widths=(2, 3), layers=2, hidden=5)).double()


@torch.no_grad()
def represent_by_hand(judge: Discriminator, sentence: list[int]) -> list[float]:
    """Every filter at every word, zeros after the end; the largest, if above 0."""
    words = [judge.embed.weight[i] for i in sentence]
    found = []
    for width, window in zip((2, 3), judge.windows, strict=True):
        weight, bias = window.get_parameter("weight"), window.get_parameter("bias")
        for number in range(3):
            values = []
            for start in range(len(words)):
                seen = float(bias[number])
                for offset in range(width):
                    if start + offset < len(words):
                        seen += float(weight[number, :, offset] @ words[start + offset])
                values.append(seen)
            found.append(max(0.0, *values))
    return found


def test_filters_and_max_over_time_against_a_plain_loop(judge: Discriminator) -> None:
    sentences = [[4, 5, 6, 7, 8], [9, 4], [11]]
    rows = torch.tensor([[*s, *[PAD] * (6 - len(s))] for s in sentences])
    found = judge.represent(rows).tolist()
    for sentence, own in zip(sentences, found, strict=True):
        assert own == pytest.approx(represent_by_hand(judge, sentence))


def test_padding_leaves_no_trace(judge: Discriminator) -> None:
    inputs, replies = torch.tensor([[4, 5, 6], [7, PAD, PAD]]), torch.tensor([[8, 2], [9, 2]])
    wider = judge(F.pad(inputs, (0, 4), value=PAD), F.pad(replies, (0, 3), value=PAD))
    torch.testing.assert_close(judge(inputs, replies), wider)
    alone = judge(torch.tensor([[7]]), torch.tensor([[9, 2]]))
    torch.testing.assert_close(alone, wider[1:])


def test_input_and_reply_have_places_of_their_own(judge: Discriminator) -> None:
    first, second = torch.tensor([[4, 5, 6]]), torch.tensor([[7, 8]])
    assert not torch.allclose(judge(first, second), judge(second, first))


def test_a_highway_layer_by_hand() -> None:
    layer = Highway(1).double()
    with torch.no_grad():
        for name, value in (("transform", 2.0), ("gate", 0.0)):
            layer.get_submodule(name).get_parameter("weight").fill_(value)
            layer.get_submodule(name).get_parameter("bias").fill_(0.0)
    # The gate is a half: half of relu(2x), half of x.
    found: Tensor = layer(torch.tensor([[3.0], [-3.0]], dtype=torch.float64))
    assert found.flatten().tolist() == pytest.approx([0.5 * 6 + 0.5 * 3, 0.5 * 0 - 0.5 * 3])


def test_the_defaults_are_the_papers_sizes() -> None:
    judge = Discriminator(DiscriminatorConfig(10))
    assert [tuple(w.get_parameter("weight").shape) for w in judge.windows] == [
        (300, 300, width) for width in (3, 4, 5, 6)
    ]
    assert judge.enter.weight.shape == (2000, 2 * 4 * 300)
    assert len(judge.highways) == 3
