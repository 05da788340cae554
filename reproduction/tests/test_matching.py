"""Lists against answers: the vectorised look-up equals a plain loop over text."""

import numpy as np
import torch

from backtalk.data.vocabulary import EOS, PAD, UNK
from backtalk.models.lstm.model import LocalModel
from reproduction.enumeration.matching import (
    Packing,
    inputs_among,
    match_lists,
    unfinished_inputs,
    word_codes,
)
from reproduction.enumeration.search import Outputs
from reproduction.tests.test_enumerate import letter_model

MODEL = letter_model(attention=False)
SIZE = MODEL.max_output


def outputs_of(model: LocalModel, answers: dict[str, int]) -> Outputs:
    """Each answer with the inputs that lead to it; "?" is the unknown word, "_" says that it does not end."""
    packing = Packing(model)
    codes = []
    for answer in answers:
        ids = [UNK if letter == "?" else model.encode_input(letter)[0] for letter in answer.rstrip("_")]
        codes.append(packing.answer(ids if answer.endswith("_") else [*ids, EOS]))
    order = np.argsort(codes)
    counts = list(answers.values())
    return Outputs(
        torch.tensor([codes[i] for i in order]),
        torch.tensor([counts[i] for i in order]),
        torch.tensor([100 + int(i) for i in order]),
    )


def random_texts(draw: np.random.Generator, most: int, letters: str, longest: int) -> list[str]:
    lengths = draw.integers(1, longest + 1, most)
    return ["".join(draw.choice(list(letters), length)) for length in lengths]


def test_hits_equal_a_loop_over_text() -> None:
    draw = np.random.default_rng(3)
    answers = dict.fromkeys(random_texts(draw, 200, "abc?", SIZE - 1), 1)
    answers |= {letter * SIZE + "_": 1 for letter in "abc"}
    outputs = outputs_of(MODEL, answers)
    said = dict(zip(_codes(answers), answers, strict=True))
    lists = {
        "one": sorted(set(random_texts(draw, 150, "abcd", 5))),
        "two": [*sorted(set(random_texts(draw, 50, "abc", SIZE + 2))), "aXb", "c" * SIZE],
    }
    found = match_lists(outputs, MODEL, lists)
    assert list(found) == ["one", "two"]
    for name, targets in lists.items():
        hits = found[name]
        assert hits.texts == targets
        assert hits.unknown == sum("X" in target for target in targets)
        assert hits.too_long == sum(len(target) >= SIZE and "X" not in target for target in targets)
        for target, exact, inside in zip(targets, hits.exact, hits.substring, strict=True):
            assert (exact >= 0) == (target in answers)
            holding = [answer for answer in answers if target in answer.rstrip("_")]
            assert (inside >= 0) == bool(holding)
            if exact >= 0:
                assert said[int(outputs.codes[exact])] == target
            if inside >= 0:
                assert said[int(outputs.codes[inside])] in holding
                assert int(outputs.codes[inside]) == min(_codes(holding))
        shown = hits.as_dict()
        assert shown["exact"]["hits"] == sum(target in answers for target in targets) > 0
        assert shown["substring"]["n"] == shown["n"] == len(targets)


def _codes(answers: dict[str, int] | list[str]) -> list[int]:
    return [int(outputs_of(MODEL, {answer: 1}).codes[0]) for answer in answers]


def test_unknown_words_are_no_hit_though_the_model_says_them() -> None:
    outputs = outputs_of(MODEL, {"a?b": 1})
    hits = match_lists(outputs, MODEL, {"list": ["aXb", "X", "b"]})["list"]
    assert hits.exact == [-1, -1, -1]
    assert hits.substring == [-1, -1, 0]
    assert hits.unknown == 2


def test_inputs_inside_cut_and_unfinished() -> None:
    long = "abcabcab"
    assert len(long) == SIZE
    outputs = outputs_of(MODEL, {"ab": 5, "ba": 7, f"{long}_": 11, "cccccccc_": 13})
    whole, cut = word_codes(MODEL, ["ab", "cc", long + "c", "aXb"])
    assert inputs_among(outputs, whole) == 5
    assert inputs_among(outputs, cut) == 11
    assert unfinished_inputs(outputs, MODEL) == 24


def test_nothing_said_hits_nothing() -> None:
    none = Outputs.none(torch.device("cpu"))
    hits = match_lists(none, MODEL, {"list": ["a"], "empty": []})
    assert hits["list"].exact == hits["list"].substring == [-1]
    assert hits["empty"].as_dict()["exact"]["n"] == 0


def test_a_code_is_the_answer_as_greedy_decoding_pads_it() -> None:
    packing = Packing(MODEL)
    assert packing.answer([4, EOS]) == 4 * 14**7 + EOS * 14**6
    assert packing.answer([PAD] * 8) == 0
