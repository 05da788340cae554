"""A language model as a distribution over inputs: it samples token ids and gives their exact log-probability,
the cut at the length limit included.

An input has at least one token. It ends where the model ends it or at the limit, so all inputs together have
a probability of 1. Padding and the start token are left out, and the other tokens renormalised.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from backtalk.data.vocabulary import BOS, EOS, PAD
from backtalk.deadline import check_time
from backtalk.models.lstm.decode import Sampling, draw
from backtalk.models.lstm.language_model import LSTMLanguageModel
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.softmax import chunk_rows

Array = NDArray[np.float64]


class InputModel(Protocol):
    """What the inputs and the proposals of an estimate are drawn from."""

    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def width(self) -> int:
        """The most tokens of an input."""

    def sample(self, numbers: Array) -> Tensor:
        """(rows, width) uniform numbers -> (rows, width) token ids, padded."""

    def log_prob(self, ids: Tensor) -> Array:
        """(rows,): of these inputs, and no others."""

    def texts(self, ids: Tensor) -> list[str]: ...


@dataclass(frozen=True)
class LSTMInputs:
    """The LSTM language model of one of our models. `owner` has its vocabulary and its limit."""

    owner: LocalModel
    network: LSTMLanguageModel
    name: str
    temperature: float = 1.0

    @cached_property
    def fingerprint(self) -> str:
        """Of the weights, the words and the length limit."""
        found = hashlib.sha256(repr((self.owner.vocabulary.entries, self.width, self.temperature)).encode())
        for name, value in sorted(self.network.state_dict().items()):
            found.update(name.encode() + value.float().cpu().contiguous().numpy().tobytes())
        return found.hexdigest()

    @property
    def width(self) -> int:
        return self.owner.max_input

    @torch.no_grad()
    def sample(self, numbers: Array) -> Tensor:
        step = chunk_rows(2 * self.network.config.vocabulary, self.owner.device)
        parts = [self._sample(numbers[start : start + step]) for start in range(0, len(numbers), step)]
        return torch.cat(parts)

    def _sample(self, numbers: Array) -> Tensor:
        device = self.owner.device
        drawn = torch.from_numpy(np.ascontiguousarray(numbers)).to(device)
        words = torch.full((len(numbers),), BOS, device=device)
        over = torch.zeros_like(words, dtype=torch.bool)
        state, written = self.network.start(len(numbers)), []
        for place in range(self.width):
            check_time()
            logits, state = self.network.next(words, state)
            words = draw(Sampling(self.temperature).probabilities(_possible(logits, place)), drawn[:, place])
            over = over | (words == EOS)
            words = words.masked_fill(over, PAD)
            written.append(words)
        return torch.stack(written, dim=1)

    @torch.no_grad()
    def log_prob(self, ids: Tensor) -> Array:
        step = chunk_rows(2 * self.network.config.vocabulary, ids.device)
        rows = (ids[start : start + step] for start in range(0, len(ids), step))
        parts = [self.token_log_probs(part).double().sum(1) for part in rows]
        found: Array = torch.cat(parts).cpu().numpy()
        return found

    def token_log_probs(self, ids: Tensor) -> Tensor:
        """(rows, width) ids -> (rows, width): of each token, of the end too; 0 behind it. Differentiable."""
        ended = (ids != PAD).sum(1, keepdim=True) == torch.arange(ids.shape[1], device=ids.device)
        targets = ids.masked_fill(ended, EOS)
        words, state, found = torch.full_like(ids[:, 0], BOS), self.network.start(len(ids)), []
        for place in range(ids.shape[1]):
            logits, state = self.network.next(words, state)
            log_probs = F.log_softmax(_possible(logits, place) / self.temperature, dim=1)
            found.append(log_probs.gather(1, targets[:, place, None]).squeeze(1))
            words = ids[:, place]
        return torch.stack(found, dim=1).masked_fill(targets == PAD, 0.0)

    def texts(self, ids: Tensor) -> list[str]:
        return [self.owner.decode(row) for row in ids.tolist()]


def _possible(logits: Tensor, place: int) -> Tensor:
    """The logits of what may stand at a place of an input."""
    never = [PAD, BOS] if place else [PAD, BOS, EOS]
    return logits.index_fill(1, torch.tensor(never, device=logits.device), -torch.inf)
