"""A causal network as the language model of what people type: it keeps triggers likely.

A trigger is scored where a user's first text stands, without the template around it, as in `text_log_prob`.
The tokens before a changed one are read once per trigger and shared by all candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from backtalk.models.device import wide
from backtalk.models.lstm.decode import Sampling, draw, uniform
from backtalk.models.transformer.layout import NO_TOKEN, PromptLayout
from backtalk.models.transformer.memory import Footprint
from backtalk.models.transformer.scoring import LogitReader, embedding_gradient, to_one_hot
from backtalk.models.transformer.triggers import TriggerScorer


class TransformerLanguageModel:
    """Triggers stand behind `before` (b,), and each of their tokens is a target."""

    def __init__(self, reader: LogitReader, before: Tensor, need: Footprint) -> None:
        self.reader, self.before, self.need = reader, before, need
        # To a causal network a trigger behind `before` is a target behind an empty trigger.
        self._layout = PromptLayout(before, before[:0], None)
        self._scorer = TriggerScorer(reader, self._layout, need)

    @torch.no_grad()
    def score(self, inputs: Tensor) -> Tensor:
        return self._scorer.score(inputs[:, :0], inputs).log_probs

    @torch.no_grad()
    def score_substitutions(self, inputs: Tensor, position: int, candidates: Tensor) -> Tensor:
        rows, count = candidates.shape
        length = inputs.shape[1]
        if bool((inputs == NO_TOKEN).any()):
            every = inputs[:, None].repeat(1, count, 1)
            every[:, :, position] = candidates
            return self.score(every.flatten(0, 1)).view(rows, count, length)
        found = torch.zeros(rows, count, length, dtype=wide(self.reader.network.dtype), device=inputs.device)
        if position:
            found[:, :, :position] = self.score(inputs[:, :position])[:, None]
        # All candidates share the words before them, and so one softmax.
        found[:, :, position] = self.next_log_probs(inputs[:, :position]).gather(1, candidates)
        if position + 1 < length:
            # The candidate is the last token of a trigger, and what follows is its target.
            later = self._scorer.score_substitutions(
                inputs[:, : position + 1], position, candidates, inputs[:, position + 1 :]
            )
            found[:, :, position + 1 :] = later.log_probs
        return found

    def gradient(self, inputs: Tensor, weights: Tensor, positions: Sequence[int] | None = None) -> Tensor:
        at = list(range(inputs.shape[1])) if positions is None else list(positions)
        length = len(self.before) + inputs.shape[1]

        def work(part: slice) -> Tensor:
            return self._gradient(inputs[part], weights[part], at)

        return self.reader.in_parts(len(inputs), length, lambda n, m: self.need.learning(n, m, length), work)

    @torch.no_grad()
    def sample_inputs(self, length: int, seeds: Sequence[int], allowed: Tensor) -> Tensor:
        def work(part: slice) -> Tensor:
            return self._sample(length, seeds[part], allowed)

        whole = len(self.before) + length
        return self.reader.in_parts(len(seeds), whole, lambda n, m: self.need.writing(n, m, length), work)

    @torch.no_grad()
    def next_log_probs(self, inputs: Tensor) -> Tensor:
        ids = torch.cat([self.before.expand(len(inputs), -1), inputs], dim=1)

        def work(part: slice) -> Tensor:
            return self.reader.log_softmax({"input_ids": ids[part]}, _lasts(ids[part]))

        return self.reader.in_parts(len(ids), ids.shape[1], lambda n, m: self.need.scoring(n, m, 1), work)

    # --- inside --------------------------------------------------------------------------------------

    def _gradient(self, inputs: Tensor, weights: Tensor, at: list[int]) -> Tensor:
        read = self._layout.inputs(inputs[:, :0], inputs)
        there = inputs != NO_TOKEN
        kept: list[Tensor] = []

        def total(embedded: Tensor) -> Tensor:
            logs = self.reader.log_softmax({"inputs_embeds": embedded}, read.positions.flatten())
            log_probs = logs.view(*inputs.shape, -1)
            kept.append(log_probs.detach())
            chosen = log_probs.gather(2, inputs.clamp(min=0)[:, :, None]).squeeze(2)
            return (chosen * weights).masked_fill(~there, 0.0).sum()

        by_token = embedding_gradient(self.reader.network, read.inputs["input_ids"], total)
        # Input side: x_t is read at len(before) + t; the last token is read by nothing.
        fed = F.pad(by_token, (0, 0, 0, 1))[:, [len(self.before) + t for t in at]]
        input_side = to_one_hot(self.reader.network, fed).to(weights.dtype)
        # Output side: x_t . log p_t, whose derivative is log p_t itself.
        result = input_side + kept[0][:, at].to(weights.dtype) * weights[:, at, None]
        return result.masked_fill(~there[:, at, None], 0.0)

    def _sample(self, length: int, seeds: Sequence[int], allowed: Tensor) -> Tensor:
        draws = uniform(seeds, length, allowed.device)
        ids, past = self.before.expand(len(seeds), -1), None
        written = []
        for t in range(length):
            inputs = {"input_ids": ids, "past_key_values": past, "use_cache": True}
            logits, past = self.reader.logits(inputs, _lasts(ids))
            chances = Sampling().probabilities(logits.masked_fill(~allowed, -torch.inf))
            written.append(draw(chances, draws[:, t]))
            ids = written[-1][:, None]
        return torch.stack(written, dim=1)


def _lasts(ids: Tensor) -> Tensor:
    """The position of each row's last token in the flattened (rows, length)."""
    return torch.arange(1, len(ids) + 1, device=ids.device) * ids.shape[1] - 1
