"""A stack of LSTM layers as plain matrix products, shared by encoder, decoder and language model.

A search needs what nn.LSTM hides: the state after every word, the input projection apart from the recurrence
(candidates that differ in one word share the rest), and states that do not change on padding. Gates are in
the order input, forget, output, cell, so that one sigmoid covers three. The cell state of a 16-bit network is
float32, because rounding errors would add up from word to word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from backtalk.models.device import wide
from backtalk.models.gpu.fused import kernels_for


class State(NamedTuple):
    """Hidden and cell vectors, one (rows, hidden) tensor a layer."""

    hidden: tuple[Tensor, ...]
    cell: tuple[Tensor, ...]

    @property
    def top(self) -> Tensor:
        return self.hidden[-1]

    def repeat(self, count: int) -> State:
        return self._map(lambda part: part.repeat_interleave(count, dim=0))

    def select(self, rows: Tensor | slice) -> State:
        return self._map(lambda part: part[rows])

    def _map(self, change: Callable[[Tensor], Tensor]) -> State:
        return State(tuple(map(change, self.hidden)), tuple(map(change, self.cell)))


class LSTMStack(nn.Module):
    """`layers` LSTM layers; dropout acts between them, in training only."""

    def __init__(self, input_size: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.hidden = hidden
        self.dropout = dropout
        sizes = [input_size] + [hidden] * (layers - 1)
        self.weight_input = nn.ParameterList([torch.empty(4 * hidden, size) for size in sizes])
        self.weight_hidden = nn.ParameterList([torch.empty(4 * hidden, hidden) for _ in sizes])
        self.bias = nn.ParameterList([torch.zeros(4 * hidden) for _ in sizes])
        for weight in [*self.weight_input, *self.weight_hidden]:
            nn.init.uniform_(weight, -(hidden**-0.5), hidden**-0.5)

    def zero_state(self, rows: int) -> State:
        hidden = self.bias[0].new_zeros(rows, self.hidden)
        cell = hidden.to(wide(hidden.dtype))
        return State((hidden,) * len(self.bias), (cell,) * len(self.bias))

    def project(self, inputs: Tensor) -> Tensor:
        """The first layer's gates before the recurrent part: (..., input size) -> (..., 4 hidden)."""
        return F.linear(inputs, self.weight_input[0], self.bias[0])

    def step(
        self,
        gates: Tensor,
        state: State,
        repeat: int = 1,
        index: Tensor | None = None,
        added: Tensor | None = None,
        keep: Tensor | None = None,
    ) -> State:
        """One word: `gates` (rows / repeat, 4 hidden) of `project`, each for `repeat` neighbours or selected
        by `index` (rows,), plus `added` (rows, 4 hidden). Rows where `keep` is False do not change."""
        new: list[tuple[Tensor, Tensor]] = []
        for layer, old in enumerate(zip(*state, strict=True)):
            if layer:
                below = F.dropout(new[-1][0], self.dropout, self.training)
                gates = F.linear(below, self.weight_input[layer], self.bias[layer])
                repeat, index, added = 1, None, None
            kernels, weight = kernels_for(gates, "cell"), self.weight_hidden[layer].t()
            if kernels is not None and not torch.is_grad_enabled():
                h, c = kernels.lstm_cell(old[0] @ weight, old[1], gates, repeat, index, added, keep, old[0])
            else:
                own = gates[index] if index is not None else gates
                own = own.repeat_interleave(repeat, dim=0) if repeat > 1 else own
                own = torch.addmm(own if added is None else own + added, old[0], weight)
                h, c = _cell(own, *old) if kernels is None else kernels.LSTMCell.apply(own, old[1])
                if keep is not None:
                    h, c = (torch.where(keep[:, None], a, b) for a, b in zip((h, c), old, strict=True))
            new.append((h, c))
        return State(*zip(*new, strict=True))

    def run(self, gates: Tensor, state: State, keep: Tensor | None = None) -> tuple[Tensor, State]:
        """Many words: `gates` (rows, length, 4 hidden) -> the top outputs (rows, length, hidden) and the last
        state. Where `keep` (rows, length) is False the state does not change."""
        outputs: list[Tensor] = []
        for t in range(gates.shape[1]):
            state = self.step(gates[:, t], state, keep=None if keep is None else keep[:, t])
            outputs.append(state.top)
        if not outputs:
            return gates.new_zeros(gates.shape[0], 0, self.hidden), state
        return torch.stack(outputs, dim=1), state

    def fork(self, first: Tensor, later: Tensor, state: State, keep: Tensor | None = None) -> Iterator[State]:
        """States of `count` rows a group after each word: `first` (groups, count, 4 hidden) differs between
        the rows, `later` (groups, s, 4 hidden) is shared by those of a group."""
        count = first.shape[1]
        state = state.repeat(count)
        for t in range(1 + later.shape[1]):
            gates, repeat = (later[:, t - 1], count) if t else (first.flatten(0, 1), 1)
            state = self.step(gates, state, repeat, keep=None if keep is None else keep[:, t])
            yield state


def _cell(gates: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """In place where no gradient is needed: a search spends its time here."""
    exact = torch.is_grad_enabled()
    sigmoid, tanh = (torch.sigmoid, torch.tanh) if exact else (torch.sigmoid_, torch.tanh_)
    multiply = torch.mul if exact else Tensor.mul_
    gates, size = gates.to(cell.dtype), 3 * cell.shape[1]
    i, f, o = sigmoid(gates[:, :size]).chunk(3, dim=1)
    g = tanh(gates[:, size:])
    cell = torch.addcmul(multiply(f, cell), i, g)
    return multiply(torch.tanh(cell), o).to(hidden.dtype), cell
