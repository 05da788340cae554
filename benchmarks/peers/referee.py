"""Whoever searched, a plain Hugging Face forward judges: the loss of every trigger that a tool held, and
whether greedy decoding would give the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.peers.world import Task

BATCH = 64


class Point(NamedTuple):
    """The best so far at a time."""

    seconds: float
    loss: float
    """Mean negative log-likelihood of the target's tokens."""
    hit: bool


@dataclass
class Referee:
    """The model of the world, loaded by the library alone."""

    folder: Path
    task: Task

    def __post_init__(self) -> None:
        hf: Any = import_module("transformers")
        self.network: Any = hf.AutoModelForCausalLM.from_pretrained(str(self.folder)).float().eval()
        self.tokenizer: Any = hf.AutoTokenizer.from_pretrained(str(self.folder))

    def trace(self, incumbents: Sequence[tuple[float, Sequence[int]]], target: int) -> list[Point]:
        """Best loss by time, and whether any trigger so far was a hit."""
        found = self.judge([ids for _, ids in incumbents], target)
        points: list[Point] = []
        best, ever = float("inf"), False
        for (seconds, _), (loss, hit) in zip(incumbents, found, strict=True):
            best, ever = min(best, loss), ever or hit
            points.append(Point(seconds, best, ever))
        return points

    @torch.no_grad()
    def judge(self, triggers: Sequence[Sequence[int]], target: int) -> list[tuple[float, bool]]:
        goal = self.task.target_ids[target]
        wanted = torch.tensor(goal)
        results: list[tuple[float, bool]] = []
        for start in range(0, len(triggers), BATCH):
            rows = [
                [*self.task.prefix_ids, *ids, *self.task.after_ids, *goal]
                for ids in triggers[start : start + BATCH]
            ]
            logits = self.network(input_ids=torch.tensor(rows)).logits[:, -len(goal) - 1 : -1].float()
            losses = -logits.log_softmax(-1).gather(-1, wanted.expand(len(rows), -1)[..., None])[..., 0]
            greedy = (logits.argmax(-1) == wanted).all(1)  # (rows, m) -> (rows,)
            results += list(zip(losses.mean(1).tolist(), greedy.tolist(), strict=True))
        return results

    def survives(self, ids: Sequence[int]) -> bool:
        """Whether typing the text behind the prefix gives the same tokens."""
        text = self.task.prefix + self.tokenizer.decode(list(ids))
        again = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return bool(again == [*self.task.prefix_ids, *ids])


def value_at(points: Sequence[Point], seconds: float) -> Point:
    """The last point by then; the first where none was reached."""
    reached = [point for point in points if point.seconds <= seconds]
    return reached[-1] if reached else points[0]
