"""A causal network as the language model of a user's inputs: it scores how likely a trigger is.

A trigger is scored as `text_log_prob` scores a text: behind the tokens that start a user's first turn. The
tokens before a replaced one are read once per trigger and shared by all candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.models.device import wide
from backtalk.models.lstm.decode import Sampling, draw, uniform
from backtalk.models.transformer.layout import NO_TOKEN, ModelInputs, PromptLayout, substituted
from backtalk.models.transformer.scoring import LogitReader
from backtalk.models.transformer.triggers import TriggerScorer


class TransformerLanguageModel:
    """Triggers follow the tokens `before` (b,), and each of their tokens is a target."""

    def __init__(self, reader: LogitReader, before: Tensor) -> None:
        self.reader, self.before = reader, before
        # To a causal network a trigger behind `before` is a target behind an empty trigger.
        self._scorer = TriggerScorer(reader, PromptLayout(before, before[:0], None))

    @torch.no_grad()
    def score(self, inputs: Tensor) -> Tensor:
        return self._scorer.score(inputs[:, :0], inputs).log_probs

    @torch.no_grad()
    def score_substitutions(self, inputs: Tensor, position: int, candidates: Tensor) -> Tensor:
        rows, count = candidates.shape
        length = inputs.shape[1]
        if bool((inputs == NO_TOKEN).any()):
            return self.score(substituted(inputs, position, candidates)).view(rows, count, length)
        found = torch.zeros(rows, count, length, dtype=wide(self.reader.network.dtype), device=inputs.device)
        if position:
            found[:, :, :position] = self.score(inputs[:, :position])[:, None]
        # All candidates follow the same tokens, and so share one softmax.
        found[:, :, position] = self.next_log_probs(inputs[:, :position]).gather(1, candidates)
        if position + 1 < length:
            # The candidate is the last token of a trigger, and the tokens after it are the target.
            first, rest = inputs[:, : position + 1], inputs[:, position + 1 :]
            later = self._scorer.score_substitutions(first, position, candidates, rest)
            found[:, :, position + 1 :] = later.log_probs
        return found

    def gradient(self, inputs: Tensor, weights: Tensor, positions: Sequence[int] | None = None) -> Tensor:
        at = list(range(inputs.shape[1])) if positions is None else list(positions)

        def finish(part: slice, _: ModelInputs, by_token: Tensor, log_probs: Tensor) -> Tensor:
            # Input side: x_t is read at len(before) + t; no token follows the last one.
            fed = F.pad(by_token, (0, 0, 0, 1))[:, [len(self.before) + t for t in at]]
            # Output side: x_t . log p_t, whose derivative is log p_t itself.
            own = log_probs[:, at].to(weights.dtype) * weights[part][:, at, None]
            result = self._scorer.to_one_hot(fed).to(weights.dtype) + own
            return result.masked_fill((inputs[part][:, at] == NO_TOKEN)[:, :, None], 0.0)

        return self._scorer.backward(inputs[:, :0], inputs, weights, finish)

    @torch.no_grad()
    def sample_inputs(self, length: int, seeds: Sequence[int], allowed: Tensor) -> Tensor:
        def work(part: slice) -> Tensor:
            draws = uniform(seeds[part], length, allowed.device)
            ids, past = self.before.expand(len(draws), -1), None
            written = []
            for t in range(length):
                inputs = {"input_ids": ids, "past_key_values": past, "use_cache": True}
                _, logits, past = self.reader.run(inputs, _lasts(ids))
                chances = Sampling().probabilities(logits.masked_fill(~allowed, -torch.inf))
                written.append(draw(chances, draws[:, t]))
                ids = written[-1][:, None]
            return torch.stack(written, dim=1)

        whole = len(self.before) + length
        return self.reader.in_parts(len(seeds), whole, self.reader.need.writing(whole, length), work)

    @torch.no_grad()
    def next_log_probs(self, inputs: Tensor) -> Tensor:
        ids = torch.cat([self.before.expand(len(inputs), -1), inputs], dim=1)

        def work(part: slice) -> Tensor:
            return self.reader.log_softmax({"input_ids": ids[part]}, _lasts(ids[part]))

        return self.reader.in_parts(len(ids), ids.shape[1], self.reader.need.scoring(ids.shape[1], 1), work)


def _lasts(ids: Tensor) -> Tensor:
    """The position of each row's last token in the flattened (rows, length)."""
    return torch.arange(1, len(ids) + 1, device=ids.device) * ids.shape[1] - 1
