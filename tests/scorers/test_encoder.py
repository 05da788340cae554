"""The encoder scorer: merged changes equal the trained layers, batches do not matter, contexts do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from backtalk.data.labelled import LabelledText
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
from backtalk.training.encoder import fit_heads, platt, train_encoder
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
    rows, _ = reader.read(["you are a fool", "good night"], ["", "and now?"])
    batch = reader.batch(rows)
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


def test_a_long_text_is_as_bad_as_its_worst_window(learnt: Any) -> None:
    _, reader, tensors = learnt
    scorer = scorer_of(tensors, reader)
    text = "well " * 200 + "fool"
    rows, owners = reader.read([text], [""])
    assert owners == [0] * len(rows)
    assert [len(own) for _, own in rows] == [96, 96, 73]
    windows = [scorer.score([reader.tokenizer.decode(own)])[0] for _, own in rows]
    assert scorer.score([text])[0] == pytest.approx(max(windows), abs=1e-5)


def test_what_was_said_before_is_the_first_segment(learnt: Any) -> None:
    _, reader, _ = learnt
    rows, _ = reader.read(["not you", "hi"], ["so dull", ""])
    ids, segments, keep, judged = (part.tolist() for part in reader.batch(rows))
    before, own = (
        reader.tokenizer(text, add_special_tokens=False)["input_ids"] for text in ("so dull", "not you")
    )
    assert ids[0] == [CLS, *before, SEP, *own, SEP]
    assert segments[0] == [0] * (len(before) + 2) + [1] * (len(own) + 1)
    assert judged[0] == [False] * (len(before) + 2) + [True] * len(own) + [False]
    assert keep[1] == [True] * 3 + [False] * (len(ids[0]) - 3)
    assert segments[1] == [0] * len(ids[0])


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
