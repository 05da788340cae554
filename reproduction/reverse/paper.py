"""The numbers of Liu et al., "Say What I Want: Towards the Dark Side of Neural Dialogue Models" (2019), and
the sizes of the study."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from reproduction.page import Found, Page
from reproduction.runner import Size as Base

GROUPS = ("1-3", "4-6", "7-10")  # words of a target
LISTS = ("generated", "real")  # the model's own replies to unseen utterances, and what people said

TABLE_1 = {
    "real-input": (0.439, 0.518, 0.566),
    "pretrained-greedy": (0.446, 0.529, 0.559),
    "rl-greedy": (0.486, 0.560, 0.588),
    "rl-beam-50": (0.599, 0.678, 0.709),
    "rl-beam-200": (0.621, 0.694, 0.726),
}
"""Mean similarity of reply and target on the Real list, by length."""
GAIN = (41.5, 34.0, 28.3)  # percent by which beam-200 is above the real inputs

SEARCHES: dict[str, dict[str, Any]] = {
    "reverse": {"model": "sealed:chitchat", "search": "reverse"},
    "crafted": {"model": "sealed:chitchat", "search": "reverse", "recall": False},
    "crafted-beam": {"model": "sealed:chitchat", "search": "reverse", "recall": False, "decode": "beam"},
    "crafted-no-rl": {"model": "sealed:chitchat", "search": "reverse", "recall": False, "rl": False},
    "retrieval": {"model": "sealed:chitchat", "search": "retrieval"},
    "random": {"model": "sealed:chitchat", "search": "utterances"},
    "gibbs": {"model": "chitchat", "search": "gibbs", "hit": "io-sample-avg-k1"},
}
"""By the name of the row. `crafted` is reverse without what was answered in training; gibbs sees the weights
and has no queries to count."""


@dataclass(frozen=True)
class Size(Base):
    """Every number that makes the study longer or shorter; the defaults are the paper's where it has any."""

    victim_layers: int = 3
    victim_hidden: int = 1024
    victim_embedding: int = 300
    victim_vocabulary: int = 30_000
    victim_epochs: int = 10
    victim_batch: int = 256
    victim_lr: float = 0.002
    layers: int = 2  # layers of the generator
    hidden: int = 1024
    embedding: int = 300
    epochs: int = 12  # epochs of its pre-training
    batch: int = 128  # the paper's 16 would leave most of a GPU idle
    pairs: int = 100_000  # utterances asked to pre-train on; the paper asks 160,000
    rl_steps: int = 400  # updates of REINFORCE; the paper does not say how many
    rl_batch: int = 16
    rl_samples: int = 8
    targets: int = 200  # targets of each list and length
    beams: tuple[int, ...] = (50, 200)
    equal_beam: int = 50  # N of the trained generator where searches are compared at equal queries
    mal_queries: int = 20_000
    mal_targets: int = 100
    judge: bool = True  # whether the sentence transformer scores those findings too

    def limited(self, limit: int, restarts: int) -> Size:
        return replace(self, targets=limit, mal_targets=limit) if limit else self


SIZES = {
    "paper": Size(),
    "mini": Size(
        victim_layers=1, victim_hidden=16, victim_embedding=16, victim_vocabulary=300, victim_epochs=1,
        victim_batch=64, victim_lr=0.001, layers=1, hidden=16, embedding=16, epochs=1, batch=32, pairs=120,
        rl_steps=2, rl_batch=4, rl_samples=2,
        targets=4, beams=(2, 4), equal_beam=2, mal_queries=240, mal_targets=4, judge=False,
    ),
}  # fmt: skip


REAL_INPUT = "real-input"  # in the place of a decoder: the input that a Real target really answered


def decoders(size: Size) -> list[str]:
    """In the paper's order; the pre-trained generator's beams and all samples are our own rows."""
    wide = [f"beam-{width}" for width in size.beams] + [f"sample-{size.beams[-1]}"]
    return ["pretrained-greedy", "rl-greedy", *(f"{w}-{how}" for how in wide for w in ("pretrained", "rl"))]


def reached(page: Page, corpus: str, decoder: str, name: str, group: str) -> Found:
    """Similarities on a list and length with their mean; empty where it was not run."""
    part = f"inputs-{corpus}" if decoder == REAL_INPUT else f"decode-{corpus}-{decoder}"
    found: Found = page.get(part).get(name, {}).get(group, {})
    return found


def near_of(page: Page, corpus: str, decoder: str, name: str, group: str) -> list[float]:
    """The similarities alone."""
    found: list[float] = reached(page, corpus, decoder, name, group).get("near", [])
    return found
