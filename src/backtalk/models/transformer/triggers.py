"""Scores of targets behind triggers, with one trigger token replaced by each of many, and their gradients.

For substitutions the tokens before the replaced one are read once per trigger, and all candidates share their
keys and values; only the tokens from the replaced one on are run, on a GPU by a decoder of ours if the
network is like Llama (decoder.py). The first call is checked against a plain forward pass. A network that
fails the check reads whole prompts. So do encoders, in which every token sees every other.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.models.device import wide
from backtalk.models.lstm.decode import Sampling, draw, uniform
from backtalk.models.transformer.attention import WAYS, Layers, Way, by_shared_past, layers_of
from backtalk.models.transformer.decoder import Decoder
from backtalk.models.transformer.layout import NO_TOKEN, ModelInputs, PromptLayout, substituted
from backtalk.models.transformer.memory import run_parts
from backtalk.models.transformer.scoring import LogitReader
from backtalk.types import TokenScores

CHECKED = 4  # candidates of the first call that are read both ways
NEAR = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Largest mean difference of both ways' log-probabilities; 0.25 in 16 bits. A past that is not seen, or is in
a wrong position, gives far more."""
DECODED = {"cuda"}  # devices on which a decoder of ours is faster than the network
Work = Callable[[slice], TokenScores]
Finish = Callable[[slice, ModelInputs, Tensor, Tensor], Tensor]
"""(part, inputs, gradient of the embedded tokens, log-probabilities (rows, m, vocabulary)) -> result"""


class TriggerScorer:
    """Scores triggers for one network."""

    def __init__(self, reader: LogitReader, layout: PromptLayout) -> None:
        self.reader, self.layout = reader, layout
        self.shares: bool | None = False if layout.lead is not None else None
        """Whether a shared past is as good as a plain forward pass; None before the first call."""
        self._way: Way = by_shared_past
        self._decoder: Decoder | None = None  # reads tails instead of the network
        self._damping: Decoder | Literal[False] | None = None  # the same for damped gradients; False: none

    def score(self, triggers: Tensor, targets: Tensor) -> TokenScores:
        """(rows, m)"""

        def work(part: slice) -> TokenScores:
            read = self.layout.inputs(triggers[part], targets[part])
            return self._scores(read.inputs, read.positions, targets[part])

        length = self.layout.around + triggers.shape[1] + targets.shape[1]
        return self._run(len(triggers), length, 0, targets.shape[1], work)

    def score_substitutions(
        self, triggers: Tensor, position: int, candidates: Tensor, targets: Tensor
    ) -> TokenScores:
        """(rows, candidates, m)"""
        shared = len(self.layout.before) + position
        self._check_decoder()
        # On a GPU triggers have one length: looking for padding would make a search wait.
        padded = not triggers.is_cuda and bool((triggers == NO_TOKEN).any())
        if self.shares is False or not shared or padded:
            return self._read_whole(triggers, position, candidates, targets)
        if self.shares is None:
            self.shares = self._is_right(triggers, position, candidates, targets)
            return self.score_substitutions(triggers, position, candidates, targets)
        return self._read_tails(triggers, position, candidates, targets)

    def gradient(
        self,
        triggers: Tensor,
        targets: Tensor,
        weights: Tensor,
        positions: Sequence[int] | None,
        branches: float = 1.0,
    ) -> Tensor:
        """(rows, positions, vocabulary): of sum_t weights_t log P(y_t | y_<t, x), with respect to the one-hot
        tokens of the triggers. With `branches` under 1 a decoder reads them (decoder.py)."""
        at = list(range(triggers.shape[1])) if positions is None else list(positions)

        def finish(part: slice, read: ModelInputs, by_token: Tensor, _: Tensor) -> Tensor:
            places = read.trigger_positions[:, at, None].expand(-1, -1, by_token.shape[2])
            wanted = by_token.gather(1, places)  # (rows, positions, size)
            wanted = wanted.masked_fill((triggers[part][:, at] == NO_TOKEN)[:, :, None], 0.0)
            return self.to_one_hot(wanted).to(weights.dtype)

        return self.backward(triggers, targets, weights, finish, branches)

    def backward(
        self, triggers: Tensor, targets: Tensor, weights: Tensor, finish: Finish, branches: float = 1.0
    ) -> Tensor:
        """The results of `finish` on parts of the rows, concatenated."""
        embed = self.reader.network.get_input_embeddings()
        m = targets.shape[1]
        self._check_decoder()
        decoder = self._decoder or (self._damper(triggers, targets) if branches < 1 else None)

        @torch.enable_grad()
        def work(part: slice) -> Tensor:
            read = self.layout.inputs(triggers[part], targets[part])
            goals = targets[part]
            embedded: Tensor = embed(read.inputs["input_ids"]).detach().requires_grad_()
            inputs, places = {**read.inputs, "inputs_embeds": embedded}, read.positions
            del inputs["input_ids"]
            if decoder:
                # What all rows begin with needs no gradient and is read once; its last token predicts a token
                # of a target if nothing stands between.
                b = max(0, len(self.layout.before) - 1)
                past = decoder.past(self.layout.before[None, :b]) if b else None
                inputs = {"inputs_embeds": embedded[:, b:], "decoder": decoder, "past": past}
                inputs["branches"] = branches
                places = places - b * torch.arange(1, len(places) + 1, device=places.device)[:, None]
            logs = self.reader.log_softmax(inputs, places.flatten()).view(*goals.shape, -1)
            chosen = logs.gather(2, goals.clamp(min=0)[:, :, None]).squeeze(2)
            total = (chosen * weights[part]).masked_fill(goals == NO_TOKEN, 0.0).sum()
            (by_token,) = torch.autograd.grad(total, embedded)
            return finish(part, read, by_token, logs.detach())

        length = self.layout.around + triggers.shape[1] + m
        return self.reader.in_parts(len(targets), length, self.reader.need.learning(length, m), work)

    def to_one_hot(self, gradient: Tensor) -> Tensor:
        """(..., size) -> (..., vocabulary): the embedding is linear in the one-hot input, so the gradient of
        the embedded tokens times the table of all embedded tokens is the one-hot gradient."""
        embed = self.reader.network.get_input_embeddings()
        table: Tensor = embed.weight.detach()
        if type(embed) is not nn.Embedding:  # some scale the vectors
            table = embed(torch.arange(len(table), device=table.device)).detach()
        return gradient @ table.t()

    def _check_decoder(self) -> None:
        """After an adapter was put into the network, the ways to read it are chosen again."""
        if self._decoder is not None and not self._decoder.is_current():
            self.shares, self._decoder = None, None
        if self._damping and not self._damping.is_current():
            self._damping = None

    @torch.no_grad()
    def _damper(self, triggers: Tensor, targets: Tensor) -> Decoder | None:
        """The decoder for damped gradients, if its log-probabilities of the first row are the network's."""
        if self._damping is None and (decoder := Decoder.of(self.reader.network)):
            read, counted = self.layout.inputs(triggers[:1], targets[:1]), self.reader.count["tokens"]
            own = {"input_ids": read.inputs["input_ids"], "decoder": decoder, "past": None}
            both = [self.reader.log_softmax(way, read.positions[0]) for way in (own, read.inputs)]
            self.reader.count["tokens"] = counted  # a resumed search checks once more
            self._damping = decoder if self._agree(*both) else False
        return self._damping or None

    def _agree(self, found: Tensor, plain: Tensor) -> bool:
        """Whether log-probabilities differ from the network's by no more than rounding."""
        return float((found - plain).abs().mean()) <= NEAR.get(self.reader.network.dtype, 0.25)

    def _read_whole(
        self, triggers: Tensor, position: int, candidates: Tensor, targets: Tensor
    ) -> TokenScores:
        rows, count = candidates.shape
        every = substituted(triggers, position, candidates)
        found = self.score(every, targets.repeat_interleave(count, dim=0))
        return TokenScores(*(part.view(rows, count, -1) for part in found))

    def _read_tails(
        self, triggers: Tensor, position: int, candidates: Tensor, targets: Tensor
    ) -> TokenScores:
        rows, count = candidates.shape
        m = targets.shape[1]
        shared = len(self.layout.before) + position
        length = self.layout.around + triggers.shape[1] - shared + m - 1
        kept: dict[tuple[int, int], Layers] = {}

        def work(part: slice) -> TokenScores:
            group = slice(part.start // count, (part.stop - 1) // count + 1)
            own, size = candidates[group], part.stop - part.start
            if own.numel() > size:  # a part of one row's
                own = own[:, part.start % count : part.start % count + size]
            if (group.start, group.stop) not in kept:
                kept.clear()
                heads = self.layout.heads(triggers[group], position)
                kept[group.start, group.stop] = self._past(heads)
            tails = self.layout.tails(triggers[group], position, own, targets[group]).flatten(0, 1)
            ends = torch.arange(1, len(tails) + 1, device=tails.device)[:, None] * length
            places = ends - torch.arange(m, 0, -1, device=tails.device)  # the last m of each row
            goals = targets[group, None].expand(-1, own.shape[1], -1).flatten(0, 1)
            past = kept[group.start, group.stop]
            if self._decoder is not None:
                more = {"decoder": self._decoder, "past": past}
                return self._scores({"input_ids": tails, **more}, places, goals)
            with self._way(self.reader.network, past, tails) as more:
                return self._scores({"input_ids": tails, **more}, places, goals)

        found = self._run(rows * count, length, shared, m, work, count)
        return TokenScores(*(part.view(rows, count, m) for part in found))

    def _past(self, ids: Tensor) -> Layers:
        """The keys and values of (rows, length) ids; the logits of one position are computed."""
        if self._decoder is not None:
            self.reader.count["tokens"] += ids.numel()
            return self._decoder.past(ids)
        first = torch.zeros(1, dtype=torch.long, device=ids.device)
        return layers_of(self.reader.run({"input_ids": ids, "use_cache": True}, first, whole=False)[2])

    def _scores(self, inputs: dict[str, Any], places: Tensor, goals: Tensor) -> TokenScores:
        """The scores of `goals` (rows, m); 0 and True for padding."""
        there = goals != NO_TOKEN
        if goals.is_cuda:  # selecting tokens would make the processor wait
            scores, flags = self.reader.scores(inputs, places.flatten(), goals.clamp(min=0).flatten())
            return TokenScores(scores.view_as(goals).masked_fill(~there, 0.0), flags.view_as(goals) | ~there)
        scores, flags = self.reader.scores(inputs, places[there], goals[there])
        log_probs = scores.new_zeros(goals.shape).masked_scatter_(there, scores)
        return TokenScores(log_probs, (~there).masked_scatter_(there, flags))

    def _run(self, total: int, length: int, shared: int, m: int, work: Work, whole: int = 1) -> TokenScores:
        network, stored = self.reader.network, 0 if self.reader.is_linear else m
        log_probs = torch.zeros(total, m, dtype=wide(network.dtype), device=network.device)
        found = TokenScores(log_probs, torch.ones(total, m, dtype=torch.bool, device=network.device))

        def fill(part: slice) -> None:
            found.log_probs[part], found.is_argmax[part] = work(part)

        row_bytes = self.reader.need.substituting(length, shared, stored)
        run_parts(total, length, row_bytes, fill, network.device, whole)
        return found

    def _is_right(self, triggers: Tensor, position: int, candidates: Tensor, targets: Tensor) -> bool:
        """Whether a few candidates of the first row score alike both ways."""
        few = (triggers[:1], position, candidates[:1, :CHECKED], targets[:1])
        plain = self._read_whole(*few)
        can_decode = self.reader.is_linear and triggers.device.type in DECODED
        decoder = Decoder.of(self.reader.network) if can_decode else None
        ways: list[tuple[Way, Decoder | None]] = [(way, None) for way in WAYS[triggers.device.type]]
        if decoder is not None:
            ways.insert(0, (by_shared_past, decoder))
        for self._way, self._decoder in ways:
            with suppress(Exception):  # the network is a third party's program; another way may work
                if self._agree(self._read_tails(*few).log_probs, plain.log_probs):
                    return True
        return False


class TransformerLanguageModel:
    """A causal network as the language model of a user's inputs: it scores how likely a trigger is. Triggers
    follow the tokens `before` (b,) that start a user's first turn, and each of their tokens is a target.
    `narrow` takes the gradients of a widened network."""

    def __init__(
        self, reader: LogitReader, before: Tensor, narrow: "TransformerLanguageModel | None" = None
    ) -> None:
        self.reader, self.before, self.narrow = reader, before, narrow
        # To a causal network a trigger behind `before` is a target behind an empty trigger.
        self._scorer = TriggerScorer(reader, PromptLayout(before, before[:0], None))

    @torch.no_grad()
    def score(self, inputs: Tensor) -> Tensor:
        return self._scorer.score(inputs[:, :0], inputs).log_probs

    @torch.no_grad()
    def score_substitutions(self, inputs: Tensor, position: int, candidates: Tensor) -> Tensor:
        rows, count = candidates.shape
        length = inputs.shape[1]
        if not inputs.is_cuda and bool((inputs == NO_TOKEN).any()):
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
        if self.narrow is not None:
            return self.narrow.gradient(inputs, weights, positions)
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
