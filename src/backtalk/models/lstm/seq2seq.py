"""The papers' dialogue model: an LSTM encoder, and an LSTM decoder that reads its last word and a context.

The context c_t is the encoder's last output (`last-h`) or an average of its outputs weighted by Luong's
"general" attention, h_dec^T W h_enc. The papers feed c_t *into* the decoder, so its query is the decoder's
state before the word.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.data.vocabulary import BOS, EOS, PAD
from backtalk.models.gpu.fused import kernels_for
from backtalk.models.lstm.cell import LSTMStack, State


@dataclass(frozen=True)
class Seq2SeqConfig:
    """Sizes and variants; the default sizes are the papers'. The last four variants are those of models that
    reproduce the papers."""

    vocabulary: int
    embedding: int = 300
    hidden: int = 600
    layers: int = 1
    dropout: float = 0.0
    attention: bool = True
    """Luong "general" attention; otherwise the encoder's last output is the context (last-h)."""
    pad_as_word: bool = False
    """<pad> is read like a word; otherwise it leaves no trace."""
    shared_embedding: bool = False
    """One embedding for encoder and decoder."""
    zero_start: bool = False
    """The decoder starts from zeros, not from the encoder's last state."""
    ended_input: bool = False
    """The encoder reads <eos> after the input."""


class Memory(NamedTuple):
    """The encoder's outputs, for `rows` = groups x per_group rows.

    Outputs for words that all rows of a group share are kept once per group; each row's own follow. For
    last-h both are empty and `context` holds the gates' part of the constant context. Where attention is a
    kernel the keys are the values themselves.
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
        """Any rows in any order; shared outputs are copied to each row."""
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

    def token_log_probs(self, inputs: Tensor, replies: Tensor) -> Tensor:
        """(batch, m): log P(y_t | y_<t, x) under teacher forcing, 0 where padded; differentiable."""
        state, _ = self.read(self.embed_input(inputs), self.keep_mask(inputs))
        return self.write(state, replies)

    def reply_logits(self, inputs: Tensor, replies: Tensor) -> Tensor:
        """(batch, m, V): of every word at each position of the replies; differentiable."""
        state, _ = self.read(self.embed_input(inputs), self.keep_mask(inputs))
        return self.logits(state, replies)

    def read(self, embedded: Tensor, keep: Tensor | None = None) -> tuple[DecoderState, Tensor]:
        """Runs the encoder on vectors (batch, n, E), of words or of anything else: the decoder's first state,
        and the outputs (batch, n, H). Differentiable."""
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
        """(batch, m, V): of every word at each position of the replies; differentiable."""
        rate = self.config.dropout
        words = self.embed_output(F.pad(replies[:, :-1], (1, 0), value=BOS))
        gates = self.decoder.project(F.dropout(words, rate, self.training))  # (batch, m, 4H)
        tops = []
        for t in range(replies.shape[1]):
            state = self.step(gates[:, t], state)
            tops.append(state.lstm.top)
        logits: Tensor = self.output(F.dropout(torch.stack(tops, dim=1), rate, self.training))
        return logits

    # --- decoding ------------------------------------------------------------------------------------

    def start(self, inputs: Tensor) -> DecoderState:
        return self.encode(inputs, inputs.shape[1], inputs[:, None, inputs.shape[1] :])

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

    def encode(self, inputs: Tensor, position: int, suffix: Tensor) -> DecoderState:
        """Reads `inputs` up to `position` once per group, then each row's own `suffix` (groups, count, s)."""
        count = suffix.shape[1]
        prefix = inputs[:, :position]
        if self.config.ended_input and suffix.shape[2]:
            suffix = F.pad(suffix, (0, 1), value=EOS)
        elif self.config.ended_input:
            prefix = F.pad(prefix, (0, 1), value=EOS)
        # Triggers hold no padding: on a CPU one check is cheaper than masking every step; on a GPU masks cost
        # little, and the check would make the CPU wait.
        padded = inputs.is_cuda or bool((prefix == PAD).any()) or bool((suffix == PAD).any())
        prefix_keep = self.keep_mask(prefix) if padded else None
        zero = self.encoder.zero_state(len(inputs))
        shared, state = self.encoder.run(self.encoder.project(self.embed_input(prefix)), zero, prefix_keep)
        if not suffix.shape[2]:
            return self.begin(state, self._remember(shared[:, :0], None, shared, prefix_keep, state))
        # Only the substituted word differs between the rows of a group: the others are projected once.
        first = self.encoder.project(self.embed_input(suffix[:, :, 0]))  # (groups, count, 4H)
        later = self.encoder.project(self.embed_input(suffix[:, 0, 1:]))  # (groups, s - 1, 4H)
        keep = self.keep_mask(suffix.flatten(0, 1)) if padded else None
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
        """The decoder's first state after the encoder's last."""
        first = self.decoder.zero_state(len(last.top)) if self.config.zero_start else last
        return DecoderState(first, memory, per_group)

    def keep_mask(self, words: Tensor) -> Tensor | None:
        return None if self.config.pad_as_word else words != PAD

    def _remember(
        self, shared: Tensor, shared_keep: Tensor | None, own: Tensor, keep: Tensor | None, last: State
    ) -> Memory:
        if self.attend is None:
            # The context never changes: its part of the gates is computed once.
            none, nothing = own[:, :0], shared[:, :0]
            return Memory(nothing, nothing, None, none, none, None, self.from_context(last.top))
        # Where h_dec^T W is formed at every word, outputs are kept once and not their keys too.
        if kernels_for(own, "attend") is not None and not torch.is_grad_enabled():
            return Memory(shared, shared, shared_keep, own, own, keep, None)
        return Memory(self.attend(shared), shared, shared_keep, self.attend(own), own, keep, None)

    def _context_gates(self, state: DecoderState) -> Tensor:
        memory = state.memory
        if memory.context is not None:
            return memory.context
        query, count = state.lstm.top, state.per_group
        kernels = kernels_for(query, "attend")
        if kernels is not None and memory.keys is memory.values:
            assert self.attend is not None
            query, parts = query @ self.attend.weight, (memory.shared_values, memory.values)
            gates: Tensor = self.from_context(
                kernels.attend(query, *parts, count, memory.shared_keep, memory.keep)
            )
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
