"""Tiny Hugging Face networks made from a config, and a tokenizer trained on a few sentences."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("peft", reason="peft is not installed")

FAMILIES = ("gpt2", "llama", "t5")


def tiny_network(family: str, vocabulary: int = 120, seed: int = 0) -> Any:
    """Two layers of 32; 0 pads and 1 ends a reply. It starts large enough for different tokens to differ."""
    hf: Any = import_module("transformers")
    ids: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1}
    torch.manual_seed(seed)
    if family == "gpt2":
        network: Any = hf.GPT2LMHeadModel(
            hf.GPT2Config(vocab_size=vocabulary, n_positions=128, n_embd=32, n_layer=2, n_head=2,
                       initializer_range=0.2, **ids)
        )  # fmt: skip
    elif family == "llama":
        network = hf.LlamaForCausalLM(
            hf.LlamaConfig(vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                        num_attention_heads=2, max_position_embeddings=128, initializer_range=0.2, **ids)
        )  # fmt: skip
    else:
        ids.pop("bos_token_id")
        network = hf.T5ForConditionalGeneration(
            hf.T5Config(vocab_size=vocabulary, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2,
                     decoder_start_token_id=0, **ids)
        )  # fmt: skip
    return network.eval()


def train_tokenizer(folder: Path, texts: list[str]) -> Any:
    """Byte pairs of these texts, as a fast tokenizer; saved to the folder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    own.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<pad>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    own.train_from_iterator(texts, trainer)
    tokenizer = import_module("transformers").PreTrainedTokenizerFast(
        tokenizer_object=own, pad_token="<pad>", eos_token="</s>"
    )
    tokenizer.save_pretrained(str(folder))
    return tokenizer
