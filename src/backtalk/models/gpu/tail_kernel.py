"""Attention of rows behind a past that their group shares, as a Triton kernel.

A program takes one row's queries of the heads that share keys, and reads the group's past, then the row's own
tokens (online softmax). It stores only the result.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

MOST_QUERIES = 64  # queries of one program
LOG2_E = 1.4426950408889634


@triton.jit
def _tail_kernel(
    query_ptr, past_key_ptr, past_value_ptr, key_ptr, value_ptr, found_ptr,
    query_row, query_head, query_token, past_group, past_head, past_token,
    key_row, key_head, key_token, value_row, value_head, value_token,
    kv_heads, each, s, p, scale,
    SHARING: tl.constexpr, SIZE: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr, PRECISION: tl.constexpr,
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
    from_query = query_ptr + row * query_row + head[:, None] * query_head + t[:, None] * query_token
    query = tl.load(from_query + d[None, :], asks, 0.0)
    most = tl.full([BLOCK_Q], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK_Q], tl.float32)
    mean = tl.zeros([BLOCK_Q, BLOCK_D], tl.float32)
    for start in range(0, p, BLOCK_K):
        j = start + tl.arange(0, BLOCK_K)
        there = (j < p)[:, None] & of_size
        at = group * past_group + kv * past_head + j[:, None] * past_token + d[None, :]
        keys = tl.load(past_key_ptr + at, there, 0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision=PRECISION) * scale
        scores = tl.where((j < p)[None, :], scores, -float("inf"))
        new = tl.maximum(most, tl.max(scores, 1))
        shares = tl.exp2(scores - new[:, None])
        fade = tl.exp2(most - new)
        values = tl.load(past_value_ptr + at, there, 0.0)
        mean = mean * fade[:, None] + tl.dot(shares.to(values.dtype), values, input_precision=PRECISION)
        total = total * fade + tl.sum(shares, 1)
        most = new
    for start in range(0, s, BLOCK_K):
        j = start + tl.arange(0, BLOCK_K)
        there = (j < s)[:, None] & of_size
        from_key = key_ptr + row * key_row + kv * key_head + j[:, None] * key_token
        keys = tl.load(from_key + d[None, :], there, 0.0)
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


def tail_attention(
    query: Tensor, past_key: Tensor, past_value: Tensor, key: Tensor, value: Tensor, scale: float
) -> Tensor:
    """`query` (rows, heads, s, size), the past's keys and values (groups, kv heads, p, size), the row's own
    (rows, kv heads, s, size) -> (rows, s, heads, size)"""
    rows, heads, s, size = query.shape
    groups, kv_heads, p, _ = past_key.shape
    past_key, past_value = past_key.contiguous(), past_value.contiguous()  # alike, and small
    query, key, value = (x if x.stride(3) == 1 else x.contiguous() for x in (query, key, value))
    found = torch.empty(rows, s, heads, size, dtype=query.dtype, device=query.device)
    sharing = heads // kv_heads
    block = min(MOST_QUERIES, max(16, triton.next_power_of_2(sharing * s)))
    _tail_kernel[(rows * kv_heads, triton.cdiv(sharing * s, block))](
        query, past_key, past_value, key, value, found,
        *query.stride()[:3], *past_key.stride()[:3], *key.stride()[:3], *value.stride()[:3],
        kv_heads, rows // groups, s, p, scale * LOG2_E,
        SHARING=sharing, SIZE=size, BLOCK_Q=block, BLOCK_K=32, BLOCK_D=max(16, triton.next_power_of_2(size)),
        PRECISION="ieee", num_warps=4,
    )  # fmt: skip
    return found
