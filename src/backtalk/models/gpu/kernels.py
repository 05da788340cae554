"""Triton kernels of the LSTM models. Plain PyTorch (models/lstm) is the reference and the fallback; fused.py
chooses between them.

LSTM cell: one pass over the gates instead of six. Output layer: the product with the log-sum-exp folded in,
which stores no logits, or one pass over logits that a library's product stored. Attention: each encoder
output is read once. The cell state is always float32.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

NO_TABLE, BY_GROUP, BY_INDEX = 0, 1, 2  # how a row selects its line of the table of input gates


@triton.jit
def _tanh(x):
    return 2.0 * tl.sigmoid(2.0 * x) - 1.0


@triton.jit
def _cell_kernel(
    gates_ptr, table_ptr, index_ptr, added_ptr, cell_ptr, hidden_out, cell_out, saved_ptr, keep_ptr,
    before_ptr, size, per_group,
    H: tl.constexpr, MODE: tl.constexpr, ADDED: tl.constexpr, SAVE: tl.constexpr, KEEP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """i, f, o, g = gates + table line + added; c' = f c + i g; h = o tanh(c'). One element of h each."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    row, column = at // H, at % H
    base = row * (4 * H) + column
    i = tl.load(gates_ptr + base, inside, 0.0).to(tl.float32)
    f = tl.load(gates_ptr + base + H, inside, 0.0).to(tl.float32)
    o = tl.load(gates_ptr + base + 2 * H, inside, 0.0).to(tl.float32)
    g = tl.load(gates_ptr + base + 3 * H, inside, 0.0).to(tl.float32)
    if MODE != 0:
        line = row // per_group if MODE == 1 else tl.load(index_ptr + row, inside, 0)
        from_table = table_ptr + line * (4 * H) + column
        i += tl.load(from_table, inside, 0.0).to(tl.float32)
        f += tl.load(from_table + H, inside, 0.0).to(tl.float32)
        o += tl.load(from_table + 2 * H, inside, 0.0).to(tl.float32)
        g += tl.load(from_table + 3 * H, inside, 0.0).to(tl.float32)
    if ADDED:
        i += tl.load(added_ptr + base, inside, 0.0).to(tl.float32)
        f += tl.load(added_ptr + base + H, inside, 0.0).to(tl.float32)
        o += tl.load(added_ptr + base + 2 * H, inside, 0.0).to(tl.float32)
        g += tl.load(added_ptr + base + 3 * H, inside, 0.0).to(tl.float32)
    i, f, o, g = tl.sigmoid(i), tl.sigmoid(f), tl.sigmoid(o), _tanh(g)
    old = tl.load(cell_ptr + at, inside, 0.0).to(tl.float32)
    cell = f * old + i * g
    hidden = o * _tanh(cell)
    if KEEP:
        stay = tl.load(keep_ptr + row, inside, 1) == 0
        cell = tl.where(stay, old, cell)
        hidden = tl.where(stay, tl.load(before_ptr + at, inside, 0.0).to(tl.float32), hidden)
    tl.store(cell_out + at, cell, inside)
    tl.store(hidden_out + at, hidden, inside)
    if SAVE:
        tl.store(saved_ptr + base, i, inside)
        tl.store(saved_ptr + base + H, f, inside)
        tl.store(saved_ptr + base + 2 * H, o, inside)
        tl.store(saved_ptr + base + 3 * H, g, inside)


@triton.jit
def _cell_backward_kernel(
    saved_ptr, cell_ptr, new_cell_ptr, from_hidden_ptr, from_cell_ptr, to_gates, to_cell, size,
    H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    base = (at // H) * (4 * H) + at % H
    i = tl.load(saved_ptr + base, inside, 0.0).to(tl.float32)
    f = tl.load(saved_ptr + base + H, inside, 0.0).to(tl.float32)
    o = tl.load(saved_ptr + base + 2 * H, inside, 0.0).to(tl.float32)
    g = tl.load(saved_ptr + base + 3 * H, inside, 0.0).to(tl.float32)
    old = tl.load(cell_ptr + at, inside, 0.0).to(tl.float32)
    squashed = _tanh(tl.load(new_cell_ptr + at, inside, 0.0).to(tl.float32))
    by_hidden = tl.load(from_hidden_ptr + at, inside, 0.0).to(tl.float32)
    by_cell = tl.load(from_cell_ptr + at, inside, 0.0).to(tl.float32)
    by_cell += by_hidden * o * (1.0 - squashed * squashed)
    tl.store(to_gates + base, by_cell * g * i * (1.0 - i), inside)
    tl.store(to_gates + base + H, by_cell * old * f * (1.0 - f), inside)
    tl.store(to_gates + base + 2 * H, by_hidden * squashed * o * (1.0 - o), inside)
    tl.store(to_gates + base + 3 * H, by_cell * i * (1.0 - g * g), inside)
    tl.store(to_cell + at, by_cell * f, inside)


@triton.jit
def _attend_kernel(
    query_ptr, shared_ptr, own_ptr, shared_keep_ptr, own_keep_ptr, context_ptr,
    shared_length, own_length, per_group,
    H: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row: softmax over q . v_j for the group's shared v_j and the row's own, then their weighted mean.
    Each v_j is read once (online softmax)."""
    row = tl.program_id(0).to(tl.int64)
    group = row // per_group
    column = tl.arange(0, BLOCK)
    inside = column < H
    query = tl.load(query_ptr + row * H + column, inside, 0.0).to(tl.float32)
    most = -float("inf")
    total = 0.0
    mean = tl.zeros([BLOCK], tl.float32)
    for j in range(shared_length + own_length):
        if j < shared_length:
            place = shared_ptr + (group * shared_length + j) * H
        else:
            place = own_ptr + (row * own_length + j - shared_length) * H
        value = tl.load(place + column, inside, 0.0).to(tl.float32)
        score = tl.sum(query * value, 0)
        if KEEP:
            if j < shared_length:
                there = tl.load(shared_keep_ptr + group * shared_length + j)
            else:
                there = tl.load(own_keep_ptr + row * own_length + j - shared_length)
            score = tl.where(there != 0, score, -1e30)
        larger = tl.maximum(most, score)
        scale = tl.exp(most - larger)
        weight = tl.exp(score - larger)
        total = total * scale + weight
        mean = mean * scale + weight * value
        most = larger
    tl.store(context_ptr + row * H + column, mean / total, inside)


@triton.jit
def _output_kernel(
    hidden, weight, bias_ptr, target_ptr, most_ptr, total_ptr, chosen_ptr, rows, V, TILES_V,
    K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr, BAND: tl.constexpr,
    PROGRAMS: tl.constexpr,
):  # fmt: skip
    """Tiles (BLOCK_M rows, BLOCK_V words) of the logits, one after the other: their row maxima, their sums of
    exp(logit - maximum), and the target's logit where it lies in the tile. No logit is ever written."""
    tiles_m = tl.cdiv(rows, BLOCK_M)
    for tile in tl.range(tl.program_id(0), tiles_m * TILES_V, PROGRAMS, flatten=True):
        # Walked in bands of BAND row blocks: weights and rows are met again while still in cache.
        band = tile // (BAND * TILES_V)
        height = min(tiles_m - band * BAND, BAND)
        m = band * BAND + (tile % (BAND * TILES_V)) % height
        v = (tile % (BAND * TILES_V)) // height
        sums = tl.zeros([BLOCK_M, BLOCK_V], tl.float32)
        for k in range(0, K, BLOCK_K):  # what lies outside the matrices is read as 0
            sums = tl.dot(hidden.load([m * BLOCK_M, k]), weight.load([v * BLOCK_V, k]).T, sums)
        row = m * BLOCK_M + tl.arange(0, BLOCK_M)
        word = v * BLOCK_V + tl.arange(0, BLOCK_V)
        bias = tl.load(bias_ptr + word, word < V, -float("inf")).to(tl.float32)
        logits = sums + bias[None, :]
        most = tl.max(logits, 1)
        total = tl.sum(tl.exp(logits - most[:, None]), 1)
        valid = row < rows
        target = tl.load(target_ptr + row, valid, -1)
        chosen = tl.sum(tl.where(word[None, :] == target[:, None], logits, 0.0), 1)
        here = valid & (target >= v * BLOCK_V) & (target < (v + 1) * BLOCK_V)
        tl.store(most_ptr + v.to(tl.int64) * rows + row, most, valid)
        tl.store(total_ptr + v.to(tl.int64) * rows + row, total, valid)
        tl.store(chosen_ptr + row, chosen, here)


@triton.jit
def _reduce_kernel(logits_ptr, target_ptr, log_prob_ptr, flag_ptr, V, BLOCK: tl.constexpr):
    """One row of stored logits, read once: log P(target), and whether no word is likelier."""
    row = tl.program_id(0).to(tl.int64)
    most = -float("inf")
    total = 0.0
    for start in range(0, V, BLOCK):
        word = start + tl.arange(0, BLOCK)
        logits = tl.load(logits_ptr + row * V + word, word < V, -float("inf")).to(tl.float32)
        larger = tl.maximum(most, tl.max(logits, 0))
        total = total * tl.exp(most - larger) + tl.sum(tl.exp(logits - larger), 0)
        most = larger
    chosen = tl.load(logits_ptr + row * V + tl.load(target_ptr + row)).to(tl.float32)
    tl.store(log_prob_ptr + row, chosen - most - tl.log(total))
    tl.store(flag_ptr + row, chosen >= most)


CELL_BLOCK = 1024
REDUCE_BLOCK = 4096


def lstm_cell(
    gates: Tensor,
    cell: Tensor,
    table: Tensor | None = None,
    per_group: int = 1,
    index: Tensor | None = None,
    added: Tensor | None = None,
    keep: Tensor | None = None,
    before: Tensor | None = None,
    save: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`gates` (rows, 4H) from the recurrence; `table` (lines, 4H) is added by `index` (rows,) or by groups of
    neighbours; `added` (rows, 4H) too. Where `keep` (rows,) is False, `before` and `cell` stay."""
    hidden_out, cell_out = torch.empty_like(cell, dtype=gates.dtype), torch.empty_like(cell)
    table = None if table is None else table.contiguous()
    keep = None if keep is None else keep.contiguous()
    # A kernel needs a pointer for what is missing; it does not read it.
    given = (table, index, added, save, keep, before)
    lines, where, more, saved, stay, old = (gates if one is None else one for one in given)
    mode = NO_TABLE if table is None else BY_GROUP if index is None else BY_INDEX
    _cell_kernel[(triton.cdiv(cell.numel(), CELL_BLOCK),)](
        gates, lines, where, more, cell, hidden_out, cell_out, saved, stay, old, cell.numel(), per_group,
        H=cell.shape[1], MODE=mode, ADDED=added is not None, SAVE=save is not None, KEEP=keep is not None,
        BLOCK=CELL_BLOCK,
    )  # fmt: skip
    return hidden_out, cell_out


class LSTMCell(torch.autograd.Function):
    """The cell with its gradient, for training and for the gradient of a search."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        saved = torch.empty_like(gates)
        gates, cell = gates.contiguous(), cell.contiguous()
        hidden, new = lstm_cell(gates, cell, save=saved)
        ctx.save_for_backward(saved, cell, new)
        return hidden, new

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        saved, cell, new = ctx.saved_tensors
        by_hidden, by_cell = (grad.contiguous() for grad in grads)
        to_gates, to_cell = torch.empty_like(saved), torch.empty_like(cell)
        _cell_backward_kernel[(triton.cdiv(cell.numel(), CELL_BLOCK),)](
            saved, cell, new, by_hidden, by_cell, to_gates, to_cell, cell.numel(),
            H=cell.shape[1], BLOCK=CELL_BLOCK,
        )  # fmt: skip
        return to_gates, to_cell


def attend(
    query: Tensor,
    shared: Tensor,
    own: Tensor,
    per_group: int,
    shared_keep: Tensor | None = None,
    keep: Tensor | None = None,
) -> Tensor:
    """`query` (rows, H), `shared` (rows / per_group, p, H), `own` (rows, s, H) -> the context (rows, H). Both
    masks or none; `shared_keep` may be None if p is 0."""
    rows, hidden = query.shape
    context = torch.empty_like(query)
    block = triton.next_power_of_2(hidden)
    own_mask = query if keep is None else keep
    _attend_kernel[(rows,)](
        query, shared, own, own_mask if shared_keep is None else shared_keep, own_mask, context,
        shared.shape[1], own.shape[1], per_group,
        H=hidden, KEEP=keep is not None, BLOCK=block,
        num_warps=1 if block <= 256 else 2 if block <= 1024 else 4,
    )  # fmt: skip
    return context


def reduce_logits(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """As `output_scores`, from stored logits (rows, V)."""
    log_probs = logits.new_empty(len(logits), dtype=torch.float32)
    is_argmax = torch.empty(len(logits), dtype=torch.bool, device=logits.device)
    _reduce_kernel[(len(logits),)](
        logits, targets.contiguous(), log_probs, is_argmax, logits.shape[1], BLOCK=REDUCE_BLOCK, num_warps=8
    )
    return log_probs, is_argmax


OUTPUT_TILES = {"BLOCK_M": 128, "BLOCK_V": 256, "BLOCK_K": 64, "BAND": 8, "num_warps": 8, "num_stages": 3}
"""Measured best of eight on an H200 (docs/notes)."""


def can_score(hidden: Tensor) -> bool:
    """The output kernel reads rows that begin at multiples of 16 bytes."""
    return hidden.dtype == torch.bfloat16 and hidden.shape[1] % 8 == 0 and len(hidden) > 0


def output_scores(
    hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, **tiles: int
) -> tuple[Tensor, Tensor]:
    """log P(target) in float32 and "is the argmax", each (rows,): `hidden` (rows, K), `weight` (V, K)."""
    rows, size = hidden.shape
    words = weight.shape[0]
    how = {**OUTPUT_TILES, **tiles}
    across = triton.cdiv(words, how["BLOCK_V"])
    most = hidden.new_empty(across, rows, dtype=torch.float32)
    total, chosen = torch.empty_like(most), hidden.new_empty(rows, dtype=torch.float32)
    programs = min(_multiprocessors(hidden.device), across * triton.cdiv(rows, how["BLOCK_M"]))
    _output_kernel[(programs,)](
        TensorDescriptor.from_tensor(hidden.contiguous(), [how["BLOCK_M"], how["BLOCK_K"]]),
        TensorDescriptor.from_tensor(weight, [how["BLOCK_V"], how["BLOCK_K"]]),
        bias, targets.contiguous(), most, total, chosen, rows, words, across,
        K=size, PROGRAMS=programs, **how,
    )  # fmt: skip
    largest = most.amax(0)
    log_total = (total * (most - largest).exp_()).sum(0).log_()
    return chosen - largest - log_total, chosen >= largest


@lru_cache
def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4
