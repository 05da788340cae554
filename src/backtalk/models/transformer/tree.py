"""The log-probabilities of many replies to many prompts under a causal network: the prefix tree of the
replies stands behind each prompt, and a mask lets a token see the prompt and what is before it in its own
replies. So a prompt and all its replies are one forward pass.

The first prompt is read plainly too. If a network's log-probabilities differ, since it takes no such mask or
positions, every reply is read plainly.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backtalk.models.prefix_tree import PrefixTree, Served
from backtalk.models.transformer.scoring import Row, make_batch, pad_right, run_at, token_logits

NEAR = {torch.float32: 1e-3, torch.float64: 1e-6}
"""Largest difference of both ways' log-probabilities a token; 0.25 in 16 bits."""
LOGITS = {"cpu": 1 << 26, "cuda": 1 << 31}  # numbers that are held at once: of all nodes of some prompts


class Flat(NamedTuple):
    """A tree as one row of tokens, the root left out: it is the prompt's last token."""

    tokens: list[int]
    depth: list[int]  # 1 for the first tokens of replies
    sees: Tensor  # (nodes, nodes), bool: its ancestors and itself
    owner: list[int]  # of each child of the tree, the row that predicts it: 0 the prompt, then the nodes
    token: list[int]
    path: list[list[int]]  # of each sequence, its tokens as children


def flatten(tree: PrefixTree) -> Flat:
    tokens, depth, owner, token = list[int](), list[int](), list[int](), list[int]()
    ancestors: list[list[int]] = []
    paths = dict[int, list[int]]()
    below = list[int]()
    above: list[tuple[int, list[int], list[int]]] = [(-1, [], [])]  # node, its ancestors, children on its way
    for number, level in enumerate(tree.levels):
        here = []
        first = len(owner)
        for place, (fed, parent) in enumerate(zip(level.fed, level.parent, strict=True)):
            if number == 0:
                here.append(above[0])
                continue
            _, seen, way = above[parent]
            own = len(tokens)
            tokens.append(fed)
            depth.append(number)
            ancestors.append([*seen, own])
            here.append((own, [*seen, own], [*way, below[place]]))
        for node, one, ended in zip(level.node, level.token, level.ended, strict=True):
            owner.append(here[node][0] + 1)
            token.append(one)
            if ended >= 0:
                paths[ended] = [*here[node][2], len(owner) - 1]
        below = [first + child for child in level.below]
        above = here
    sees = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    for node, seen in enumerate(ancestors):
        sees[node, seen] = True
    return Flat(tokens, depth, sees, owner, token, [paths[i] for i in range(len(tree.sequences))])


class TreeReader:
    """Reads trees with one network; it remembers whether the network can."""

    def __init__(self, network: Any, pad: int) -> None:
        self.network, self.pad = network, pad
        self.shares: bool | None = None

    @torch.no_grad()
    def log_probs(self, prompts: Sequence[Sequence[int]], tree: PrefixTree, served: Served) -> Tensor:
        """(prompts, sequences), float64."""
        if self.shares is None:
            plain = self._plain(prompts[:1], tree, Served())
            self.shares = self._agrees(prompts[:1], tree, plain)
        return self._at_once(prompts, tree, served) if self.shares else self._plain(prompts, tree, served)

    def at_once(self, tree: PrefixTree) -> int:
        """Prompts whose logits may be held at once."""
        device = self.network.device.type
        vocabulary = self.network.get_input_embeddings().weight.shape[0]
        return int(max(1, LOGITS[device] // (tree.nodes * vocabulary)))

    def _agrees(self, prompts: Sequence[Sequence[int]], tree: PrefixTree, plain: Tensor) -> bool:
        try:
            found = self._at_once(prompts, tree, Served())
        except Exception:  # the network is a third party's program
            return False
        lengths = torch.tensor([len(one) for one in tree.sequences], device=found.device)
        return float(((found - plain).abs() / lengths).max()) <= NEAR.get(self.network.dtype, 0.25)

    def _at_once(self, prompts: Sequence[Sequence[int]], tree: PrefixTree, served: Served) -> Tensor:
        flat, device, dtype = flatten(tree), self.network.device, self.network.dtype
        ids, keep = pad_right(prompts, self.pad, device)
        rows, width, nodes = len(ids), ids.shape[1], len(flat.tokens)
        lengths = keep.sum(1)
        behind = torch.tensor(flat.tokens, dtype=torch.long, device=device).expand(rows, -1)
        depth = torch.tensor(flat.depth, dtype=torch.long, device=device)
        positions = torch.cat(
            [torch.arange(width, device=device).expand(rows, -1), lengths[:, None] - 1 + depth], 1
        )
        seen = torch.zeros(rows, width + nodes, width + nodes, dtype=torch.bool, device=device)
        seen[:, :width, :width] = torch.ones(width, width, dtype=torch.bool, device=device).tril()
        seen[:, width:, :width] = keep.bool()[:, None]
        seen[:, width:, width:] = flat.sees.to(device)
        mask = torch.zeros(seen.shape, dtype=dtype, device=device).masked_fill_(~seen, torch.finfo(dtype).min)
        starts = torch.arange(rows, device=device)[:, None] * (width + nodes)
        own = torch.arange(width, width + nodes, device=device)
        places = torch.cat([starts + lengths[:, None] - 1, starts + own], dim=1).flatten()
        inputs = {
            "input_ids": torch.cat([ids, behind], dim=1),
            "attention_mask": mask[:, None],
            "position_ids": positions,
        }
        logits = run_at(self.network, inputs, places)[1].float().view(rows, nodes + 1, -1)
        logits, total = served.log_total(logits)
        scores = logits[:, flat.owner, flat.token].double() - total[:, flat.owner].double()
        return torch.stack([scores[:, path].sum(1) for path in flat.path], dim=1)

    def _plain(self, prompts: Sequence[Sequence[int]], tree: PrefixTree, served: Served) -> Tensor:
        """Each reply behind each prompt."""
        found = torch.empty(
            len(prompts), len(tree.sequences), dtype=torch.float64, device=self.network.device
        )
        for place, prompt in enumerate(prompts):
            for number, sequence in enumerate(tree.sequences):
                batch = make_batch([Row(list(prompt), list(sequence))], self.pad, self.network.device)
                logits, total = served.log_total(token_logits(self.network, batch))
                chosen = logits.gather(1, batch.targets[:, None])[:, 0]
                found[place, number] = (chosen.double() - total.double()).sum()
        return found
