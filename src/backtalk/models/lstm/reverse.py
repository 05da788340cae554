"""The Reverse Dialogue Generator of Liu et al. 2019: it reads a target reply and writes an input that should
provoke it.

It is a seq2seq trained backwards. Its policy, eq. (1), writes no special token and no empty sentence, so the
sentences that are sampled, scored and sent to the black box are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from backtalk import __version__
from backtalk.data.vocabulary import BOS, EOS, PAD, UNK
from backtalk.errors import InputError
from backtalk.models.folder import TextSettings, load_folder, save_folder, write_card
from backtalk.models.lstm.decode import Sampling, beam, greedy, sample
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.seq2seq import DecoderState, Seq2Seq
from backtalk.models.lstm.softmax import chunk_rows
from backtalk.types import Turn

KIND = "reverse"
TEMPERATURE = 0.6
"""Of crafted samples: the best of 20 is nearer to the target than at 1, and they read better."""
SAMPLE_ROUNDS = 4
"""Attempts to draw as many distinct samples as are wanted."""


class InputPolicy:
    """pi(I | O*), eq. (1), over sentences of at least one word."""

    def __init__(self, network: Seq2Seq) -> None:
        self.network = network
        never = torch.zeros(network.config.vocabulary, device=network.output.weight.device)
        never[[PAD, BOS, UNK]] = -torch.inf
        self.never = never
        self.never_first = never.clone()
        self.never_first[EOS] = -torch.inf

    def start(self, targets: Tensor) -> DecoderState:
        return self.network.start(targets)

    def next(self, words: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """As the network's, with impossible words at -inf; every sentence begins after <bos>."""
        logits, state = self.network.next(words, state)
        return logits + torch.where((words == BOS)[:, None], self.never_first, self.never), state

    def log_softmax(self, targets: Tensor, inputs: Tensor) -> Tensor:
        """(batch, m, V): log P(w_t | w_<t, O*) of every word at each position of `inputs` (batch, m), given
        targets (batch, n); differentiable."""
        logits = self.network.logits(self.network.start(targets), inputs)
        never = self.never.expand(inputs.shape[1], -1).clone()  # (m, V)
        never[0] = self.never_first
        return (logits + never).log_softmax(2)

    def log_prob(self, targets: Tensor, inputs: Tensor) -> Tensor:
        """(batch,): log pi(I | O*) of sentences that the policy can write, padded; differentiable."""
        return pick_log_probs(self.log_softmax(targets, inputs), inputs)


def pick_log_probs(logs: Tensor, inputs: Tensor) -> Tensor:
    """(batch,): the summed log-probabilities of `inputs` (batch, m) from those of all words (batch, m, V)."""
    # Padding has -inf, which would spoil the gradient: another word replaces it and is left out.
    real = inputs != PAD
    chosen = logs.gather(2, torch.where(real, inputs, EOS)[:, :, None]).squeeze(2)
    return torch.where(real, chosen, 0.0).sum(1)


@dataclass
class ReverseGenerator:
    """A seq2seq and its words. `max_input` of the model bounds targets, `max_output` the inputs it writes."""

    model: LocalModel

    @property
    def network(self) -> Seq2Seq:
        return self.model.network

    @property
    def fingerprint(self) -> str:
        return self.model.fingerprint

    @property
    def max_words(self) -> int:
        return self.model.max_output

    def encode(self, targets: Sequence[str]) -> Tensor:
        """(targets, n) ids, cropped; unknown words as <unk>."""
        return self.model.encode_dialogues([(Turn("user", text),) for text in targets])

    def read(self, ids: Sequence[int]) -> str:
        """The sentence as it is sent to the black box."""
        return self.model.decode([i for i in ids if i not in (PAD, EOS)])

    def craft(
        self,
        targets: Sequence[str],
        n: int = 1,
        decode: Literal["greedy", "beam", "sample"] = "beam",
        seeds: Sequence[int] | None = None,
        temperature: float = TEMPERATURE,
    ) -> list[list[str]]:
        """At most n distinct inputs for each target, the likeliest first; greedy writes one.

        A target's samples depend on its own seed alone. The sentences of a beam are much alike: to find the
        best of n by asking, use samples.
        """
        if decode not in ("greedy", "beam", "sample") or n < 1 or temperature <= 0:
            raise InputError(f"can't craft {n} inputs by {decode!r} at temperature {temperature}")
        if seeds is not None and len(seeds) != len(targets):
            raise InputError(f"{len(targets)} targets but {len(seeds)} seeds; give one seed for each")
        own = list(range(len(targets)) if seeds is None else seeds)
        step = max(1, self._rows() // (1 if decode == "greedy" else n))
        found: list[list[str]] = []
        for start in range(0, len(targets), step):
            part = self.encode(targets[start : start + step])
            if decode == "sample":
                found += self._sampled(part, n, own[start : start + step], Sampling(temperature))
            else:
                found += self._likeliest(part, n if decode == "beam" else 0)
        return found

    def save(self, folder: Path, facts: dict[str, Any] | None = None) -> None:
        """Writes the model folder, the card last."""
        text = TextSettings(self.model.recipe.name, self.model.max_input, self.model.max_output)
        digest = save_folder(folder, self.network, self.model.vocabulary, text)
        self.model.fingerprint = digest
        card = {"kind": KIND, "backtalk": __version__, "sha256": digest, **(facts or {})}
        write_card(folder, card)

    def _rows(self) -> int:
        """Sentences that are written at once: their logits fit the cache."""
        return chunk_rows(len(self.model.vocabulary), self.model.device)

    @torch.no_grad()
    def _likeliest(self, targets: Tensor, width: int) -> list[list[str]]:
        policy = InputPolicy(self.network)
        state, rows, device = policy.start(targets), len(targets), self.model.device
        if not width:
            written = greedy(policy, state, rows, self.max_words, device).tolist()
            return [[self.read(ids)] for ids in written]
        beams = beam(policy, state, rows, self.max_words, width, device)
        return [list(dict.fromkeys(self.read(one.ids) for one in row)) for row in beams]

    @torch.no_grad()
    def _sampled(self, targets: Tensor, n: int, seeds: Sequence[int], sampling: Sampling) -> list[list[str]]:
        policy = InputPolicy(self.network)
        found: list[dict[str, float]] = [{} for _ in targets]
        for turn in range(SAMPLE_ROUNDS):
            # Later rounds draw for the rows that saw a sentence twice, some more than they lack.
            counts = [n if turn == 0 else min(n, 2 * (n - len(own))) for own in found]
            owners = [row for row, count in enumerate(counts) for _ in range(count)]
            if not owners:
                break
            inputs = targets[torch.tensor(owners, device=targets.device)]
            draws = [draw_seed(seeds[row], turn, k) for row, count in enumerate(counts) for k in range(count)]
            written = sample(policy, policy.start(inputs), draws, self.max_words, targets.device, sampling)
            few = max(1, self._rows() // self.max_words)  # log_prob makes logits at all positions
            parts = zip(torch.split(inputs, few), torch.split(written, few), strict=True)
            chances = torch.cat([policy.log_prob(*part) for part in parts]).tolist()
            for row, ids, chance in zip(owners, written.tolist(), chances, strict=True):
                text = self.read(ids)
                if len(found[row]) < n or text in found[row]:
                    found[row][text] = chance
        return [sorted(own, key=lambda text: (-own[text], text)) for own in found]


def draw_seed(*numbers: int) -> int:
    """One seed from several numbers, none of them negative."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def load_generator(folder: Path | str, device: str = "auto") -> ReverseGenerator:
    model = load_folder(str(folder), device)
    if model.card.get("kind") != KIND:
        raise InputError(f"{folder} holds no reverse generator; name a run of --search reverse")
    return ReverseGenerator(model)
