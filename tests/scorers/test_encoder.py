"""The encoder scorer: merged changes equal the trained layers, batches do not matter, contexts do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from backtalk.data.labelled import LabelledText
from backtalk.errors import InputError
from backtalk.scorers.card import rate_texts
from backtalk.scorers.toxicity.encoder import (
    CLS,
    SEP,
    EncoderConfig,
    EncoderScorer,
    Rows,
    ToxicityEncoder,
    adapted,
    base_parts,
)
from backtalk.testing import check_scorer
from backtalk.training.encoder import LENT, fit_heads, lend_contexts, platt, train_encoder
from backtalk.types import Turn

pytest.importorskip("transformers")
CPU = torch.device("cpu")
CONFIG = EncoderConfig(rank=4)
ROWS = [LabelledText(f"you are a {word}", toxic) for word, toxic in (("fool", True), ("poet", False))] * 8


@pytest.fixture(scope="module")
def learnt() -> tuple[ToxicityEncoder, Rows, dict[str, Tensor]]:
    """An encoder after a few steps, and what it learnt."""
    network, tokenizer, _ = base_parts()
    encoder, reader = ToxicityEncoder(network), Rows(tokenizer, CONFIG)
    told: list[tuple[int, int]] = []
    tensors = train_encoder(
        ROWS, encoder, reader, CONFIG, lambda step, steps, _: told.append((step, steps)), 20, 5e-3, 1, CPU
    )
    assert told == [(20, 20)]
    return encoder.eval(), reader, tensors


def scorer_of(tensors: dict[str, Tensor], reader: Rows) -> EncoderScorer:
    encoder = ToxicityEncoder(base_parts()[0])
    encoder.merge(tensors, CONFIG)
    return EncoderScorer("mine", encoder, reader, "mine", CPU)


def test_merged_changes_give_what_the_trained_layers_give(learnt: Any) -> None:
    encoder, reader, tensors = learnt
    batch = reader.read(["you are a fool", "good night"], ["", "and now?"]).batch([0, 1])
    with torch.no_grad():
        expected = encoder(*batch)
        found = scorer_of(tensors, reader).encoder(*batch)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_it_learns_and_no_batch_or_padding_changes_a_score(learnt: Any) -> None:
    _, reader, tensors = learnt
    scorer = scorer_of(tensors, reader)
    fool, poet = scorer.score(["you are a fool", "you are a poet"]).tolist()
    assert fool > 0.9
    assert poet < 0.1
    check_scorer(scorer, ("you are a fool", "", "   ", "a poet " * 90, "hi"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_network_in_16_bits_gives_nearly_the_same_scores(learnt: Any, dtype: torch.dtype) -> None:
    _, reader, tensors = learnt
    texts = ["you are a fool", "", "you are a poet", "a poet " * 90]
    expected = scorer_of(tensors, reader).score(texts)
    halved = scorer_of(tensors, reader)
    halved.encoder.to(dtype)
    np.testing.assert_allclose(halved.score(texts), expected, atol=0.03)
    with torch.autocast("cpu", dtype):
        np.testing.assert_allclose(scorer_of(tensors, reader).score(texts), expected, atol=0.03)


def test_a_long_text_is_as_bad_as_its_worst_window(learnt: Any) -> None:
    _, reader, tensors = learnt
    scorer = scorer_of(tensors, reader)
    text = "well " * 200 + "fool"
    windows = reader.read(["", text, "hi"], ["", "", ""])
    assert windows.owners.tolist() == [1, 1, 1, 2]
    assert windows.lengths.tolist() == [98, 98, 75, 3]
    ids, _, _, judged = windows.batch([0, 1, 2])
    parts = [row[own].tolist() for row, own in zip(ids, judged, strict=True)]
    scores = [scorer.score([reader.tokenizer.decode(part)])[0] for part in parts]
    assert scorer.score(["", text, "hi"])[1] == pytest.approx(max(scores), abs=1e-5)


def test_what_was_said_before_is_the_first_segment(learnt: Any) -> None:
    _, reader, _ = learnt
    windows = reader.read(["not you", "hi"], ["so dull", ""])
    ids, segments, keep, judged = (part.tolist() for part in windows.batch([0, 1]) if part is not None)
    before, own = (
        reader.tokenizer.encode(text, add_special_tokens=False).ids for text in ("so dull", "not you")
    )
    assert ids[0] == [CLS, *before, SEP, *own, SEP]
    assert segments[0] == [0] * (len(before) + 2) + [1] * (len(own) + 1)
    assert judged[0] == [False] * (len(before) + 2) + [True] * len(own) + [False]
    assert keep[1] == [True] * 3 + [False] * (len(ids[0]) - 3)
    assert segments[1] == [0] * len(ids[0])
    assert windows.after.tolist() == [True, False]
    assert windows.batch([0])[2] is None  # no padding, no mask
    turned = windows.some(np.array([1, 0]))
    assert [one.tolist() for one in turned.batch([1])[:2]] == [[ids[0]], [segments[0]]]


def test_of_a_long_context_the_last_tokens_are_read() -> None:
    network, tokenizer, _ = base_parts()
    reader = Rows(tokenizer, replace(CONFIG, context=3))
    ids = reader.read(["yes"], ["one two three four"]).batch([0])[0]
    assert reader.tokenizer.decode(ids[0].tolist()) == "two three four yes"
    assert network.config.hidden_size == 384


def test_a_context_is_read_by_a_head_of_its_own(learnt: Any) -> None:
    _, reader, tensors = learnt
    other = {
        **tensors,
        "weight": tensors["weight"] * torch.tensor([[1.0], [0.0]]),
        "bias": torch.tensor([0.0, -9.0]),
    }
    scorer = scorer_of(other, reader)
    row = LabelledText("you are a fool", True, context="hello")
    alone, after = rate_texts(scorer, [row._replace(context=""), row]).tolist()
    assert after == pytest.approx(1 / (1 + np.exp(9)), rel=1e-3)
    assert alone > 0.5
    assert after == scorer.score_replies([(Turn("user", "hello"),)], ["you are a fool"])[0]


def test_tensors_of_another_make_are_refused(learnt: Any) -> None:
    _, reader, tensors = learnt
    encoder = ToxicityEncoder(base_parts()[0])
    with pytest.raises(ValueError, match="not those of an encoder"):
        encoder.merge({"weight": tensors["weight"]}, CONFIG)
    with pytest.raises(ValueError, match="another size"):
        encoder.merge(tensors, replace(CONFIG, rank=5))
    assert len(adapted(encoder.network)) == 36
    assert reader.config == CONFIG


def test_scale_and_shift_are_the_best_ones() -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(size=4000) * 2
    toxic = draw.random(4000) < 1 / (1 + np.exp(-(0.5 * logits - 1)))
    scale, shift = platt(logits, toxic)
    assert scale == pytest.approx(0.5, abs=0.06)
    assert shift == pytest.approx(-1, abs=0.1)

    def loss(a: float, b: float) -> float:
        return float(np.logaddexp(0, np.where(toxic, -1, 1) * (a * logits + b)).sum())

    assert all(
        loss(scale, shift) <= loss(scale + a, shift + b)
        for a, b in ((0.01, 0), (-0.01, 0), (0, 0.01), (0, -0.01))
    )


def test_heads_are_fitted_each_on_its_own_texts(learnt: Any) -> None:
    _, reader, tensors = learnt
    own = dict(tensors)
    valid = [*ROWS, *(row._replace(toxic=not row.toxic, context="hello") for row in ROWS)]
    fit_heads(own, scorer_of(tensors, reader), valid)
    scorer = scorer_of(own, reader)
    fool = scorer.score(["you are a fool"])[0]
    turned = rate_texts(scorer, [LabelledText("you are a fool", False, context="hello")])[0]
    assert fool > 0.5 > turned


def test_a_training_that_diverges_is_an_error() -> None:
    network, tokenizer, _ = base_parts()
    encoder, reader = ToxicityEncoder(network), Rows(tokenizer, CONFIG)
    with pytest.raises(InputError, match="the loss is nan by step 3; lower --lr"):
        train_encoder(ROWS[:2], encoder, reader, CONFIG, lambda *_: None, 3, 1e30, 1, CPU)


def test_contexts_are_lent_to_texts_without_one() -> None:
    rows = [LabelledText(f"text {number}", False) for number in range(400)]
    assert lend_contexts(rows, np.random.default_rng(1)) == rows  # nobody has one
    rows += [LabelledText("yes", True, context="do you?"), LabelledText("no", True, context="then?")]
    lent = lend_contexts(rows, np.random.default_rng(1))
    assert [row.text for row in lent] == [row.text for row in rows]
    assert lent[-2:] == rows[-2:]
    given = [row.context for row in lent[:400] if row.context]
    assert len(given) == pytest.approx(400 * LENT, abs=40)
    assert set(given) == {"do you?", "then?"}
