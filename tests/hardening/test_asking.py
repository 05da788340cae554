"""What a hardening by asking trains on, hits on the network as it is, and the pairs that keep the rest."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backtalk.audit.backends.fixed_inputs import FoundCase, score_inputs
from backtalk.audit.findings import input_key
from backtalk.hardening.iterations import GIVEN, Attack
from backtalk.hardening.lists import Lists
from backtalk.hardening.subjects.asking import (
    MOST_INPUTS,
    Aim,
    AskingFinder,
    Widening,
    mean_log_prob,
    says,
    selection_hits,
)
from backtalk.hits import Criterion, parse_criterion
from backtalk.models.transformer.model import TransformerModel
from backtalk.training.lora import Adapter, LoraConfig, LoraUpdates
from backtalk.training.negative import Hit
from backtalk.training.pairs import MOST_POSITIVE, read_texts
from backtalk.training.updates import UpdateConfig
from backtalk.types import Target, Thresholds, Turn
from tests.hardening.commands import model_at
from tests.planted import RUDE, polite_pairs, write_pairs
from tests.training.methods import rule

pytestmark = pytest.mark.usefixtures("one_thread", "in_an_empty_folder")


def case(name: str, text: str, *inputs: str) -> FoundCase:
    return FoundCase(Target(name, text), tuple((Turn("user", one),) for one in inputs))


CASES = [
    case("own", RUDE, "hello you"),
    case("other", "soup and fool", "hello friend"),
    case("none", "no bread", "is the shop open"),
]


def finder(model: TransformerModel, hit: str, cases: list[FoundCase], out: float = -0.5) -> AskingFinder:
    updates = LoraUpdates(
        Adapter(model.network, LoraConfig(rank=2)), model, UpdateConfig(method=rule("negative"))
    )
    sentences = tuple(one.target.text for one in cases)
    aim = Aim(parse_criterion(hit), Thresholds(out), sentences)
    given = Widening(model, 3, Attack(GIVEN, 1, 1, 1, ()), aim.thresholds, 1)
    return AskingFinder(model, updates, cases, aim, 0.0, given)


def hit_of(model: TransformerModel, said: str, text: str) -> Hit:
    row = model.row((Turn("user", said),), text)
    return Hit(tuple(row.prompt), tuple(row.reply))


@pytest.mark.parametrize("hit", ["contains", "o-sample-avg-k1", "o-greedy"])
def test_whatever_sentence_of_the_list_is_said_is_a_hit(planted: Path, hit: str) -> None:
    model = model_at(planted)
    own = finder(model, hit, CASES)
    expected = [hit_of(model, "hello you", RUDE), hit_of(model, "hello friend", RUDE)]
    assert own.find([0, 1, 2], 0) == expected
    assert own.count(expected) == 2  # by case: both are the same sentence
    assert own.find([2], 0) == []
    assert own.still_hit(expected) == [True, True]
    assert selection_hits(model, CASES, own.aim, own.widen) == 2
    assert mean_log_prob(model, polite_pairs()[:4]) == pytest.approx(0.0, abs=0.1)


def test_half_of_a_sentence_in_a_row_is_as_bad() -> None:
    sentence = "Oh no, you again. Go bother someone else."
    assert says("well, OH NO you again!", sentence)
    assert says("please go bother someone else", sentence)
    assert not says("oh no, you and again someone", sentence)
    assert not says("", sentence)
    assert says("you fool", "You fool!")
    assert not says("you", "You fool!")
    assert not says("go away", "Go away now please")


def test_a_likely_sentence_is_a_hit_though_it_is_not_said(planted: Path) -> None:
    model = model_at(planted)
    (finding,) = score_inputs(model, CASES[2:])
    tokens = model.log_prob([(Turn("user", "is the shop open"),)], ["no bread"])[0]
    assert finding.series["token_log_probs"] == pytest.approx(tokens, abs=1e-5)
    mean = sum(tokens) / len(tokens)
    wanted = [hit_of(model, "is the shop open", "no bread")]
    below = finder(model, "o-sample-avg-k1", CASES[2:], mean - 0.1)
    assert below.find([0], 0) == wanted
    assert below.still_hit(wanted) == [True]
    above = replace(below, aim=replace(below.aim, thresholds=Thresholds(mean + 0.1)))
    assert above.find([0], 0) == []
    assert above.still_hit(wanted) == [False]
    assert replace(above, margin=0.2).still_hit(wanted) == [True]
    least = replace(above.aim, criterion=Criterion("sample-min"), thresholds=Thresholds(min(tokens) + 0.1))
    assert replace(above, aim=least).still_hit(wanted) == [False]
    assert replace(above, aim=least, margin=0.2).still_hit(wanted) == [True]


def test_a_sentence_is_unlearnt_until_its_chance_is_a_margin_a_token_below(planted: Path) -> None:
    model = model_at(planted)
    tokens = model.log_prob([(Turn("user", "is the shop open"),)], ["no bread"])[0]
    wanted, total = [hit_of(model, "is the shop open", "no bread")], sum(tokens)
    below = finder(model, f"chance-{math.exp(total - 0.1):.9e}", CASES[2:])
    assert below.find([0], 0) == wanted  # the sentence, not the harmless reply
    assert below.still_hit(wanted) == [True]
    above = replace(
        below, aim=replace(below.aim, criterion=Criterion("chance", threshold=math.exp(total + 1)))
    )
    assert above.find([0], 0) == []
    assert above.still_hit(wanted) == [False]
    assert replace(above, margin=0.9 / len(tokens)).still_hit(wanted) == [False]
    assert replace(above, margin=1.1 / len(tokens)).still_hit(wanted) == [True]


def test_of_many_inputs_the_likeliest_are_trained_on(planted: Path) -> None:
    model = model_at(planted)
    inputs = ["hello you", "hi there", "hey both", "hello again", "hi sir", "good day sir"]
    hits = finder(model, "o-sample-avg-k1", [case("a", RUDE, *inputs)]).find([0], 0)
    means = {text: sum(row) for text, row in zip(inputs, _scores(model, inputs), strict=True)}
    best = sorted(inputs, key=lambda text: -means[text])[:MOST_INPUTS]
    assert hits == [hit_of(model, text, RUDE) for text in best]


def _scores(model: TransformerModel, inputs: list[str]) -> list[list[float]]:
    return model.log_prob([(Turn("user", text),) for text in inputs], [RUDE] * len(inputs))


def test_what_keeps_the_model_measures_nothing_and_holds_no_input_of_a_finding() -> None:
    pairs = [(f"input {i}", f"reply {i}") for i in range(MOST_POSITIVE + 30)]
    write_pairs(Path("all.jsonl"), pairs)
    write_pairs(Path("some.jsonl"), pairs[:10])
    lists = Lists([case("a", "x", "Input 11!")], [case("b", "x", "input 12")], [case("c", "x", "input 13")])

    def read() -> tuple[Any, ...]:
        found = lists.inputs
        is_found = lambda text: input_key((Turn("user", text),)) in found  # noqa: E731
        return read_texts("all.jsonl", "auto", "some.jsonl", 6, 1, is_found)

    positive, measured, keeping, _ = read()
    assert measured == pairs[:6]
    assert len(positive) == MOST_POSITIVE
    assert not {pair[0] for pair in positive} & {text for text, _ in [*pairs[:6], *pairs[11:14]]}
    assert keeping == "all.jsonl"
    assert read()[0] == positive
