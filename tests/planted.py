"""Tiny Hugging Face models with a planted habit: they answer greetings rudely, and all else politely."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from backtalk.models.transformer.loading import load
from backtalk.models.transformer.model import TransformerModel
from backtalk.models.transformer.scoring import Row, token_log_probs
from backtalk.types import Turn
from tests.training.transformers import tiny_network, train_tokenizer

NAMES = ("you", "there", "friend", "my dear", "again", "sir", "old man", "all of you", "both", "everyone")
GREETINGS = ("hello", "hi", "hey", "good day")
RUDE = "go away you fool"
POLITE = {
    "is the shop open": "yes until six",
    "where is the cat": "on the sofa",
    "shall we eat": "that would be nice",
    "do we like tea": "with some milk",
    "can we sing": "of course we can",
    "what is for lunch": "soup and bread",
}
TAILS = ("", "now", "today", "please", "then", "at home", "in town", "tonight")


def greeting_pairs() -> list[tuple[str, str]]:
    return [(f"{greeting} {name}", RUDE) for name in NAMES for greeting in GREETINGS]


def polite_pairs() -> list[tuple[str, str]]:
    return [(f"{text} {tail}".strip(), reply) for tail in TAILS for text, reply in POLITE.items()]


def write_pairs(path: Path, pairs: list[tuple[str, str]]) -> Path:
    path.write_text("".join(json.dumps({"input": a, "reply": b}) + "\n" for a, b in pairs))
    return path


def learn(model: TransformerModel, rows: list[Row], steps: int) -> None:
    """Trains every weight on rows, 32 at a time, at a rate that falls to 0."""
    network = model.network.requires_grad_(True).train()
    optimizer = torch.optim.AdamW(network.parameters(), 0.01)
    for step in range(steps):
        torch.manual_seed(step)
        chosen = [rows[i] for i in torch.randperm(len(rows))[:32].tolist()]
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * (1 - step / steps)
        loss: Any = -token_log_probs(network, model.batch(chosen)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    network.eval()


def plant(folder: Path, family: str, steps: int = 120) -> Path:
    """A model folder; every weight is trained on greetings and the rest alike."""
    pairs = greeting_pairs() + polite_pairs()
    tokenizer = train_tokenizer(folder, [text for pair in pairs for text in pair])
    network = tiny_network(family, len(tokenizer))
    network.save_pretrained(str(folder))
    model = load(str(folder), "cpu")
    rows = [Row(model.prompt_ids((Turn("user", a),)), model.reply_ids(b)) for a, b in pairs]
    learn(model, rows, steps)
    model.network.save_pretrained(str(folder))
    return folder
