"""The real model of the contests: a plain Hugging Face folder that old and new releases of transformers read,
and the targets that are drawn for it."""

from __future__ import annotations

import json
import os
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from backtalk.data.targets import load_mal
from backtalk.errors import InputError
from backtalk.models.transformer.model import TransformerModel
from backtalk.registry import load_model
from backtalk.specs import ModelOptions
from backtalk.types import Name, Origin
from benchmarks.peers.referee import USER, Referee
from benchmarks.peers.world import plain_tokenizer_config

SHORTEST, LONGEST = 4, 10
"""Tokens of a sentence, its end counted."""
TRIES = 1000
CARD = "card.json"


class Subject(NamedTuple):
    folder: Path
    parameters: int
    """Without the tables of input and output embeddings: N of the FLOPs."""
    end: int
    """The token that ends a reply."""


class Goal(NamedTuple):
    """A target as text and as tokens."""

    text: str
    ids: list[int]


def export(name: str, root: Path) -> Subject:
    """Saves the model in float32 in a folder of its own under `root`, unless it is there. Several processes
    may do so at once."""
    folder = root / sha256(name.encode()).hexdigest()[:12]
    if not folder.exists():
        model = load_model(Name(name, Origin.TYPED), "cpu", ModelOptions(dtype="float32"))
        if not isinstance(model, TransformerModel) or model.is_encoder_decoder:
            raise InputError(f"{name} is no causal Hugging Face model; name another --model")
        partial = root / f"{folder.name}.{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        model.network.save_pretrained(str(partial), safe_serialization=True)
        model.tokenizer.save_pretrained(str(partial))
        template = str(model.tokenizer.chat_template or "")
        special = ("bos_token", "eos_token", "pad_token", "unk_token")
        values = {key: getattr(model.tokenizer, key) for key in special}
        plain_tokenizer_config(partial, template, {key: value for key, value in values.items() if value})
        plain_config(partial)
        found = {"parameters": count_parameters(model.network), "end": model.prompts.end}
        (partial / CARD).write_text(json.dumps(found), encoding="utf-8")
        try:
            partial.replace(folder)
        except OSError:  # another process was first
            shutil.rmtree(partial)
    known = json.loads((folder / CARD).read_text(encoding="utf-8"))
    return Subject(folder, known["parameters"], known["end"])


def plain_config(folder: Path) -> None:
    """transformers 5 writes the base of the rotation where transformers 4 does not look for it."""
    path = folder / "config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    rotation = values.pop("rope_parameters", None)
    if rotation is not None:
        if rotation.get("rope_type", "default") != "default":
            raise InputError(f"{folder} has rotations of type {rotation['rope_type']}; name another --model")
        values["rope_theta"] = rotation["rope_theta"]
    values |= {"dtype": "float32", "torch_dtype": "float32"}
    path.write_text(json.dumps(values, indent=1), encoding="utf-8")


def count_parameters(network: Any) -> int:
    tables = {id(part.weight): part.weight.numel() for part in _tables(network)}
    total = sum(int(one.numel()) for one in network.parameters())
    return total - sum(map(int, tables.values()))


def _tables(network: Any) -> list[Any]:
    both = (network.get_input_embeddings(), network.get_output_embeddings())
    return [part for part in both if part is not None]


def draw_sentences(referee: Referee, end: int, count: int, seed: int) -> list[Goal]:
    """Sentences of the shipped list, by chance; one that is drawn is never replaced. The text of each ends
    with the end of a reply."""
    mark = str(referee.tokenizer.decode([end]))
    goals = [Goal(one.text + mark, [*referee.tokens(one.text), end]) for one in load_mal()]
    fitting = [goal for goal in goals if SHORTEST <= len(goal.ids) <= LONGEST]
    if count > len(fitting):
        raise InputError(f"there are {len(fitting)} targets of fitting length, not {count}; lower --targets")
    order = np.random.default_rng(seed).permutation(len(fitting))
    return [fitting[place] for place in order[:count]]


def draw_tokens(referee: Referee, count: int, length: int, seed: int) -> list[Goal]:
    """Random ordinary tokens whose text gives the same tokens again, alone and behind the prompt."""
    special = {*referee.tokenizer.all_special_ids, *referee.tokenizer.added_tokens_decoder}
    ordinary = [number for number in range(len(referee.tokenizer)) if number not in special]
    before = referee.prompt(USER)
    lead = str(referee.tokenizer.decode(before, clean_up_tokenization_spaces=False))
    if referee.tokens(lead) != before:
        raise InputError("the prompt's own text gives other tokens; name another --model")

    def survives(ids: list[int]) -> bool:
        text = referee.text(ids)
        return referee.tokens(text) == ids and referee.tokens(lead + text) == [*before, *ids]

    goals = []
    for number in range(count):
        draw, ids = np.random.default_rng([seed, number]), list[int]()
        for _ in range(TRIES):
            more = [*ids, ordinary[int(draw.integers(len(ordinary)))]]
            ids = more if survives(more) else ids
            if len(ids) == length:
                break
        else:
            raise InputError(f"no {length} random tokens survive as text; name another --model")
        goals.append(Goal(referee.text(ids), ids))
    return goals
