"""A transformer behind the model protocol: a tiny random GPT-2 made from a config.

An input and a target become one sequence: input, separator, target. Words are letters, so that any text
round-trips. The prefix before a substituted position is read once and its keys and values are reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

from backtalk.types import Access, Dialogue, Floor, TokenScores

LETTERS = "abcdefghijklmnopqrstuvwxyz '"
PAD, SEP, END = 0, 1, 2
FIRST = 3
LONGEST_REPLY = 6


def tiny_gpt2() -> Any:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=FIRST + len(LETTERS), n_positions=64, n_embd=16, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.5,
    )  # fmt: skip
    make: Any = GPT2LMHeadModel  # typed in some releases only
    return make(config).eval().requires_grad_(False)


@dataclass
class Gpt2Adapter:
    network: Any = field(default_factory=tiny_gpt2)
    name: str = "tiny-gpt2"
    access: Access = Access.WEIGHTS
    fingerprint: str = "tiny-gpt2-0"
    pad: int = PAD
    unknown_id: None = None
    vocabulary_size: int = FIRST + len(LETTERS)
    language_model: None = None

    def encode_input(self, text: str) -> list[int]:
        return [FIRST + LETTERS.index(c) for c in text if c in LETTERS]

    def encode_target(self, text: str) -> list[int]:
        return [*self.encode_input(text), END]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(LETTERS[i - FIRST] for i in ids if i >= FIRST)

    def unknown_words(self, text: str) -> list[str]:
        return [c for c in text if c not in LETTERS]

    def searchable(self) -> Tensor:
        return torch.arange(self.vocabulary_size) >= FIRST

    def reply(self, dialogues: Sequence[Dialogue]) -> list[str]:
        return self._write(dialogues, [None] * len(dialogues))

    def sample(self, dialogues: Sequence[Dialogue], seeds: Sequence[int]) -> list[str]:
        return self._write(dialogues, [np.random.default_rng(seed) for seed in seeds])

    def log_prob(self, dialogues: Sequence[Dialogue], replies: Sequence[str]) -> list[list[float]]:
        targets = [self.encode_target(reply) for reply in replies]
        scores = self.score(self._inputs(dialogues), _pad(targets)).log_probs.tolist()
        return [row[: len(own)] for row, own in zip(scores, targets, strict=True)]

    def score(self, inputs: Tensor, targets: Tensor) -> TokenScores:
        n = inputs.shape[1]
        scores = self._continue(inputs, inputs[:, None, n:], targets)
        return TokenScores(scores.log_probs[:, 0], scores.is_argmax[:, 0])

    def score_substitutions(
        self, inputs: Tensor, position: int, candidates: Tensor, targets: Tensor, floor: Floor | None = None
    ) -> TokenScores:
        rest = inputs[:, None, position + 1 :].expand(-1, candidates.shape[1], -1)
        return self._continue(inputs[:, :position], torch.cat([candidates[:, :, None], rest], 2), targets)

    def gradient(
        self,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor,
        positions: Sequence[int] | None = None,
        branches: float = 1.0,
    ) -> Tensor:
        at = list(range(inputs.shape[1])) if positions is None else list(positions)
        one_hot = F.one_hot(inputs, self.vocabulary_size).float().requires_grad_()
        with torch.enable_grad():
            total = (self.forward_one_hot(one_hot, inputs, targets) * weights).sum()
            (gradient,) = torch.autograd.grad(total, one_hot)
        return gradient[:, at]

    def forward_one_hot(self, one_hot: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """Log-probabilities for inputs that need not be words: (batch, n, vocabulary)."""
        embed = self.network.transformer.wte.weight
        tail = _with_separator(targets)
        embedded = torch.cat([one_hot @ embed, embed[tail]], dim=1)
        keep = torch.cat([inputs, tail], 1) != PAD
        logits = self.network(
            inputs_embeds=embedded, attention_mask=keep.long(), position_ids=_places(keep)
        ).logits
        return _scores(logits[:, inputs.shape[1] :], targets).log_probs

    def _continue(self, prefix: Tensor, suffix: Tensor, targets: Tensor) -> TokenScores:
        """`prefix` (batch, p) is read once; each row of `suffix` (batch, count, s) goes on from it."""
        batch, count, _ = suffix.shape
        rows_targets = targets.repeat_interleave(count, dim=0)
        tail = torch.cat([suffix.flatten(0, 1), _with_separator(rows_targets)], dim=1)
        keep = torch.cat([prefix.repeat_interleave(count, dim=0), tail], dim=1) != PAD
        cache = None
        if prefix.shape[1]:
            here = prefix != PAD
            cache = DynamicCache()
            self.network(
                prefix, attention_mask=here.long(), position_ids=_places(here),
                past_key_values=cache, use_cache=True,
            )  # fmt: skip
            cache.batch_repeat_interleave(count)
        logits = self.network(
            tail, attention_mask=keep.long(), position_ids=_places(keep)[:, prefix.shape[1] :],
            past_key_values=cache,
        ).logits  # fmt: skip
        scores = _scores(logits[:, suffix.shape[2] :], rows_targets)
        return TokenScores(*(part.view(batch, count, -1) for part in scores))

    def _write(self, dialogues: Sequence[Dialogue], draws: Sequence[Any]) -> list[str]:
        rows = [[*self.encode_input(dialogue[-1].text), SEP] for dialogue in dialogues]
        starts = [len(row) for row in rows]
        for _ in range(LONGEST_REPLY):
            padded = _pad(rows)
            keep = padded != PAD
            logits = self.network(padded, attention_mask=keep.long(), position_ids=_places(keep)).logits
            for i, row in enumerate(rows):
                if row[-1] == END:
                    continue
                chances = logits[i, len(row) - 1].double().softmax(0)
                draw = draws[i]
                if draw is None:
                    row.append(int(chances.argmax()))
                else:
                    row.append(int(torch.searchsorted(chances.cumsum(0), draw.random()).clamp(max=30)))
        return [self.decode(row[start:]) for row, start in zip(rows, starts, strict=True)]

    def _inputs(self, dialogues: Sequence[Dialogue]) -> Tensor:
        return _pad([self.encode_input(dialogue[-1].text) for dialogue in dialogues])


def _with_separator(targets: Tensor) -> Tensor:
    """What is fed before each target token: the separator, then the target but its last token."""
    return F.pad(targets[:, :-1], (1, 0), value=SEP)


def _places(keep: Tensor) -> Tensor:
    return (keep.long().cumsum(1) - 1).clamp(min=0)


def _scores(logits: Tensor, targets: Tensor) -> TokenScores:
    chosen = logits.gather(2, targets[:, :, None]).squeeze(2)
    padded = targets == PAD
    log_probs = (chosen - logits.logsumexp(2)).masked_fill(padded, 0.0)
    return TokenScores(log_probs, (chosen >= logits.amax(2)) | padded)


def _pad(rows: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (width - len(row))] for row in rows])
