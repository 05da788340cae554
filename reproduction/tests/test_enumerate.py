"""Enumeration against a plain nested loop, for every shape of model that we have."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import product
from typing import Any

import pytest
import torch

from backtalk.data.tokenise import get_recipe
from backtalk.data.vocabulary import EOS, PAD, Vocabulary
from backtalk.errors import InputError
from backtalk.models.device import product_precision
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import Seq2Seq, Seq2SeqConfig
from reproduction.enumeration.search import Enumeration, Outputs, Space, unpack

LETTERS = "abcdefghij"
SHAPES: dict[str, dict[str, Any]] = {
    "last-h": {"attention": False},
    "attention": {"attention": True},
    "layers": {"attention": True, "layers": 2, "shared_embedding": True},
    "pads": {"attention": True, "pad_as_word": True},
    "ended": {"attention": True, "ended_input": True, "zero_start": True},
    "ended last-h": {"attention": False, "ended_input": True},
    "pads last-h": {"attention": False, "pad_as_word": True, "layers": 2},
}


def letter_model(max_input: int = 5, max_output: int = 8, **shape: Any) -> LocalModel:
    """Random weights, large enough for answers of many lengths."""
    torch.manual_seed(5)
    vocabulary = Vocabulary(tuple(LETTERS))
    network = Seq2Seq(Seq2SeqConfig(len(vocabulary), 8, 16, **shape))
    for value in network.parameters():
        torch.nn.init.uniform_(value, -1.5, 1.5)
    network.eval().requires_grad_(False)
    network.output.bias[EOS] += 1.0
    recipe = get_recipe("characters")
    return LocalModel("letters", network, vocabulary, recipe, "0", max_input=max_input, max_output=max_output)


def nested_loop(model: LocalModel, symbols: tuple[int, ...], length: int) -> list[tuple[int, ...]]:
    """What the model answers to each input, one input after the other."""
    inputs = torch.tensor(list(product(symbols, repeat=length)))
    if model.network.config.pad_as_word:
        inputs = torch.nn.functional.pad(inputs, (0, model.max_input - length), value=PAD)
    return [tuple(ids) for ids in model.greedy_ids(inputs)]


def answers(enumeration: Enumeration, outputs: Outputs) -> dict[tuple[int, ...], tuple[int, int]]:
    """answer -> (count, first input)"""
    ids = [
        tuple(row[: row.index(EOS) + 1] if EOS in row else row)
        for row in enumeration.ids(outputs.codes).tolist()
    ]
    return dict(zip(ids, zip(outputs.counts.tolist(), outputs.firsts.tolist(), strict=True), strict=True))


def expected(replies: list[tuple[int, ...]]) -> dict[tuple[int, ...], tuple[int, int]]:
    firsts = {reply: index for index, reply in reversed(list(enumerate(replies)))}
    return {reply: (count, firsts[reply]) for reply, count in Counter(replies).items()}


def enumerate_all(enumeration: Enumeration) -> Outputs:
    return Outputs.merge([enumeration.decode_shard(shard) for shard in enumeration.shards()])


@pytest.mark.parametrize("attention", [False, True])
def test_ten_symbols_and_length_five_equal_a_nested_loop(attention: bool) -> None:
    model = letter_model(attention=attention)
    space = Space(tuple(range(4, 14)), 5)
    assert space.inputs == 100_000
    replies = nested_loop(model, space.symbols, 5)
    assert {len(reply) for reply in replies} == set(range(1, 9))  # answers of every length
    assert any(EOS not in reply for reply in replies)
    enumeration = Enumeration(model, space)
    assert answers(enumeration, enumerate_all(enumeration)) == expected(replies)


@pytest.mark.parametrize("rows", [1, 7, 40, 1000])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_in_shards_of_any_size(shape: str, rows: int) -> None:
    model = letter_model(**SHAPES[shape])
    space = Space((12, 4, 7), 4)  # some of the symbols, in an order of their own
    enumeration = Enumeration(model, space)
    enumeration.rows = rows
    enumeration.depth = enumeration._depth()
    replies = nested_loop(model, space.symbols, 4)
    assert answers(enumeration, enumerate_all(enumeration)) == expected(replies)
    shards = list(enumeration.shards())
    assert [index for shard in shards for index in shard] == list(range(81))
    assert max(map(len, shards)) <= rows
    index = torch.tensor([80, 3, 3, 41])
    picked = [
        tuple(i for i in ids if i != PAD)
        for ids in enumeration.ids(enumeration.decode_inputs(index)).tolist()
    ]
    assert picked == [tuple(i for i in replies[i] if i != PAD) for i in index.tolist()]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_gpu_and_a_processor_agree(shape: str) -> None:
    space = Space(tuple(range(4, 14)), 4)
    model = letter_model(**SHAPES[shape])
    enumeration = Enumeration(model, space)
    ours = answers(enumeration, enumerate_all(enumeration))
    model.network.cuda()
    on_gpu = Enumeration(model, space)
    with product_precision("highest"):
        theirs = answers(on_gpu, enumerate_all(on_gpu))
        index = torch.arange(space.inputs, device="cuda")
        one_by_one = Outputs.tally(on_gpu.decode_inputs(index), index)
    # Another order of sums may turn a tie: a few inputs of ten thousand.
    for other in (theirs, answers(on_gpu, one_by_one)):
        moved = sum(abs(ours.get(reply, (0, 0))[0] - count) for reply, (count, _) in other.items())
        assert moved <= 10
        assert sum(count for count, _ in other.values()) == space.inputs


def test_equal_scores_go_to_the_smallest_id() -> None:
    model = letter_model(attention=False)
    model.network.output.weight.zero_()
    model.network.output.bias.zero_()
    model.network.output.bias[[5, 9, 11]] = 1.0
    enumeration = Enumeration(model, Space((4, 5), 3))
    outputs = enumerate_all(enumeration)
    assert answers(enumeration, outputs) == {(5,) * 8: (8, 0)}


def test_merging_is_the_same_in_any_grouping() -> None:
    draw = torch.Generator().manual_seed(1)
    codes = torch.randint(0, 20, (300,), generator=draw)
    index = torch.randperm(300, generator=draw)
    whole = Outputs.tally(codes, index)
    parts = [Outputs.tally(codes[i : i + 70], index[i : i + 70]) for i in range(0, 300, 70)]
    left = Outputs.merge([Outputs.merge(parts[:3]), *parts[3:]])
    right = Outputs.merge([parts[4], Outputs.merge(parts[1:4]), Outputs.none(codes.device), parts[0]])
    for a, b, c in zip(whole, left, right, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    for code, count, first in zip(*(column.tolist() for column in whole), strict=True):
        assert count == int((codes == code).sum())
        assert first == int(index[codes == code].min())


def test_numbers_and_digits() -> None:
    assert unpack(torch.tensor([0, 123, 999]), 10, 3).tolist() == [[0, 0, 0], [1, 2, 3], [9, 9, 9]]
    largest = 37**12 - 1
    assert unpack(torch.tensor([largest]), 37, 12).tolist() == [[36] * 12]
    space = Space((9, 4), 3)
    assert space.ids(torch.arange(8)).tolist() == [list(ids) for ids in product((9, 4), repeat=3)]


@pytest.mark.parametrize(
    ("max_output", "length", "phrase"),
    [
        (20, 3, "writes up to 20 of 14 words: too many answers"),
        (8, 6, "--length should be from 1 to the 5 words"),
        (8, 0, "--length should be from 1"),
    ],
)
def test_what_can_not_be_enumerated(max_output: int, length: int, phrase: str) -> None:
    with pytest.raises(InputError, match=phrase):
        Enumeration(letter_model(max_output=max_output), Space((4, 5), length))


def test_precision_is_put_back() -> None:
    before = torch.get_float32_matmul_precision()
    with suppress(KeyError), product_precision("medium"):
        assert torch.get_float32_matmul_precision() == "medium"
        raise KeyError
    assert torch.get_float32_matmul_precision() == before
