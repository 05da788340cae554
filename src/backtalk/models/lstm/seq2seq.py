"""The papers' dialogue model: an LSTM encoder, and an LSTM decoder that reads its last word beside a context.

The context c_t is the encoder's last output (`last-h`) or an average of its outputs weighted by Luong's
"general" attention, h_dec^T W h_enc. As the papers feed c_t *into* the decoder, its query is the decoder's
state before the word. The decoder starts from the encoder's last state, or from zeros (`zero_start`), so that
c_t alone tells it of the input; <eos> may follow the input's last word (`ended_input`). The papers leave both
open, their public code does both. Padding is read like a word (`pad_as_word`) or leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.weak import WeakTensorKeyDictionary

from backtalk.data.vocabulary import BOS, EOS, PAD
from backtalk.models.device import wide
from backtalk.models.gpu.fused import kernels_for
from backtalk.models.lstm.cell import LSTMStack, State
from backtalk.models.lstm.scoring import score_targets
from backtalk.models.lstm.softmax import chunk_rows
from backtalk.types import Floor, TokenScores


@dataclass(frozen=True)
class Seq2SeqConfig:
    """Sizes and variants of the dialogue model; the sizes' defaults are the papers'."""

    vocabulary: int
    embedding: int = 300
    hidden: int = 600
    layers: int = 1
    dropout: float = 0.0
    attention: bool = True
    """Luong "general" attention; otherwise the encoder's last output is the context (last-h)."""
    pad_as_word: bool = False
    """Read <pad> like a word, as the papers do; otherwise it leaves no trace."""
    shared_embedding: bool = False
    """One embedding for encoder and decoder: a smaller file."""
    zero_start: bool = False
    """The decoder starts from zeros, not from the encoder's last state."""
    ended_input: bool = False
    """<eos> is read after the input."""


class Memory(NamedTuple):
    """What the decoder looks back on, for `rows` = groups x per_group rows.

    The outputs for the words that all rows of a group share are kept once a group; each row's own follow.
    For last-h both are empty and `context` holds the gates' share of the constant context. Where attention is
    a kernel the keys are the values themselves.
    """

    shared_keys: Tensor  # (groups, p, H)
    shared_values: Tensor
    shared_keep: Tensor | None  # (groups, p), False where padded
    keys: Tensor  # (rows, s, H)
    values: Tensor
    keep: Tensor | None  # (rows, s)
    context: Tensor | None  # (rows, 4H)

    def first(self, rows: int, per_group: int) -> Memory:
        return self._map(lambda part: part[: rows // per_group], lambda part: part[:rows])

    def select(self, rows: Tensor, per_group: int) -> Memory:
        """Any rows in any order; what was shared is copied to each row."""
        return self._map(lambda part: part[rows // per_group], lambda part: part[rows])

    def _map(self, shared: Callable[[Tensor], Tensor], own: Callable[[Tensor], Tensor]) -> Memory:
        values, shared_values = own(self.values), shared(self.shared_values)
        same = self.keys is self.values
        return Memory(
            shared_values if same else shared(self.shared_keys),
            shared_values,
            None if self.shared_keep is None else shared(self.shared_keep),
            values if same else own(self.keys),
            values,
            None if self.keep is None else own(self.keep),
            None if self.context is None else own(self.context),
        )


class DecoderState(NamedTuple):
    lstm: State
    memory: Memory
    per_group: int = 1
    """Neighbouring rows that share a part of the memory."""

    def select(self, rows: Tensor) -> DecoderState:
        return DecoderState(self.lstm.select(rows), self.memory.select(rows, self.per_group), 1)

    def first(self, rows: int) -> DecoderState:
        """The first rows, as views; whole groups only."""
        return DecoderState(self.lstm.first(rows), self.memory.first(rows, self.per_group), self.per_group)


class Seq2Seq(nn.Module):
    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        size, hidden = config.embedding, config.hidden
        self.embed_input = nn.Embedding(config.vocabulary, size)
        self.embed_output = (
            self.embed_input if config.shared_embedding else nn.Embedding(config.vocabulary, size)
        )
        self.encoder = LSTMStack(size, hidden, config.layers, config.dropout)
        self.decoder = LSTMStack(size, hidden, config.layers, config.dropout)
        self.from_context = nn.Linear(hidden, 4 * hidden, bias=False)  # c_t's part of the decoder's input
        self.attend = nn.Linear(hidden, hidden, bias=False) if config.attention else None
        self.output = nn.Linear(hidden, config.vocabulary)
        self._orders: MutableMapping[Tensor, tuple[int, Tensor, list[int]]] = WeakTensorKeyDictionary()

    def token_log_probs(self, inputs: Tensor, replies: Tensor) -> Tensor:
        """(batch, m): log P(y_t | y_<t, x) under teacher forcing, 0 where padded; differentiable."""
        state, _ = self.read(self.embed_input(inputs), self._keep(inputs))
        return self.write(state, replies)

    def reply_logits(self, inputs: Tensor, replies: Tensor) -> Tensor:
        """(batch, m, V): of every word in each place of the replies to inputs; differentiable."""
        state, _ = self.read(self.embed_input(inputs), self._keep(inputs))
        return self.logits(state, replies)

    def read(self, embedded: Tensor, keep: Tensor | None = None) -> tuple[DecoderState, Tensor]:
        """The encoder on embedded words (batch, n, E), which need not be those of real words: the state that
        the decoder starts from, and the outputs (batch, n, H). Differentiable."""
        n = embedded.shape[1]
        if self.config.ended_input:
            end = self.embed_input.weight[EOS].expand(len(embedded), 1, -1)
            embedded = torch.cat([embedded, end], dim=1)
            keep = None if keep is None else F.pad(keep, (0, 1), value=True)
        gates = self.encoder.project(F.dropout(embedded, self.config.dropout, self.training))
        outputs, last = self.encoder.run(gates, self.encoder.zero_state(len(embedded)), keep)
        return self.begin(last, self._remember(outputs[:, :0], None, outputs, keep, last)), outputs[:, :n]

    def write(self, state: DecoderState, replies: Tensor) -> Tensor:
        """(batch, m): the log-probabilities of replies after what was read; differentiable."""
        logits = self.logits(state, replies)
        return -F.cross_entropy(logits.transpose(1, 2), replies, ignore_index=PAD, reduction="none")

    def logits(self, state: DecoderState, replies: Tensor) -> Tensor:
        """(batch, m, V): of every word in each place of the replies; differentiable."""
        rate = self.config.dropout
        words = self.embed_output(F.pad(replies[:, :-1], (1, 0), value=BOS))
        gates = self.decoder.project(F.dropout(words, rate, self.training))  # (batch, m, 4H)
        tops = []
        for t in range(replies.shape[1]):
            state = self.step(gates[:, t], state)
            tops.append(state.lstm.top)
        logits: Tensor = self.output(F.dropout(torch.stack(tops, dim=1), rate, self.training))
        return logits

    # --- the WEIGHTS level of the model protocol, on ids ---------------------------------------------

    @torch.no_grad()
    def score(self, inputs: Tensor, targets: Tensor) -> TokenScores:
        n = inputs.shape[1]
        scores = self._score(inputs, n, inputs[:, None, n:], targets, None)
        return TokenScores(*(part.squeeze(1) for part in scores))

    @torch.no_grad()
    def score_substitutions(
        self, inputs: Tensor, position: int, candidates: Tensor, targets: Tensor, floor: Floor | None = None
    ) -> TokenScores:
        # (batch, count, n - position): each candidate with the words after it
        rest = inputs[:, None, position + 1 :].expand(-1, candidates.shape[1], -1)
        suffix = torch.cat([candidates[:, :, None], rest], dim=2)
        return self._score(inputs, position, suffix, targets, floor)

    def gradient(
        self, inputs: Tensor, targets: Tensor, weights: Tensor, positions: Sequence[int] | None = None
    ) -> Tensor:
        at = list(range(inputs.shape[1])) if positions is None else list(positions)
        embedded = self.embed_input(inputs).detach().requires_grad_()
        with torch.enable_grad():
            log_probs = self.write(self.read(embedded, self._keep(inputs))[0], targets)
            (by_embedding,) = torch.autograd.grad((log_probs * weights).sum(), embedded)
        # The embedding is linear in the one-hot input, so its gradient times E^T is the one-hot gradient.
        there = torch.stack([by_embedding[:, t] for t in at], dim=1)
        gradient: Tensor = there @ self.embed_input.weight.t().detach()
        return gradient.to(weights.dtype)

    # --- decoding ------------------------------------------------------------------------------------

    def start(self, inputs: Tensor) -> DecoderState:
        return self._encode(inputs, inputs.shape[1], inputs[:, None, inputs.shape[1] :])

    def next(self, words: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Feeds one word a row; returns the next word's logits (rows, V) and the new state."""
        state = self.step(self.decoder.project(self.embed_output(words)), state)
        return self.output(state.lstm.top), state

    def step(
        self, gates: Tensor, state: DecoderState, repeat: int = 1, index: Tensor | None = None
    ) -> DecoderState:
        """`gates`: the projected words, as `LSTMStack.step` takes them; the context is added here."""
        context = self._context_gates(state)
        lstm = self.decoder.step(gates, state.lstm, repeat, index, context)
        return DecoderState(lstm, state.memory, state.per_group)

    # --- inside --------------------------------------------------------------------------------------

    def _score(
        self, inputs: Tensor, position: int, suffix: Tensor, targets: Tensor, floor: Floor | None
    ) -> TokenScores:
        """Rows are taken a few groups at a time, so that what is computed together stays in cache."""
        count = suffix.shape[1]
        groups = max(1, chunk_rows(16 * self.config.hidden, inputs.device) // count)
        size = (len(inputs), count, targets.shape[1])
        log_probs = inputs.new_zeros(size, dtype=wide(self.output.weight.dtype))
        is_argmax = torch.ones(log_probs.shape, dtype=torch.bool, device=inputs.device)
        order, lengths = self._by_length(targets)
        for start in range(0, len(inputs), groups):
            rows = order[start : start + groups]
            part = None if floor is None else floor._replace(total=floor.total[rows].expand(-1, count))
            state = self._encode(inputs[rows], position, suffix[rows])
            log_probs[rows], is_argmax[rows] = score_targets(
                self, state, targets[rows], lengths[start : start + groups], count, part
            )
        return TokenScores(log_probs, is_argmax)

    def _by_length(self, targets: Tensor) -> tuple[Tensor, list[int]]:
        """Long targets first: at each word the rows still at work are then the first ones, a view and no
        copy. Remembered while the tensor lives: a search asks at every position, and reading makes a GPU
        wait.
        """
        found = self._orders.get(targets)
        if found is None or found[0] != targets._version:
            lengths = (targets != PAD).sum(1)
            order = lengths.argsort(descending=True, stable=True)
            found = (targets._version, order, lengths[order].tolist())
            self._orders[targets] = found
        return found[1], found[2]

    def _encode(self, inputs: Tensor, position: int, suffix: Tensor) -> DecoderState:
        """Reads `inputs` up to `position` once, then each row's own `suffix` (groups, count, s)."""
        count = suffix.shape[1]
        prefix = inputs[:, :position]
        if self.config.ended_input and suffix.shape[2]:
            suffix = F.pad(suffix, (0, 1), value=EOS)
        elif self.config.ended_input:
            prefix = F.pad(prefix, (0, 1), value=EOS)
        # Triggers hold no padding: on a processor looking once is cheaper than masking every step; on a GPU
        # masks cost little, and looking would make the processor wait.
        padded = inputs.is_cuda or bool((prefix == PAD).any()) or bool((suffix == PAD).any())
        prefix_keep = self._keep(prefix) if padded else None
        zero = self.encoder.zero_state(len(inputs))
        shared, state = self.encoder.run(self.encoder.project(self.embed_input(prefix)), zero, prefix_keep)
        if not suffix.shape[2]:
            return self.begin(state, self._remember(shared[:, :0], None, shared, prefix_keep, state))
        # Only the substituted word differs between the rows of a group: the others are projected once.
        first = self.encoder.project(self.embed_input(suffix[:, :, 0]))  # (groups, count, 4H)
        later = self.encoder.project(self.embed_input(suffix[:, 0, 1:]))  # (groups, s - 1, 4H)
        keep = self._keep(suffix.flatten(0, 1)) if padded else None
        state = state.repeat(count)
        outputs = []
        for t in range(suffix.shape[2]):
            here = None if keep is None else keep[:, t]
            if t == 0:
                state = self.encoder.step(first.flatten(0, 1), state, keep=here)
            else:
                state = self.encoder.step(later[:, t - 1], state, repeat=count, keep=here)
            outputs.append(state.top)
        own = torch.stack(outputs, dim=1)  # (rows, s, H)
        return self.begin(state, self._remember(shared, prefix_keep, own, keep, state), count)

    def begin(self, last: State, memory: Memory, per_group: int = 1) -> DecoderState:
        """Where the decoder starts once the encoder has ended in `last`."""
        first = self.decoder.zero_state(len(last.top)) if self.config.zero_start else last
        return DecoderState(first, memory, per_group)

    def _keep(self, words: Tensor) -> Tensor | None:
        return None if self.config.pad_as_word else words != PAD

    def _remember(
        self, shared: Tensor, shared_keep: Tensor | None, own: Tensor, keep: Tensor | None, last: State
    ) -> Memory:
        if self.attend is None:
            # The context never changes: its part of the gates is computed once.
            none, nothing = own[:, :0], shared[:, :0]
            return Memory(nothing, nothing, None, none, none, None, self.from_context(last.top))
        if self._fuses_attention(own):
            return Memory(shared, shared, shared_keep, own, own, keep, None)
        return Memory(self.attend(shared), shared, shared_keep, self.attend(own), own, keep, None)

    def _fuses_attention(self, outputs: Tensor) -> bool:
        """Whether h_dec^T W is formed at every word, so that outputs are kept once and not their keys too."""
        return kernels_for(outputs, "attend") is not None and not torch.is_grad_enabled()

    def _context_gates(self, state: DecoderState) -> Tensor:
        memory = state.memory
        if memory.context is not None:
            return memory.context
        query, count = state.lstm.top, state.per_group
        kernels = kernels_for(query, "attend")
        if kernels is not None and memory.keys is memory.values:
            assert self.attend is not None
            context = kernels.attend(
                query @ self.attend.weight,
                memory.shared_values,
                memory.values,
                count,
                memory.shared_keep,
                memory.keep,
            )
            gates: Tensor = self.from_context(context)
            return gates
        scores = torch.bmm(memory.keys, query[:, :, None]).squeeze(2)  # (rows, s)
        if memory.keep is not None:
            scores = scores.masked_fill(~memory.keep, -torch.inf)
        p = memory.shared_keys.shape[1]
        if p:
            grouped = query.view(-1, count, query.shape[1])
            before = torch.bmm(grouped, memory.shared_keys.transpose(1, 2))  # (groups, count, p)
            if memory.shared_keep is not None:
                before = before.masked_fill(~memory.shared_keep[:, None], -torch.inf)
            scores = torch.cat([before.flatten(0, 1), scores], dim=1)
        weights = scores.softmax(dim=1)
        context = torch.bmm(weights[:, None, p:], memory.values).squeeze(1)  # (rows, H)
        if p:
            heads = weights[:, :p].reshape(-1, count, p)
            context = context + torch.bmm(heads, memory.shared_values).flatten(0, 1)
        gates = self.from_context(context)
        return gates
