"""A tree behind a prompt gives what each reply behind it gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from backtalk.models.prefix_tree import PrefixTree, Served
from backtalk.models.transformer.loading import load
from backtalk.models.transformer.tree import TreeReader
from backtalk.types import Turn
from tests.training.transformers import tiny_network, train_tokenizer

TEXTS = ("go away you fool", "go away", "yes until six", "go to the shop", "go")


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize("served", [Served(), Served(0.7, 0.8)])
def test_a_tree_is_read_in_one_pass(family: str, served: Served, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(tmp_path, [*TEXTS, "is the shop open"])
    network = tiny_network(family, len(tokenizer))
    network.save_pretrained(str(tmp_path))
    model = load(str(tmp_path), "cpu")
    tree = PrefixTree.of([one for text in TEXTS for one in model.reply_sequences(text)])
    dialogues = [(Turn("user", text),) for text in ("is the shop open", "go", "the fool is away until six")]
    found = model.tree_log_probs(dialogues, tree, served)
    assert model._tree is not None
    assert model._tree.shares
    plain = model._tree._plain([model.prompt_ids(one) for one in dialogues], tree, served)
    assert torch.allclose(found.exp(), plain.exp(), rtol=1e-3, atol=1e-12)
    if served == Served():
        wanted = [sum(model.log_prob([one], [TEXTS[0]])[0]) for one in dialogues]
        assert found[:, 0].tolist() == pytest.approx(wanted, abs=1e-3)


def test_a_network_that_takes_no_mask_reads_each_reply(tmp_path: Path) -> None:
    tokenizer = train_tokenizer(tmp_path, list(TEXTS))
    network = tiny_network("llama", len(tokenizer))
    network.save_pretrained(str(tmp_path))
    model = load(str(tmp_path), "cpu")
    tree = PrefixTree.of([model.reply_ids(text) for text in TEXTS])
    reader = TreeReader(model.network, model.filler)
    prompts = [model.prompt_ids((Turn("user", "go"),))]
    right = reader.log_probs(prompts, tree, Served())
    broken = TreeReader(model.network, model.filler)
    broken._at_once = lambda *_: 0.5 * right  # type: ignore[method-assign]
    assert torch.allclose(broken.log_probs(prompts, tree, Served()), right, atol=1e-5)
    assert broken.shares is False
