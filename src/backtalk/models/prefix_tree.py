"""Token sequences as a prefix tree, so that a model reads shared beginnings once, and how its next token is
sampled as the model is served: at a temperature and from the likeliest tokens of mass `top_p`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Level(NamedTuple):
    """The nodes at one depth. A node is a beginning that some sequence continues; its children are the
    tokens that follow it."""

    fed: list[int]  # the last token of each node; the root has none and holds -1
    parent: list[int]  # its parent among the nodes of the level above
    node: list[int]  # of each child, the node that it follows
    token: list[int]  # of each child, its token
    ended: list[int]  # of each child, the sequence that ends with it; -1 if it goes on
    below: list[int]  # of each node of the next level, the child that it is


@dataclass(frozen=True)
class PrefixTree:
    """Distinct sequences as levels, the root first. No sequence is the beginning of another."""

    sequences: tuple[tuple[int, ...], ...]
    levels: tuple[Level, ...]

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]]) -> PrefixTree:
        rows = tuple(map(tuple, sequences))
        if len(set(rows)) < len(rows) or not all(rows):
            raise ValueError("the sequences of a tree are distinct and not empty")
        levels, parents = list[Level](), [0]
        members: dict[tuple[int, ...], list[int]] = {(): list(range(len(rows)))}  # sequences by beginning
        while members:
            depth = len(levels)
            level = Level([tokens[-1] if tokens else -1 for tokens in members], parents, [], [], [], [])
            parents, longer = [], dict[tuple[int, ...], list[int]]()
            for place, (tokens, inside) in enumerate(members.items()):
                children: dict[int, list[int]] = {}
                for one in inside:
                    children.setdefault(rows[one][depth], []).append(one)
                for token, own in children.items():
                    ends = [one for one in own if len(rows[one]) == depth + 1]
                    if ends and len(own) > 1:
                        raise ValueError("a sequence is the beginning of another")
                    level.node.append(place)
                    level.token.append(token)
                    level.ended.append(ends[0] if ends else -1)
                    if not ends:
                        level.below.append(len(level.node) - 1)
                        parents.append(place)
                        longer[(*tokens, token)] = own
            levels.append(level)
            members = longer
        return cls(rows, tuple(levels))

    @property
    def nodes(self) -> int:
        """How many next-token distributions an input takes."""
        return sum(len(level.fed) for level in self.levels)


@dataclass(frozen=True)
class Served:
    """How replies are sampled where the model is served."""

    temperature: float = 1.0
    top_p: float = 1.0

    def probabilities(self, logits: Tensor) -> Tensor:
        """(rows, V) logits -> (rows, V) probabilities in float64."""
        kept, _ = self.log_total(logits.double())
        return kept.softmax(dim=-1)

    def log_total(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (..., V) as sampled, -inf for tokens that are left out, and the log of their total mass."""
        if self.temperature != 1.0:
            logits = logits / self.temperature
        if self.top_p < 1.0:
            ordered, order = logits.sort(dim=-1, descending=True)
            mass = ordered.softmax(dim=-1)
            left_out = mass.cumsum(dim=-1) - mass >= self.top_p  # the first token always stays
            logits = logits.masked_fill(left_out.scatter(-1, order, left_out), -torch.inf)
        return logits, logits.logsumexp(dim=-1)
