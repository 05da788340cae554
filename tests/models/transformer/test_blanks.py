"""A tokenizer as Llama 2 has it: it puts a blank before a text, and drops one when it decodes."""

from pathlib import Path
from typing import Any

import pytest
import torch

from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.prompts import token_ids
from backtalk.searches.gibbs import Gibbs
from tests.searches.test_climb import CHANCE
from tests.training.transformers import tiny_network

pytest.importorskip("transformers", reason="transformers is not installed")
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
TEXTS = [
    "the cat sat on the mat.", "going and walking and singing.", "they talk and the cat is singing.",
    "rude you are.", "a rude cat. the rude mat.", "you are rude.",
]  # fmt: skip


def blank_tokenizer() -> Any:
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    own = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    own.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    own.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    own.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=160, special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False,
        initial_alphabet=list("▁abcdefghijklmnopqrstuvwxyz.<|>"), max_token_length=5,
    )  # fmt: skip
    own.train_from_iterator(TEXTS * 3, trainer)
    own.add_tokens(["<0x0A>"])
    make: Any = PreTrainedTokenizerFast
    return make(tokenizer_object=own, pad_token="<pad>", eos_token="</s>", chat_template=TEMPLATE)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> TransformerModel:
    folder: Path = tmp_path_factory.mktemp("blanks")
    tokenizer = blank_tokenizer()
    tokenizer.save_pretrained(str(folder))
    tiny_network("llama", len(tokenizer)).save_pretrained(str(folder))
    return load(str(folder), "cpu")


def test_it_is_such_a_tokenizer(model: TransformerModel) -> None:
    (ids,) = token_ids(model.tokenizer, ["cat"])
    assert model.tokenizer.convert_ids_to_tokens(ids)[0].startswith("▁")
    assert model.tokenizer.decode(ids) == "cat"


def test_tokens_with_and_without_a_blank_may_be_searched(model: TransformerModel) -> None:
    allowed = model.searchable()
    names = model.tokenizer.convert_ids_to_tokens(allowed.nonzero().squeeze(1).tolist())
    assert any(name.startswith("▁") and len(name) > 1 for name in names)
    assert any(name.isalpha() and len(name) > 1 for name in names)


def test_random_triggers_can_be_typed(model: TransformerModel) -> None:
    words = model.searchable().nonzero().squeeze(1)
    draw = torch.Generator().manual_seed(0)
    triggers = words[torch.randint(len(words), (400, 4), generator=draw)]
    kept = model.survives(triggers)
    assert kept.float().mean() > 0.1
    first_has_a_blank = 0
    for ids in triggers[kept].tolist():
        assert model.encode_input(model.decode(ids)) == ids
        first_has_a_blank += model.decode(ids).startswith(" ")
    assert first_has_a_blank > 0, "the blank before a first word belongs to the text"


def test_a_search_ends_with_triggers_that_can_be_typed(model: TransformerModel) -> None:
    goals = [model.encode_target(text) for text in ("you are rude", "a cat")]
    for found in Gibbs(length=4, top=8, sweeps=2).run(model, CHANCE, goals, [1, 2]):
        assert model.encode_input(model.decode(found.ids)) == list(found.ids)
