"""What both tools are given: a small GPT-2 that has read the chitchat corpus for a minute or two, its
tokenizer, a prefix of 30 tokens and ten targets of 7 tokens.

Saved as safetensors and JSON, which both virtual environments read. The template writes the turns one after
another, each with its end, so both tools build the same prompt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from backtalk.data.corpora import read_corpus
from backtalk.data.targets import load_mal

END = "</s>"
TEMPLATE = "{% for message in messages %}{{ message['content'] }}</s>{% endfor %}"
PREFIX = (
    "I was at the market this morning and the weather was so lovely that I walked home along the river and "
    "met an old friend of mine and we talked about music and work and the places that we want to see"
)
"""Cut to as many tokens as asked; the last of them is a full stop, which grows together with no trigger."""
SAID = "this is a long sentence that is only here to be cut, word by word, until it is as long as asked"


@dataclass(frozen=True)
class Sizes:
    """Of the model, its training and the task."""

    layers: int = 6
    width: int = 256
    heads: int = 8
    vocabulary: int = 8000
    texts: int = 40_000
    """Pairs of the corpus that tokenizer and model read."""
    steps: int = 200
    batch: int = 32
    prefix: int = 30
    trigger: int = 17
    target: int = 7
    """Tokens, the end of turn counted."""
    targets: int = 10


OF_THE_TASK = ("prefix", "trigger", "target", "targets")
"""Sizes that the model does not depend on."""


@dataclass(frozen=True)
class Task:
    """What is searched for, as text and as tokens."""

    prefix: str
    targets: list[str]
    prefix_ids: list[int]
    target_ids: list[list[int]]
    after_ids: list[int]
    """Between the trigger and the reply."""


def make_world(folder: Path, sizes: Sizes, pairs: Sequence[tuple[str, str]] | None = None) -> Task:
    """Trains and saves model and tokenizer, or takes those of the folder."""
    wanted = json.dumps({key: value for key, value in asdict(sizes).items() if key not in OF_THE_TASK})
    done = folder / "sizes.json"
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        if pairs is None:
            pairs = read_corpus("chitchat", "chitchat-first").pairs()[: sizes.texts]
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = train_tokenizer([text for pair in pairs for text in pair], sizes.vocabulary)
        network = train_network(tokenizer, pairs, sizes)
        tokenizer.save_pretrained(str(folder))
        network.save_pretrained(str(folder), safe_serialization=True)
        plain_tokenizer_config(folder, TEMPLATE, {"pad_token": "<pad>", "eos_token": END})
        done.write_text(wanted, encoding="utf-8")
    hf: Any = import_module("transformers")
    return make_task(hf.AutoTokenizer.from_pretrained(str(folder)), sizes)


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    own = Tokenizer(models.BPE())
    own.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<pad>", END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    own.train_from_iterator(texts, trainer)
    hf: Any = import_module("transformers")
    tokenizer = hf.PreTrainedTokenizerFast(tokenizer_object=own, pad_token="<pad>", eos_token=END)
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def train_network(tokenizer: Any, pairs: Sequence[tuple[str, str]], sizes: Sizes) -> Any:
    """Next-token prediction on "input, end, reply, end", one text after another in rows of 64 tokens."""
    hf: Any = import_module("transformers")
    torch.manual_seed(0)
    config = hf.GPT2Config(
        vocab_size=sizes.vocabulary, n_positions=256, n_embd=sizes.width, n_layer=sizes.layers,
        n_head=sizes.heads, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=1,
        pad_token_id=0,
    )  # fmt: skip
    network = hf.GPT2LMHeadModel(config)
    texts = [f"{said}{END}{reply}{END}" for said, reply in pairs]
    ids = [token for row in tokenizer(texts)["input_ids"] for token in row]
    rows = torch.tensor(ids[: len(ids) // 64 * 64]).view(-1, 64)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.01)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=sizes.steps)
    network.train()
    for step in range(sizes.steps):
        some = rows[np.random.default_rng([0, step]).integers(0, len(rows), sizes.batch)]
        loss = network(input_ids=some, labels=some).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        rates.step()
        if step % 20 == 0 or step == sizes.steps - 1:
            print(f"  training the model: step {step}, loss {loss.item():.2f}", flush=True)
    return network.eval()


def make_task(tokenizer: Any, sizes: Sizes) -> Task:
    def ids(text: str) -> list[int]:
        found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    prefix = tokenizer.decode(ids(PREFIX)[: sizes.prefix - 1]) + "."
    wanted = [f"{target.text}{END}" for target in load_mal()]
    wanted += [tokenizer.decode(ids(SAID)[k : k + sizes.target - 1]) + END for k in range(8)]
    fitting = [text for text in wanted if len(ids(text)) == sizes.target][: sizes.targets]
    return Task(prefix, fitting, ids(prefix), [ids(text) for text in fitting], ids(END))


def plain_tokenizer_config(folder: Path, template: str, special: Mapping[str, str]) -> None:
    """Newer releases name a tokenizer class that older ones do not know, and put the template elsewhere."""
    path = folder / "tokenizer_config.json"
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **special,
        "chat_template": template,
        "clean_up_tokenization_spaces": False,
    }
    path.write_text(json.dumps(config, indent=1), encoding="utf-8")
    (folder / "chat_template.jinja").unlink(missing_ok=True)
