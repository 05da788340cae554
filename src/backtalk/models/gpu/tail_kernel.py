"""Attention of rows behind a past that their group shares, and the gate of a Llama's MLP, as Triton kernels.

A program of the attention takes one row's queries of the heads that share keys, and reads the group's past,
then the row's own tokens (online softmax). It stores only the result. It can rotate queries and keys (rotary
embeddings) as it reads them, those of the past too.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_QUERIES = 64  # queries of one program
LOG2_E = 1.4426950408889634
Pair = tuple[Tensor, Tensor]


@triton.jit
def _rotated(ptr, cos_ptr, sin_ptr, at, token, d, there, SIZE: tl.constexpr, ROTATES: tl.constexpr):
    """Rows of `SIZE` numbers that begin at `at` (rows,). `sin` is negative for the first half of a row."""
    x = tl.load(ptr + at[:, None] + d[None, :], there, 0.0)
    if ROTATES:
        other = tl.load(ptr + at[:, None] + ((d + SIZE // 2) % SIZE)[None, :], there, 0.0)
        angle = token[:, None] * SIZE + d[None, :]
        cos, sin = tl.load(cos_ptr + angle, there, 0.0), tl.load(sin_ptr + angle, there, 0.0)
        x = (x.to(tl.float32) * cos + other.to(tl.float32) * sin).to(x.dtype)
    return x


@triton.jit(do_not_specialize=["each", "s", "p"])  # a search has many; each would be compiled
def _tail_kernel(
    query_ptr, past_key_ptr, past_value_ptr, key_ptr, value_ptr, cos_ptr, sin_ptr, found_ptr,
    query_row, query_head, query_token, past_group, past_head, past_token,
    key_row, key_head, key_token, value_row, value_head, value_token,
    kv_heads, each, s, p, scale,
    SHARING: tl.constexpr, SIZE: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr, ROTATES: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`found` is (rows, s, heads, SIZE), contiguous; `scale` counts in powers of 2."""
    program = tl.program_id(0)
    row, kv = (program // kv_heads).to(tl.int64), program % kv_heads
    group = row // each
    i = tl.program_id(1) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    d = tl.arange(0, BLOCK_D)
    of_size = d[None, :] < SIZE
    asks = (i < SHARING * s)[:, None] & of_size
    head, t = kv * SHARING + i // s, i % s
    from_query = row * query_row + head * query_head + t * query_token
    query = _rotated(query_ptr, cos_ptr, sin_ptr, from_query, p + t, d, asks, SIZE, ROTATES)
    most = tl.full([BLOCK_Q], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    mean = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    for start in range(0, p, BLOCK_K):
        j = start + tl.arange(0, BLOCK_K)
        there = (j < p)[:, None] & of_size
        at = group * past_group + kv * past_head + j * past_token
        keys = _rotated(past_key_ptr, cos_ptr, sin_ptr, at, j, d, there, SIZE, ROTATES)
        scores = tl.dot(query, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where((j < p)[None, :], scores, -float("inf"))
        new = tl.maximum(most, tl.max(scores, 1))
        shares = tl.exp2(scores - new[:, None])
        fade = tl.exp2(most - new)
        values = tl.load(past_value_ptr + at[:, None] + d[None, :], there, 0.0)
        mean = mean * fade[:, None] + tl.dot(shares.to(values.dtype), values, input_precision=PRECISION)
        total = total * fade + tl.sum(shares, 1)
        most = new
    for start in range(0, s, BLOCK_K):
        j = start + tl.arange(0, BLOCK_K)
        there = (j < s)[:, None] & of_size
        at = row * key_row + kv * key_head + j * key_token
        keys = _rotated(key_ptr, cos_ptr, sin_ptr, at, p + j, d, there, SIZE, ROTATES)
        scores = tl.dot(query, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where((j[None, :] <= t[:, None]) & (j < s)[None, :], scores, -float("inf"))
        new = tl.maximum(most, tl.max(scores, 1))
        shares = tl.exp2(scores - new[:, None])
        fade = tl.exp2(most - new)
        from_value = value_ptr + row * value_row + kv * value_head + j[:, None] * value_token
        values = tl.load(from_value + d[None, :], there, 0.0)
        mean = mean * fade[:, None] + tl.dot(shares.to(values.dtype), values, input_precision=PRECISION)
        total = total * fade + tl.sum(shares, 1)
        most = new
    to_found = found_ptr + (row * s + t[:, None]) * (kv_heads * SHARING * SIZE) + head[:, None] * SIZE
    tl.store(to_found + d[None, :], (mean / total[:, None]).to(query.dtype), asks)


@triton.jit
def _gate_kernel(gate_ptr, up_ptr, found_ptr, gate_row, up_row, size, BLOCK: tl.constexpr):
    """silu(gate) * up of one row."""
    row, d = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(gate_ptr + row * gate_row + d, d < size, 0.0).to(tl.float32)
    up = tl.load(up_ptr + row * up_row + d, d < size, 0.0).to(tl.float32)
    tl.store(found_ptr + row * size + d, gate * tl.sigmoid(gate) * up, d < size)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """(rows, size), whose last dimension is contiguous -> (rows, size)"""
    rows, size = gate.shape
    found = gate.new_empty(rows, size)
    block = min(2048, triton.next_power_of_2(size))
    _gate_kernel[(rows, triton.cdiv(size, block))](
        gate, up, found, gate.stride(0), up.stride(0), size, BLOCK=block, num_warps=4
    )
    return found


def tail_attention(query: Tensor, past: Pair, own: Pair, scale: float, angles: Pair | None = None) -> Tensor:
    """Attention of the last s tokens of each row: (rows, s, heads, size). `query` is (rows, heads, s, size).
    `past` has the keys and values (groups, kv heads, p, size) that the rows of a group share, `own` those of
    each row (rows, kv heads, s, size). `angles` are cos and sin (p + s, size) in float32, with the first half
    of each sin negative; queries and keys are rotated by them."""
    rows, heads, s, size = query.shape
    groups, kv_heads, p, _ = past[0].shape
    past_key, past_value = (x.contiguous() for x in past)  # alike, and small
    query, key, value = (x if x.stride(3) == 1 else x.contiguous() for x in (query, *own))
    found = torch.empty(rows, s, heads, size, dtype=query.dtype, device=query.device)
    sharing = heads // kv_heads
    block = min(MOST_QUERIES, max(16, triton.next_power_of_2(sharing * s)))
    cos, sin = angles or (query, query)
    _tail_kernel[(rows * kv_heads, triton.cdiv(sharing * s, block))](
        query, past_key, past_value, key, value, cos, sin, found,
        *query.stride()[:3], *past_key.stride()[:3], *key.stride()[:3], *value.stride()[:3],
        kv_heads, rows // groups, s, p, scale * LOG2_E,
        SHARING=sharing, SIZE=size, BLOCK_Q=block, BLOCK_K=32, BLOCK_D=max(16, triton.next_power_of_2(size)),
        ROTATES=angles is not None, PRECISION="ieee", num_warps=4,
    )  # fmt: skip
    return found
