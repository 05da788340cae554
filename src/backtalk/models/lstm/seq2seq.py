"""The papers' dialogue model: an LSTM encoder, and an LSTM decoder that reads its last word and a context.

The context c_t is the encoder's last output (`last-h`) or an average of its outputs weighted by Luong's
"general" attention, h_dec^T W h_enc. The papers feed c_t *into* the decoder: h_dec is before the word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.data.vocabulary import BOS, EOS, PAD
from backtalk.models.gpu.fused import kernels_for
from backtalk.models.lstm.cell import LSTMStack, State
from backtalk.models.lstm.language_model import LanguageModelConfig


@dataclass(frozen=True)
class Seq2SeqConfig(LanguageModelConfig):
    """Sizes and variants. The last four variants are those of models that reproduce the papers."""

    attention: bool = True  # Luong's "general"; otherwise the encoder's last output is the context (last-h)
    pad_as_word: bool = False  # <pad> is read like a word; otherwise it leaves no trace
    shared_embedding: bool = False  # one embedding for encoder and decoder
    zero_start: bool = False  # the decoder starts from zeros, not from the encoder's last state
    ended_input: bool = False  # the encoder reads <eos> after the input


class Encoded(NamedTuple):
    """Encoder outputs that the decoder attends to."""

    values: Tensor  # (rows, n, H)
    keys: Tensor | None  # (rows, n, H); None for the attention kernel, which needs none
    keep: Tensor | None  # (rows, n), False where padded

    def select(self, rows: Tensor | slice) -> Encoded:
        return Encoded(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]


class DecoderState(NamedTuple):
    """A state of `rows` = groups x per_group rows. Outputs for words that all rows of a group share are kept
    once per group. With last-h there are no outputs, and `context` is the constant context's part of the
    gates (rows, 4H)."""

    lstm: State
    own: Encoded | None
    shared: Encoded | None = None
    context: Tensor | None = None
    per_group: int = 1

    def select(self, rows: Tensor) -> DecoderState:
        """Any rows in any order; shared outputs are copied to each row."""
        return self._select(rows, rows // self.per_group)._replace(per_group=1)

    def first(self, rows: int) -> DecoderState:
        """The first rows, as views; whole groups only."""
        return self._select(slice(rows), slice(rows // self.per_group))

    def _select(self, rows: Tensor | slice, groups: Tensor | slice) -> DecoderState:
        own, shared = self.own and self.own.select(rows), self.shared and self.shared.select(groups)
        context = None if self.context is None else self.context[rows]
        return self._replace(lstm=self.lstm.select(rows), own=own, shared=shared, context=context)


class Seq2Seq(nn.Module):
    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        size, hidden, shared = config.embedding, config.hidden, config.shared_embedding
        self.embed_input = nn.Embedding(config.vocabulary, size)
        self.embed_output = self.embed_input if shared else nn.Embedding(config.vocabulary, size)
        self.encoder = LSTMStack(size, hidden, config.layers, config.dropout)
        self.decoder = LSTMStack(size, hidden, config.layers, config.dropout)
        self.from_context = nn.Linear(hidden, 4 * hidden, bias=False)  # c_t's part of the decoder's input
        self.attend = nn.Linear(hidden, hidden, bias=False) if config.attention else None
        self.output = nn.Linear(hidden, config.vocabulary)

    def start(self, inputs: Tensor) -> DecoderState:
        """The decoder's first state after inputs (batch, n). Differentiable."""
        return self.read(self.embed_input(inputs), self.keep_mask(inputs))[0]

    def read(self, embedded: Tensor, keep: Tensor | None = None) -> tuple[DecoderState, Tensor]:
        """`start` for any vectors (batch, n, E), and the encoder's outputs (batch, n, H)."""
        n = embedded.shape[1]
        if self.config.ended_input:
            embedded = torch.cat([embedded, self.embed_input.weight[EOS].expand(len(embedded), 1, -1)], dim=1)
            keep = None if keep is None else F.pad(keep, (0, 1), value=True)
        gates = self.encoder.project(F.dropout(embedded, self.config.dropout, self.training))
        outputs, last = self.encoder.run(gates, self.encoder.zero_state(len(embedded)), keep)
        return self.begin(last, self._encoded(outputs, keep)), outputs[:, :n]

    def substitute(self, inputs: Tensor, position: int, candidates: Tensor) -> DecoderState:
        """`start` for inputs (groups, n) with each of `candidates` (groups, count) at `position`. The words
        before it are read once per group, and those after it are projected once."""
        before, after = inputs[:, :position], inputs[:, position + 1 :]
        if self.config.ended_input:
            after = F.pad(after, (0, 1), value=EOS)
        count = candidates.shape[1]
        suffix = torch.cat([candidates[:, :, None], after[:, None].expand(-1, count, -1)], dim=2)
        keep_before, keep = self.keep_mask(before), self.keep_mask(suffix.flatten(0, 1))
        first, later = (self.encoder.project(self.embed_input(words)) for words in (candidates, after))
        zero = self.encoder.zero_state(len(inputs))
        shared, state = self.encoder.run(self.encoder.project(self.embed_input(before)), zero, keep_before)
        outputs = []
        for last in self.encoder.fork(first, later, state, keep):
            outputs.append(last.top)
        own = self._encoded(torch.stack(outputs, dim=1), keep)  # (rows, s, H)
        return self.begin(last, own, self._encoded(shared, keep_before) if position else None, count)

    def begin(
        self, last: State, own: Encoded | None, shared: Encoded | None = None, per_group: int = 1
    ) -> DecoderState:
        """The decoder's first state after the encoder's last."""
        first = self.decoder.zero_state(len(last.top)) if self.config.zero_start else last
        if self.attend is not None:
            return DecoderState(first, own, shared, None, per_group)
        return DecoderState(first, None, None, self.from_context(last.top), per_group)

    def keep_mask(self, words: Tensor) -> Tensor | None:
        """False where padded; None if every word counts. On a CPU one check is cheaper than masking every
        step; on a GPU masks cost little, and the check would make the CPU wait."""
        keep = words != PAD
        return None if self.config.pad_as_word or (not words.is_cuda and bool(keep.all())) else keep

    def _encoded(self, values: Tensor, keep: Tensor | None) -> Encoded:
        # The attention kernel multiplies the query by W at every word, so it needs no keys.
        needed = torch.is_grad_enabled() or kernels_for(values, "attend") is None
        return Encoded(values, self.attend(values) if self.attend is not None and needed else None, keep)

    def token_log_probs(self, inputs: Tensor, replies: Tensor) -> Tensor:
        """(batch, m): log P(y_t | y_<t, x) under teacher forcing, 0 where padded; differentiable."""
        return self.write(self.start(inputs), replies)

    def write(self, state: DecoderState, replies: Tensor) -> Tensor:
        """`token_log_probs` from the decoder's first state."""
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

    def next(self, words: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Feeds one word a row; returns the next word's logits (rows, V) and the new state."""
        state = self.step(self.decoder.project(self.embed_output(words)), state)
        return self.output(state.lstm.top), state

    def step(
        self, gates: Tensor, state: DecoderState, repeat: int = 1, index: Tensor | None = None
    ) -> DecoderState:
        """`gates`: the projected words, as `LSTMStack.step` takes them; the context is added here."""
        context = self._context_gates(state) if state.context is None else state.context
        return state._replace(lstm=self.decoder.step(gates, state.lstm, repeat, index, context))

    def _context_gates(self, state: DecoderState) -> Tensor:
        """(rows, 4H): the part of the gates that comes from attention."""
        own, shared, query, count = state.own, state.shared, state.lstm.top, state.per_group
        assert self.attend is not None
        assert own is not None
        kernels = kernels_for(query, "attend")
        if kernels is not None and own.keys is None:
            before = own.values[:, :0] if shared is None else shared.values
            masks = (None if shared is None else shared.keep, own.keep)
            context = kernels.attend(query @ self.attend.weight, before, own.values, count, *masks)
        else:
            assert own.keys is not None
            scores = torch.bmm(own.keys, query[:, :, None]).squeeze(2)  # (rows, s)
            if own.keep is not None:
                scores = scores.masked_fill(~own.keep, -torch.inf)
            if shared is None or shared.keys is None:
                context = torch.bmm(scores.softmax(dim=1)[:, None], own.values).squeeze(1)  # (rows, H)
            else:
                grouped, p = query.view(-1, count, query.shape[1]), shared.keys.shape[1]
                before = torch.bmm(grouped, shared.keys.transpose(1, 2))  # (groups, count, p)
                if shared.keep is not None:
                    before = before.masked_fill(~shared.keep[:, None], -torch.inf)
                weights = torch.cat([before.flatten(0, 1), scores], dim=1).softmax(dim=1)
                context = torch.bmm(weights[:, None, p:], own.values).squeeze(1)
                heads = weights[:, :p].reshape(-1, count, p)
                context = context + torch.bmm(heads, shared.values).flatten(0, 1)
        gates: Tensor = self.from_context(context)
        return gates
