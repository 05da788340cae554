"""Scores of targets under the seq2seq, for many inputs that share a target or differ in one word.

Rows come in groups of neighbours that share a target. Groups are sorted, long targets first, so the rows that
still have a word to score are always the first ones. Rows that fall below a floor are dropped.
"""

from collections.abc import MutableMapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from backtalk.data.vocabulary import BOS, PAD
from backtalk.models.device import wide
from backtalk.models.lstm.seq2seq import DecoderState, Seq2Seq
from backtalk.models.lstm.softmax import chunk_rows, target_scores
from backtalk.types import Floor, TokenScores

SHRINK_BELOW = 0.8  # rows are copied together once less than this share of them is alive: copying is not free
_ORDERS: MutableMapping[Tensor, tuple[int, Tensor, list[int]]] = WeakTensorKeyDictionary()


class TargetScorer:
    """The WEIGHTS level of the model protocol for one network, on ids."""

    def __init__(self, network: Seq2Seq) -> None:
        self.network = network

    def score(self, inputs: Tensor, targets: Tensor) -> TokenScores:
        return TokenScores(*(part.squeeze(1) for part in self.score_substitutions(inputs, 0, None, targets)))

    @torch.no_grad()
    def score_substitutions(
        self,
        inputs: Tensor,
        position: int,
        candidates: Tensor | None,
        targets: Tensor,
        floor: Floor | None = None,
    ) -> TokenScores:
        """A few groups at a time, which stay in cache. Without candidates the inputs are groups of one."""
        network, count = self.network, 1 if candidates is None else candidates.shape[1]
        groups = max(1, chunk_rows(16 * network.config.hidden, inputs.device) // count)
        size = (len(inputs), count, targets.shape[1])
        log_probs = inputs.new_zeros(size, dtype=wide(network.output.weight.dtype))
        is_argmax = torch.ones(size, dtype=torch.bool, device=inputs.device)
        order, lengths = _by_length(targets)
        for start in range(0, len(inputs), groups):
            rows = order[start : start + groups]
            part = None if floor is None else floor._replace(total=floor.total[rows].expand(-1, count))
            if candidates is None:
                state = network.start(inputs[rows])
            else:
                state = network.substitute(inputs[rows], position, candidates[rows])
            found = score_targets(network, state, targets[rows], lengths[start : start + groups], part)
            log_probs[rows], is_argmax[rows] = found
        return TokenScores(log_probs, is_argmax)

    def gradient(
        self,
        inputs: Tensor,
        targets: Tensor,
        weights: Tensor,
        positions: Sequence[int] | None = None,
        branches: float = 1.0,
    ) -> Tensor:
        at = list(range(inputs.shape[1])) if positions is None else list(positions)
        network = self.network
        embedded = network.embed_input(inputs).detach().requires_grad_()
        with torch.enable_grad():
            log_probs = network.write(network.read(embedded, network.keep_mask(inputs))[0], targets)
            (by_embedding,) = torch.autograd.grad((log_probs * weights).sum(), embedded)
        # The embedding is linear in the one-hot input, so its gradient times E^T is the one-hot gradient.
        there = torch.stack([by_embedding[:, t] for t in at], dim=1)
        return (there @ network.embed_input.weight.t().detach()).to(weights.dtype)


def _by_length(targets: Tensor) -> tuple[Tensor, list[int]]:
    """The rows with long targets first, and the lengths in that order. Cached while the tensor lives: a
    search asks at every position, and a GPU would have to wait."""
    found = _ORDERS.get(targets)
    if found is None or found[0] != targets._version:
        lengths = (targets != PAD).sum(1)
        order = lengths.argsort(descending=True, stable=True)
        found = _ORDERS[targets] = (targets._version, order, lengths[order].tolist())
    return found[1], found[2]


def score_targets(
    network: Seq2Seq, state: DecoderState, targets: Tensor, lengths: list[int], floor: Floor | None = None
) -> TokenScores:
    """`targets` (groups, m), their `lengths` falling -> (groups, rows of a group, m) each."""
    groups, m = targets.shape
    count, weight = state.per_group, network.output.weight
    log_probs = weight.new_zeros(groups * count, m, dtype=wide(weight.dtype))
    is_argmax = torch.ones(groups * count, m, dtype=torch.bool, device=targets.device)
    words = network.decoder.project(network.embed_output(F.pad(targets[:, :-1], (1, 0), value=BOS)))
    if floor is None:
        for t in range(lengths[0]):
            alive = sum(length > t for length in lengths)
            state = network.step(words[:alive, t], state.first(alive * count), repeat=count)
            goal = targets[:alive, t].repeat_interleave(count)
            part = slice(0, alive * count)
            log_probs[part, t], is_argmax[part, t] = target_scores(state.lstm.top, network.output, goal)
    else:
        sizes = torch.tensor(lengths, device=targets.device).repeat_interleave(count)
        _score_above(network, state, targets, words, sizes, floor, TokenScores(log_probs, is_argmax))
    padded = (targets == PAD)[:, None]
    log_probs = log_probs.view(groups, count, m).masked_fill_(padded, 0.0)
    return TokenScores(log_probs, is_argmax.view(groups, count, m).masked_fill_(padded, True))


def _score_above(
    network: Seq2Seq,
    state: DecoderState,
    targets: Tensor,
    words: Tensor,
    sizes: Tensor,
    floor: Floor,
    found: TokenScores,
) -> None:
    """Fills `found` (rows, m); rows with targets of `sizes` are dropped (-inf, False) below the floor."""
    rows, bound, count = torch.arange(len(sizes), device=sizes.device), floor.total.flatten(), state.per_group
    counted = torch.zeros_like(bound)
    for t in range(int(sizes[0])):
        alive = (sizes[rows] > t) & (counted[rows] >= bound[rows])
        dropped = rows[(sizes[rows] > t) & ~alive]
        found.log_probs[dropped, t:] = -torch.inf
        found.is_argmax[dropped, t:] = False
        kept = int(alive.sum())
        if not kept:
            return
        if kept < SHRINK_BELOW * len(rows):
            index = alive.nonzero().squeeze(1)
            state, rows, alive = state.select(index), rows[index], alive[index]
        group = rows // count
        state = network.step(words[:, t], state, index=group)
        scores, flags = target_scores(state.lstm.top, network.output, targets[group, t])
        here = rows[alive]
        found.log_probs[here, t] = scores[alive]
        found.is_argmax[here, t] = flags[alive]
        spared = scores >= floor.enough
        if floor.spare_argmax:
            spared |= flags
        counted[here] += scores.masked_fill(spared, 0.0)[alive]
