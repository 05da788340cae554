"""Hugging Face classifiers, on tiny networks: equal to a plain forward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from backtalk.errors import InputError
from backtalk.registry import load_scorer
from backtalk.scorers.toxicity.sequence import choose_label

transformers = pytest.importorskip("transformers")

TEXTS = ["you fool", "what a lovely long day it is today", "", "go away", "you " * 100]
SIX = ["toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate"]


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "you", "fool", "what", "a", "lovely", "day", "go", "away"]
    own = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    own.pre_tokenizer = pre_tokenizers.Whitespace()
    own.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def network(labels: list[str], problem: str | None = None) -> Any:
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=12,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=40,
        num_labels=len(labels),
        problem_type=problem,
    )
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: i for i, label in enumerate(labels)}
    return transformers.BertForSequenceClassification(config).eval()


def saved(folder: Path, labels: list[str], problem: str | None = None) -> Any:
    own = network(labels, problem)
    own.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return own


@torch.no_grad()
def one_by_one(own: Any, label: int, sigmoid: bool) -> list[float]:
    found = []
    for text in TEXTS:
        read = tokenizer()(text, truncation=True, max_length=38, return_tensors="pt")
        logits = own(**read).logits[0]
        found.append(float((logits.sigmoid() if sigmoid else logits.softmax(0))[label]))
    return found


@pytest.mark.parametrize(
    ("labels", "problem", "asked", "label", "sigmoid"),
    [
        (["non-toxic", "toxic"], None, "", 1, False),
        (["Toxic", "fine"], None, "", 0, False),
        (["LABEL_0", "LABEL_1"], None, "", 1, False),
        (["score"], None, "", 0, True),
        (SIX, "multi_label_classification", "", 0, True),
        (SIX, "multi_label_classification", "#insult", 4, True),
        (["neutral", "hate", "offensive"], None, "#HATE", 1, False),
    ],
)
def test_scores_equal_a_plain_forward(
    tmp_path: Path, labels: list[str], problem: str | None, asked: str, label: int, sigmoid: bool
) -> None:
    own = saved(tmp_path, labels, problem)
    scorer = load_scorer(f"hf/{tmp_path}{asked}", "cpu")
    np.testing.assert_allclose(scorer.score(TEXTS), one_by_one(own, label, sigmoid), atol=1e-5)
    assert scorer.name == f"hf/{tmp_path}{asked}"
    assert scorer.fingerprint == load_scorer(f"hf/{tmp_path}{asked}", "cpu").fingerprint


def test_a_label_that_is_not_clear_must_be_said() -> None:
    with pytest.raises(InputError, match=r"hf/m#LABEL \(a, b, c\)"):
        choose_label({0: "a", 1: "b", 2: "c"}, "", "m")
    with pytest.raises(InputError, match="did you mean 'hate'"):
        choose_label({0: "hate", 1: "other"}, "hat", "m")


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    own = saved(tmp_path, ["a", "toxic"])
    (tmp_path / "model.safetensors").unlink()
    torch.save(own.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="safetensors"):
        load_scorer(f"hf/{tmp_path}")
