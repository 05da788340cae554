"""A prefix tree gives what a plain forward pass over each reply gives, read as it is served."""

from __future__ import annotations

import math

import pytest
import torch

from backtalk.models.folder import load_embedded
from backtalk.models.lstm.tree import tree_log_probs
from backtalk.models.prefix_tree import PrefixTree, Served

SENTENCES = ("you are boring", "you are so boring", "you are", "go away", "i hate you", "you")


def test_a_tree_shares_beginnings() -> None:
    tree = PrefixTree.of([(5, 6, 2), (5, 7, 2), (5, 2), (8, 2)])
    assert [len(level.fed) for level in tree.levels] == [1, 2, 2]
    assert tree.nodes == 5
    ended = sorted(one for level in tree.levels for one in level.ended if one >= 0)
    assert ended == [0, 1, 2, 3]


@pytest.mark.parametrize("sequences", [[(5, 2), (5, 2)], [(5,), (5, 2)], [()]])
def test_sequences_that_are_no_disjoint_events_are_refused(sequences: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="sequence"):
        PrefixTree.of(sequences)


def test_an_lstm_scores_a_tree_as_it_scores_each_reply() -> None:
    model = load_embedded("chitchat", "cpu")
    inputs = model.encode_texts(["hello", "how are you today my friend", "why"])
    ids = [model.encode_target(text) for text in SENTENCES]
    found = tree_log_probs(model.network, inputs, PrefixTree.of(ids), Served())
    for place, one in enumerate(ids):
        rows = torch.tensor([one]).expand(3, -1)
        wanted = model.score(inputs, rows).log_probs.double().sum(1)
        assert torch.allclose(found[:, place], wanted, atol=1e-4)


@pytest.mark.parametrize("served", [Served(0.7), Served(1.0, 0.9), Served(1.3, 0.5)])
def test_temperature_and_top_p_are_those_of_the_served_model(served: Served) -> None:
    logits = torch.tensor([[2.0, 1.0, 0.5, -1.0], [0.0, 3.0, 2.9, 0.1]])
    kept, total = served.log_total(logits)
    for row, own, log_total in zip(logits.tolist(), kept, total, strict=True):
        weights = sorted(((math.exp(x / served.temperature), i) for i, x in enumerate(row)), reverse=True)
        whole, mass, chosen = sum(w for w, _ in weights), 0.0, {}
        for weight, i in weights:
            if mass / whole < served.top_p:
                chosen[i] = weight
            mass += weight
        for i in range(4):
            wanted = chosen.get(i, 0.0) / sum(chosen.values())
            assert math.exp(float(own[i] - log_total)) == pytest.approx(wanted, abs=1e-6)
