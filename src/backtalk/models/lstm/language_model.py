"""The LSTM language model of single sentences. It keeps triggers likely (eq. 4 of He & Glass 2019) and
samples the inputs that a search starts from.

A trigger is scored on its n words; <eos> counts in training and in T_in, as in the papers, but not in eq. 4.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.data.vocabulary import BOS, PAD
from backtalk.models.device import wide
from backtalk.models.lstm.cell import LSTMStack, State
from backtalk.models.lstm.decode import sample
from backtalk.models.lstm.softmax import target_scores


@dataclass(frozen=True)
class LanguageModelConfig:
    """Sizes of the language model; the defaults are the papers'."""

    vocabulary: int
    embedding: int = 300
    hidden: int = 600
    layers: int = 1
    dropout: float = 0.0


class LSTMLanguageModel(nn.Module):
    def __init__(self, config: LanguageModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.embedding)
        self.lstm = LSTMStack(config.embedding, config.hidden, config.layers, config.dropout)
        self.output = nn.Linear(config.hidden, config.vocabulary)

    def token_log_probs(self, inputs: Tensor, replies: Tensor) -> Tensor:
        """(batch, n) ids -> (batch, n) log P(x_t | x_<t), 0 where padded; differentiable. The inputs are
        ignored: `Seq2Seq` has the same method."""
        logits = self._logits(self.embed(_shift(replies))).transpose(1, 2)
        return -F.cross_entropy(logits, replies, ignore_index=PAD, reduction="none")

    @torch.no_grad()
    def score(self, inputs: Tensor) -> Tensor:
        return self._run(inputs, _shift(inputs))[0]

    @torch.no_grad()
    def score_substitutions(self, inputs: Tensor, position: int, candidates: Tensor) -> Tensor:
        batch, count = candidates.shape
        rest = inputs[:, position + 1 :]  # (batch, s)
        prefix, state = self._run(inputs[:, :position], _shift(inputs)[:, :position])
        result = prefix.new_zeros(batch, count, inputs.shape[1])
        result[:, :, :position] = prefix[:, None]
        # All candidates of a row share one softmax: the words before them are the same.
        previous = inputs[:, position - 1] if position else torch.full_like(inputs[:, 0], BOS)
        logits, state = self.next(previous, state)
        result[:, :, position] = self._log_softmax(logits).gather(1, candidates)
        if rest.shape[1]:
            first, later = (self.lstm.project(self.embed(words)) for words in (candidates, rest[:, :-1]))
            for t, rows in enumerate(self.lstm.fork(first, later, state)):
                words, _ = target_scores(rows.top, self.output, rest[:, t].repeat_interleave(count))
                result[:, :, position + 1 + t] = words.view(batch, count)
        padded = inputs == PAD
        padded[:, position] = False
        return result.masked_fill_(padded[:, None], 0.0)

    def gradient(self, inputs: Tensor, weights: Tensor, positions: Sequence[int] | None = None) -> Tensor:
        at = list(range(inputs.shape[1])) if positions is None else list(positions)
        embedded = self.embed(_shift(inputs)).detach().requires_grad_()
        with torch.enable_grad():
            logits = self._logits(embedded)
            chosen = F.log_softmax(logits, dim=2).gather(2, inputs[:, :, None]).squeeze(2)
            (by_embedding,) = torch.autograd.grad((chosen * weights).sum(), embedded)
        with torch.no_grad():
            # Input side: x_t is the word fed at t + 1; the last word is fed to nothing.
            fed = _pick(F.pad(by_embedding, (0, 0, 0, 1)), [t + 1 for t in at])
            input_side = (fed @ self.embed.weight.t()).to(weights.dtype)
            # Output side: x_t . log p_t, whose derivative is log p_t itself.
            slots = F.log_softmax(_pick(logits, at), dim=2, dtype=weights.dtype)
            return input_side.addcmul_(slots, _pick(weights, at)[:, :, None])

    @torch.no_grad()
    def next_log_probs(self, inputs: Tensor) -> Tensor:
        _, state = self._read(self.embed(F.pad(inputs, (1, 0), value=BOS)))
        return self._log_softmax(self.output(state.top))

    def sample_inputs(self, length: int, seeds: Sequence[int], allowed: Tensor) -> Tensor:
        return sample(self, self.start(len(seeds)), seeds, length, allowed.device, allowed=allowed)

    def start(self, rows: int) -> State:
        return self.lstm.zero_state(rows)

    def next(self, words: Tensor, state: State) -> tuple[Tensor, State]:
        """Feeds one word a row; returns the next word's logits (rows, V) and the new state."""
        state = self.lstm.step(self.lstm.project(self.embed(words)), state)
        return self.output(state.top), state

    def _logits(self, embedded: Tensor) -> Tensor:
        outputs, _ = self._read(F.dropout(embedded, self.config.dropout, self.training))
        logits: Tensor = self.output(F.dropout(outputs, self.config.dropout, self.training))
        return logits

    def _log_softmax(self, logits: Tensor) -> Tensor:
        return F.log_softmax(logits, dim=1, dtype=wide(logits.dtype))

    def _run(self, words: Tensor, fed: Tensor) -> tuple[Tensor, State]:
        """Log-probabilities of `words` (batch, n) when `fed` are read, and the state after them."""
        outputs, state = self._read(self.embed(fed))
        scores, _ = target_scores(outputs.flatten(0, 1), self.output, words.flatten())
        return scores.view(words.shape).masked_fill_(words == PAD, 0.0), state

    def _read(self, embedded: Tensor) -> tuple[Tensor, State]:
        return self.lstm.run(self.lstm.project(embedded), self.lstm.zero_state(len(embedded)))


def _pick(values: Tensor, positions: Sequence[int]) -> Tensor:
    """(batch, n, ...) -> (batch, positions, ...), without index tensors that a GPU would wait for."""
    return torch.stack([values[:, t] for t in positions], dim=1)


def _shift(sentences: Tensor) -> Tensor:
    """What is read before each word: <bos>, then the words but the last."""
    return F.pad(sentences[:, :-1], (1, 0), value=BOS)
