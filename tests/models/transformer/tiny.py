"""Tiny Hugging Face models with random weights, made from a config and saved as folders, each with a small
tokenizer like that of its family."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

LINES = [
    "hello there, how are you today?",
    "what is your name, and what do you like?",
    "you are a very rude person.",
    "i like cats and dogs and long walks in the rain.",
    "please leave me alone, i am not in the mood.",
]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
INST = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
    "{{ ' ' + message['content'] + eos_token }}{% else %}{{ raise_exception('only user and assistant') }}"
    "{% endif %}{% endfor %}"
)
"""Without a system role, with the beginning written by the template, and with a blank before a reply."""
KINDS = ("gpt2", "llama", "t5", "bart")


def make_tokenizer(kind: str, template: str = "") -> Any:
    """Byte-level BPE. gpt2: no padding, nothing around a text. llama: <s> before it. t5: </s> behind it.
    bart: both."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    own = ["<|endoftext|>"] if kind == "gpt2" else ["<pad>", "<s>", "</s>"]
    special = [*own, "<|im_start|>", "<|im_end|>"]
    core: Any = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    core.train_from_iterator(LINES, trainer)
    around = {"llama": "<s> $A", "t5": "$A </s>", "bart": "<s> $A </s>"}.get(kind)
    if around:
        ids = [(token, core.token_to_id(token)) for token in ("<s>", "</s>")]
        core.post_processor = processors.TemplateProcessing(single=around, special_tokens=ids)
    names: dict[str, Any] = {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"}
    if kind != "gpt2":
        names = {"eos_token": "</s>", "bos_token": "<s>", "pad_token": "<pad>"}
    hf: Any = import_module("transformers")  # its types are partial
    tokenizer: Any = hf.PreTrainedTokenizerFast(tokenizer_object=core, **names)
    if template:
        tokenizer.chat_template = template
    return tokenizer


def make_network(kind: str, vocabulary: int, positions: int = 128) -> Any:
    """Two layers of 32, with weights large enough that next words differ."""
    hf: Any = import_module("transformers")  # its types are partial

    torch.manual_seed(0)
    starts: dict[str, Any] = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 0}
    ends: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    network: Any
    if kind == "gpt2":
        network = hf.GPT2LMHeadModel(
            hf.GPT2Config(
                vocab_size=vocabulary, n_positions=positions, n_embd=32, n_layer=2, n_head=2,
                bos_token_id=0, eos_token_id=0,
            )
        )  # fmt: skip
    elif kind == "llama":
        network = hf.LlamaForCausalLM(
            hf.LlamaConfig(
                vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=positions, **ends,
            )
        )  # fmt: skip
    elif kind == "t5":
        network = hf.T5ForConditionalGeneration(
            hf.T5Config(
                vocab_size=vocabulary, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                **starts,
            )
        )  # fmt: skip
    else:
        sizes: dict[str, Any] = {
            "vocab_size": vocabulary, "d_model": 32, "max_position_embeddings": positions,
            "decoder_start_token_id": 2, "forced_eos_token_id": None, **ends,
        }  # fmt: skip
        for side in ("encoder", "decoder"):
            sizes |= {f"{side}_layers": 2, f"{side}_ffn_dim": 64, f"{side}_attention_heads": 4}
        network = (
            hf.BlenderbotForConditionalGeneration(hf.BlenderbotConfig(**sizes))
            if kind == "blenderbot"
            else hf.BartForConditionalGeneration(hf.BartConfig(**sizes))
        )
    with torch.no_grad():
        for weights in network.parameters():
            if weights.dim() > 1:
                weights.normal_(std=0.35)
    return network.eval()


def make_folder(folder: Path, kind: str, template: str = "", **settings: Any) -> Path:
    """A whole model; `settings` go into its generation_config.json, whether the library likes them or not."""
    tokenizer = make_tokenizer(kind, template)
    network = make_network(kind, len(tokenizer))
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if settings:
        path = folder / "generation_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
    return folder


@contextmanager
def reading(network: Any) -> Iterator[list[tuple[int, ...]]]:
    """The shape of the tokens of every forward pass within."""
    shapes: list[tuple[int, ...]] = []

    def note(_: Any, __: Any, given: dict[str, Any]) -> None:
        shapes.append(tuple(given["input_ids"].shape))

    hook = network.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield shapes
    finally:
        hook.remove()
