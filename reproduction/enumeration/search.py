"""Every input of a bounded space and what a model answers to it, greedily (He & Glass 2019, appendix B).

Inputs of exactly `length` symbols are numbered in the order of their symbols and taken a shard at a time: all
inputs that begin with some neighbouring prefixes. A prefix is read once for all inputs below it; a shard is
decoded as one batch that finished rows leave. An answer is packed into one whole number, so the answers to a
billion inputs are three arrays: each distinct answer, how many inputs lead to it, and the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from backtalk.data.vocabulary import BOS, EOS, PAD
from backtalk.errors import InputError
from backtalk.models.device import free_bytes
from backtalk.models.gpu.fused import kernels_for
from backtalk.models.lstm.model import LocalModel
from backtalk.models.lstm.scoring import SHRINK_BELOW
from backtalk.models.lstm.seq2seq import DecoderState, Encoded, Seq2Seq

ROWS = {"cpu": 4_000, "cuda": 2_000_000}
"""The most inputs decoded as one batch, at 200 hidden units; on a processor 30,000 are half as fast."""
LARGEST = torch.iinfo(torch.int64).max


@dataclass(frozen=True)
class Space:
    """All inputs of exactly `length` symbols."""

    symbols: tuple[int, ...]  # word ids; the order of the inputs follows theirs
    length: int

    @property
    def inputs(self) -> int:
        return int(len(self.symbols) ** self.length)

    def ids(self, index: Tensor, length: int | None = None) -> Tensor:
        """(rows,) numbers of inputs, or of prefixes of some length -> (rows, length) word ids."""
        symbols = torch.tensor(self.symbols, device=index.device)
        return symbols[unpack(index, len(symbols), self.length if length is None else length)]


def unpack(numbers: Tensor, base: int, digits: int) -> Tensor:
    """(rows,) -> (rows, digits): the digits in that base, the most significant first."""
    places = [base**place for place in reversed(range(digits))]
    parts = [numbers.div(place, rounding_mode="floor") % base for place in places]
    return torch.stack(parts, dim=1) if parts else numbers.new_empty(len(numbers), 0)


class Outputs(NamedTuple):
    """The distinct answers of some inputs, sorted by code. (distinct,) each."""

    codes: Tensor  # word ids as the digits of a number in base V: with <eos>, then <pad> to the longest
    counts: Tensor  # how many inputs lead to it
    firsts: Tensor  # the smallest number of such an input

    @classmethod
    def none(cls, device: torch.device) -> Outputs:
        return cls(*(torch.empty(0, dtype=torch.int64, device=device) for _ in range(3)))

    @classmethod
    def merge(cls, parts: Sequence[Outputs]) -> Outputs:
        """Of disjoint sets of inputs; in any order and any grouping the same."""
        codes, counts, firsts = (torch.cat(column) for column in zip(*parts, strict=True))
        distinct, inverse = torch.unique(codes, return_inverse=True)
        total = torch.zeros_like(distinct).index_add_(0, inverse, counts)
        first = torch.full_like(distinct, LARGEST).scatter_reduce_(0, inverse, firsts, "amin")
        return cls(distinct, total, first)

    @classmethod
    def tally(cls, codes: Tensor, index: Tensor) -> Outputs:
        """`codes` (rows,) of the inputs with the numbers `index` (rows,)."""
        return cls.merge([cls(codes, torch.ones_like(codes), index)])


class Enumeration:
    """A model and a space: shards, and the answers to the inputs of each."""

    def __init__(self, model: LocalModel, space: Space) -> None:
        self.model, self.space = model, space
        network, size = model.network, model.vocabulary_size
        if size**model.max_output > LARGEST:
            why = f"{model.name} writes up to {model.max_output} of {size:,} words: too many answers to count"
            raise InputError(f"{why}; enumeration is for models with a small vocabulary")
        if not 0 < space.length <= model.max_input:
            most = f"{model.max_input} words that {model.name} reads"
            raise InputError(f"--length should be from 1 to the {most}")
        if space.inputs > LARGEST:
            raise InputError(f"inputs of length {space.length} are too many to be numbered; shorten --length")
        self.padding = model.max_input - space.length if network.config.pad_as_word else 0
        self.rows = rows_at_once(network, model.max_input)
        self.depth = self._depth()

    def shards(self, start: int = 0) -> Iterator[range]:
        """Neighbouring inputs, a whole number of prefixes each, from the input `start` on."""
        below = self._below()
        step = max(1, self.rows // below) * below
        for first in range(start, self.space.inputs, step):
            yield range(first, min(first + step, self.space.inputs))

    @torch.no_grad()
    def decode_shard(self, shard: range) -> Outputs:
        device, below = self.model.device, self._below()
        prefixes = torch.arange(shard.start // below, shard.stop // below, device=device)
        state = self._read_below(self.space.ids(prefixes, self.depth))
        index = torch.arange(shard.start, shard.stop, device=device)
        return Outputs.tally(self._write(state, len(shard)), index)

    @torch.no_grad()
    def decode_inputs(self, index: Tensor) -> Tensor:
        """(rows,) numbers of any inputs -> (rows,) codes of the answers to them."""
        codes = []
        # Nothing is shared here: the gates of all words are held at once.
        for part in torch.split(index, max(1, self.rows // (2 * self.model.max_input))):
            ids = torch.nn.functional.pad(self.space.ids(part), (0, self.padding), value=PAD)
            codes.append(self._write(self.model.network.start(ids), len(part)))
        return torch.cat(codes)

    def ids(self, codes: Tensor) -> Tensor:
        """(rows,) codes -> (rows, max_output) word ids, <pad> after <eos>."""
        return unpack(codes, self.model.vocabulary_size, self.model.max_output)

    def _depth(self) -> int:
        """Symbols of the prefixes that a shard is made of: as few as leave it small enough."""
        depth, below = self.space.length, 1
        while depth and below * len(self.space.symbols) <= self.rows:
            depth, below = depth - 1, below * len(self.space.symbols)
        return depth

    def _below(self) -> int:
        return int(len(self.space.symbols) ** (self.space.length - self.depth))

    def _read_below(self, prefixes: Tensor) -> DecoderState:
        """Reads every input that begins with `prefixes` (k, depth); level by level each prefix once."""
        network = self.model.network
        encoder = network.encoder
        table = encoder.project(network.embed_input.weight)  # (V, 4H): a word's projection is looked up
        symbols = torch.tensor(self.space.symbols, device=table.device)
        outputs, state = encoder.run(table[prefixes], encoder.zero_state(len(prefixes)))
        levels = list(outputs.unbind(1))
        for _ in range(self.space.length - self.depth):
            state = encoder.step(table, state.repeat(len(symbols)), index=symbols.repeat(len(state.top)))
            levels.append(state.top)
        for word in [PAD] * self.padding + [EOS] * network.config.ended_input:
            state = encoder.step(table[word : word + 1], state, repeat=len(state.top))
            levels.append(state.top)
        return network.begin(state, _remember(network, levels))

    def _write(self, state: DecoderState, rows: int) -> Tensor:
        """(rows,) codes of the greedy answers; as `models.lstm.decode.greedy`, but finished rows leave."""
        network, base = self.model.network, self.model.vocabulary_size
        table = network.decoder.project(network.embed_output.weight)  # (V, 4H)
        codes = torch.zeros(rows, dtype=torch.int64, device=table.device)
        at = torch.arange(rows, device=table.device)
        words = torch.full_like(at, BOS)
        ended = torch.zeros_like(at, dtype=torch.bool)
        for place in reversed(range(self.model.max_output)):
            state = network.step(table, state, index=words)
            # argmax gives the first of equal values, on either device.
            words = network.output(state.lstm.top).argmax(1).masked_fill_(ended, PAD)
            codes[at] += words * base**place
            ended |= words == EOS
            alive = len(at) - int(ended.sum())
            if not alive:
                break
            if alive < SHRINK_BELOW * len(at):
                kept = (~ended).nonzero().squeeze(1)
                state, at, words, ended = state.select(kept), at[kept], words[kept], ended[kept]
        return codes


def rows_at_once(network: Seq2Seq, words: int) -> int:
    """How many inputs are decoded as one batch: what fits, and no more than is of use."""
    config, device = network.config, network.output.weight.device
    rows = ROWS[device.type] * 200 // config.hidden
    if device.type == "cuda":
        # Gates four times over, states three times, the memory of attention twice where rows are copied.
        floats = 16 + 6 * config.layers + (4 * words if config.attention else 4)
        each = 4 * (floats * config.hidden + 3 * config.vocabulary)
        rows = min(rows, free_bytes(device) // 2 // each)
        # Kernels count a tensor's elements in 32 bits.
        rows = min(rows, (2**31 - 1) // (config.hidden * max(4, words)))
    return max(1, rows)


def _remember(network: Seq2Seq, levels: Sequence[Tensor]) -> Encoded | None:
    """What the decoder attends to; `levels` are the outputs for the words, once a prefix."""
    if network.attend is None:
        return None
    rows, values = len(levels[-1]), _spread(levels, len(levels[-1]))
    if kernels_for(values, "attend"):  # it multiplies by W at every word and needs no keys
        return Encoded(values, None, None)
    return Encoded(values, _spread([network.attend(part) for part in levels], rows), None)


def _spread(levels: Sequence[Tensor], rows: int) -> Tensor:
    """Prefixes' vectors (rows / r, H) -> (rows, levels, H)."""
    whole = levels[0].new_empty(rows, len(levels), levels[0].shape[1])
    for place, level in enumerate(levels):
        whole.view(len(level), rows // len(level), *whole.shape[1:])[:, :, place] = level[:, None]
    return whole
