"""The embedded scorer's network, wide and deep (Cheng et al. 2016).

Deep: word vectors and hashed pieces of words (as in fastText, Bojanowski et al. 2017), two convolutions, for
who is meant stands near what is said, and one self-attention. Wide: a weight for each word and each pair of
neighbours, fitted alone and then added, where the paper trains both at once: neither leans on the other.
Padding leaves no trace, so a text scores alike in any batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PAIR = 1_000_003


@dataclass(frozen=True)
class NetworkConfig:
    """Sizes of the network."""

    vocabulary: int
    """Rows of the vector table; row 0 is that of unknown words."""
    vector: int = 96
    buckets: int = 12288
    """Rows for the hashed pieces of words."""
    gram: int = 64
    hidden: int = 128
    kernel: int = 3
    convolutions: int = 2
    heads: int = 4
    wide: int = (1 << 19) - 1
    """Weights for words and pairs of words; a prime, so that their numbers spread."""
    dropout: float = 0.2


class ToxicityNetwork(nn.Module):
    """Word rows (batch, length, hidden) to one logit a text."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.config = config
        hidden = config.hidden
        self.vectors = nn.Parameter(torch.zeros(config.vocabulary, config.vector))
        self.grams = nn.EmbeddingBag(config.buckets, config.gram, mode="mean")
        nn.init.normal_(self.grams.weight, std=0.1)
        self.from_vector = nn.Linear(config.vector, hidden)
        self.from_grams = nn.Linear(config.gram, hidden, bias=False)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(hidden, hidden, config.kernel, padding=config.kernel // 2)
            for _ in range(config.convolutions)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(config.convolutions + 1))
        self.to_heads = nn.Linear(hidden, 3 * hidden)
        self.from_heads = nn.Linear(hidden, hidden)
        self.to_weight = nn.Linear(hidden, 1)
        self.inner = nn.Linear(2 * hidden, hidden)
        self.outer = nn.Linear(hidden, 1)
        self.dropout = nn.Dropout(config.dropout)
        self.wide = nn.Parameter(torch.zeros(config.wide), requires_grad=False)

    def word_rows(self, ids: Tensor, grams: Tensor, starts: Tensor) -> Tensor:
        """(words, hidden), from rows of the vector table and the words' pieces, laid end to end."""
        row: Tensor = self.from_vector(self.vectors[ids]) + self.from_grams(self.grams(grams, starts))
        return row

    def forward(self, rows: Tensor, keep: Tensor) -> Tensor:
        """(batch,) logits from (batch, length, hidden) and what is no padding, (batch, length)."""
        kept = keep.unsqueeze(2).to(rows.dtype)
        x = self.dropout(rows) * kept
        for convolution, norm in zip(self.convolutions, self.norms, strict=False):
            new = F.gelu(convolution(x.transpose(1, 2)).transpose(1, 2))
            x = norm(x + self.dropout(new)) * kept
        x = self.norms[-1](x + self.dropout(self._attend(x, keep))) * kept
        weight = self.to_weight(x).masked_fill(~keep.unsqueeze(2), -1e4).softmax(1)
        highest = x.masked_fill(~keep.unsqueeze(2), -1e4).amax(1)  # (batch, hidden)
        pooled = self.dropout(torch.cat([(weight * x).sum(1), highest], 1))
        logits: Tensor = self.outer(F.gelu(self.inner(pooled))).squeeze(1)
        return logits

    def wide_logits(self, keys: Tensor, keep: Tensor) -> Tensor:
        """(batch,): what the words and pairs add, by the root of their number; `keys` (batch, length)."""
        kept = keep.to(self.wide.dtype)
        words = (self.wide[keys % self.config.wide] * kept).sum(1)
        pairs = (self.wide[pair_keys(keys[:, :-1], keys[:, 1:]) % self.config.wide] * kept[:, 1:]).sum(1)
        return (words + pairs) / (2 * kept.sum(1) - 1).sqrt()

    def _attend(self, x: Tensor, keep: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        heads = self.config.heads
        parts = self.to_heads(x).view(batch, length, 3, heads, hidden // heads).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(
            parts[0], parts[1], parts[2], attn_mask=keep[:, None, None, :]
        )  # (batch, heads, length, hidden / heads)
        out: Tensor = self.from_heads(seen.transpose(1, 2).reshape(batch, length, hidden))
        return out


def pair_keys(first: Tensor, second: Tensor) -> Tensor:
    """Numbers for pairs of words; those of words have 32 bits, so nothing overflows 63."""
    return first * PAIR + second
