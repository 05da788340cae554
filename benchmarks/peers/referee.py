"""Whoever searched, a plain Hugging Face forward in float32 judges: the loss of every trigger that a tool
held, whether greedy decoding would give the target, and what the model replies to the trigger as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch

Ids = Sequence[int]
BATCH = 64
USER = "hello there"
"""Typed to see what the chat template puts around it."""


class Point(NamedTuple):
    """The best so far at a time."""

    seconds: float
    loss: float
    """Mean negative log-likelihood of the target's tokens."""
    hit: bool


class Judged(NamedTuple):
    """A trigger for a target."""

    ids: list[int]
    loss: float
    """Mean negative log-likelihood of the target's tokens behind the trigger's."""
    hit: bool
    """Whether each token of the target is the most likely one."""
    survives: bool
    """Whether the trigger's text gives the same tokens in the prompt."""
    typed_hit: bool
    """The hit of the prompt that the trigger's text gives."""


@dataclass
class Referee:
    """A model in a folder, loaded by the library alone. A user types `prefix` and then the trigger."""

    folder: Path
    prefix: str = ""
    device: str = "cpu"

    def __post_init__(self) -> None:
        hf: Any = import_module("transformers")
        network = hf.AutoModelForCausalLM.from_pretrained(str(self.folder)).float().eval()
        self.network: Any = network.to(self.device).requires_grad_(False)
        self.tokenizer: Any = hf.AutoTokenizer.from_pretrained(str(self.folder))
        before, after = self._rendered(self.prefix + USER).rsplit(USER, 1)
        self.before, self.after = self.tokens(before), self.tokens(after)

    def tokens(self, text: str) -> list[int]:
        found: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    def text(self, ids: Ids) -> str:
        return str(self.tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))

    def prompt(self, trigger: str) -> list[int]:
        """The tokens of a prompt in which the trigger was typed."""
        return self.tokens(self._rendered(self.prefix + trigger))

    def trigger(self, text: str) -> list[int]:
        """The trigger's tokens in the prompt of its text."""
        ids = self.prompt(text)
        return ids[len(self.before) : len(ids) - len(self.after)]

    def survives(self, ids: Ids) -> bool:
        return self.prompt(self.text(ids)) == [*self.before, *ids, *self.after]

    def judge(self, triggers: Sequence[Ids], goal: Ids) -> list[Judged]:
        """As tokens, and as text where that gives other tokens."""
        found = self.score([([*self.before, *ids, *self.after], goal) for ids in triggers])
        kept = [self.survives(ids) for ids in triggers]
        lost = [ids for ids, same in zip(triggers, kept, strict=True) if not same]
        typed = iter(self.score([(self.prompt(self.text(ids)), goal) for ids in lost]))
        return [
            Judged(list(ids), loss, hit, same, hit if same else next(typed)[1])
            for ids, (loss, hit), same in zip(triggers, found, kept, strict=True)
        ]

    @torch.no_grad()
    def score(self, rows: Sequence[tuple[Ids, Ids]]) -> list[tuple[float, bool]]:
        """The mean negative log-likelihood of each continuation behind its context, and whether each of its
        tokens is the most likely one. Rows of one length are read together, so there is no padding."""
        found: dict[int, tuple[float, bool]] = {}
        order = sorted(range(len(rows)), key=lambda row: (len(rows[row][0]), len(rows[row][1])))
        while order:
            first = tuple(map(len, rows[order[0]]))
            part = [row for row in order[:BATCH] if tuple(map(len, rows[row])) == first]
            order = order[len(part) :]
            ids = torch.tensor([[*rows[row][0], *rows[row][1]] for row in part], device=self.device)
            wanted = ids[:, first[0] :]
            logits = self.network(input_ids=ids).logits[:, first[0] - 1 : -1].float()
            losses = -logits.log_softmax(-1).gather(-1, wanted[..., None])[..., 0].mean(1)
            hits = (logits.argmax(-1) == wanted).all(1)  # (rows, m) -> (rows,)
            found.update(zip(part, zip(losses.tolist(), hits.tolist(), strict=True), strict=True))
        return [found[row] for row in range(len(rows))]

    @torch.no_grad()
    def reply(self, trigger: str, most: int) -> list[int]:
        """The tokens of the greedy reply to a typed trigger, at most so many."""
        ids = torch.tensor([self.prompt(trigger)], device=self.device)
        how = {"do_sample": False, "num_beams": 1, "max_new_tokens": most, "use_cache": True}
        whole = self.network.generate(input_ids=ids, attention_mask=torch.ones_like(ids), **how)
        written: list[int] = whole[0, ids.shape[1] :].tolist()
        return written

    def trace(self, incumbents: Sequence[tuple[float, Ids]], goal: Ids) -> list[Point]:
        """Best loss by time, and whether any trigger so far was a hit."""
        found = self.judge([ids for _, ids in incumbents], goal)
        points: list[Point] = []
        best, ever = float("inf"), False
        for (seconds, _), one in zip(incumbents, found, strict=True):
            best, ever = min(best, one.loss), ever or one.hit
            points.append(Point(seconds, best, ever))
        return points

    def _rendered(self, said: str) -> str:
        messages = [{"role": "user", "content": said}]
        text: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return text


def value_at(points: Sequence[Point], seconds: float) -> Point:
    """The last point by then; the first where none was reached."""
    reached = [point for point in points if point.seconds <= seconds]
    return reached[-1] if reached else points[0]
