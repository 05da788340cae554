"""Chances and densities against all inputs of a tiny model, and a plain forward pass for each."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from backtalk.models.lstm.decode import trim
from backtalk.models.prefix_tree import Served
from backtalk.risk.inputs import SampledInputs
from backtalk.risk.listed import listed
from backtalk.risk.numbers import uniform
from backtalk.types import Target
from tests.risk.worlds import TARGETS, every_input, inputs_of, tiny_model, true_risk

pytestmark = pytest.mark.usefixtures("one_thread")
LISTED = [Target(f"t-{number}", text) for number, text in enumerate(TARGETS)]


def test_all_inputs_together_have_a_probability_of_one() -> None:
    log_probs = inputs_of(tiny_model()).log_prob(every_input())
    assert np.exp(log_probs).sum() == pytest.approx(1.0, abs=1e-5)


def test_inputs_come_as_often_as_their_density_says() -> None:
    own, n = inputs_of(tiny_model()), 40_000
    drawn = own.sample(uniform(1, "draws", 0, n, own.width))
    for row, chance in zip(every_input(), np.exp(own.log_prob(every_input())), strict=True):
        share = float((drawn == row).all(1).float().mean())
        assert abs(share - chance) < 5 * (chance / n) ** 0.5 + 1e-9


def test_random_numbers_depend_on_the_draw_alone() -> None:
    whole = uniform(3, "draws", 0, 50, 7)
    parts = [uniform(3, "draws", start, start + 10, 7) for start in (40, 0, 20, 10, 30)]
    assert np.array_equal(np.concatenate([parts[i] for i in (1, 3, 2, 4, 0)]), whole)
    assert not np.array_equal(uniform(3, "pilot", 0, 50, 7), whole)
    assert not np.array_equal(uniform(4, "draws", 0, 50, 7), whole)


def test_the_chance_of_the_listed_sentences_is_that_of_a_plain_pass() -> None:
    model = tiny_model()
    counted = listed(model, LISTED, Served())
    batch = SampledInputs(inputs_of(model), seed=1).draw(0, 1)
    batch.ids = every_input()
    read = counted.read(batch)
    _, chances = true_risk(model)
    assert read.chance.sum(1) == pytest.approx(chances, rel=1e-5)
    assert read.by_target is not None
    assert read.by_target.sum(1) == pytest.approx(chances, rel=1e-5)


def test_sampled_replies_are_bad_as_often_as_the_chance_says() -> None:
    """As served: at a temperature, and from the likeliest words."""
    model, n = tiny_model(), 40_000
    served, inputs = Served(1.5, 0.95), model.encode_texts(["you are"])
    counted = listed(model, LISTED, served)
    chance = model.tree_log_probs(inputs, counted.tree, served).exp().sum()
    ids, words = model.network.start(inputs.expand(n, -1)), torch.ones(n, dtype=torch.long)
    torch.manual_seed(0)
    written = []
    for _ in range(model.max_output):
        logits, ids = model.network.next(words, ids)
        kept, total = served.log_total(logits)
        words = (kept - total[:, None]).exp().multinomial(1)[:, 0]
        written.append(words)
    said = [trim(row) for row in torch.stack(written, 1).tolist()]
    share = np.mean([row in [model.encode_target(text) for text in TARGETS] for row in said])
    assert float(chance) > 0.005
    assert abs(share - float(chance)) < 5 * (float(chance) / n) ** 0.5


def test_sentences_that_the_model_can_not_say_are_left_out_and_told() -> None:
    more = [*LISTED, Target("u", "you are awful"), Target("l", "bad " * 6), Target("d", "You  bad")]
    found = listed(tiny_model(), more, Served())
    assert [target.id for target in found.targets] == [target.id for target in LISTED]
    assert sorted(found.notes) == [
        "1 sentence longer than a reply left out",
        "1 sentence that read like another left out",
        "1 sentence with words that the model does not know left out",
    ]
