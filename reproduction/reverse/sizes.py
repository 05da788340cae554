"""How large the study of Liu et al. 2019 is run: the paper's networks on the data at hand, those of a small
machine, or a miniature."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Size:
    """Every number that makes the study longer or shorter; the defaults are the paper's where it has any."""

    victim_layers: int = 3
    victim_hidden: int = 1024
    victim_embedding: int = 300
    victim_vocabulary: int = 30_000
    victim_epochs: int = 10
    victim_batch: int = 256
    victim_lr: float = 0.002
    layers: int = 2
    """Of the generator."""
    hidden: int = 1024
    embedding: int = 300
    epochs: int = 12
    """Of its pre-training."""
    batch: int = 128
    """The paper's 16 would leave most of a GPU idle."""
    pairs: int = 100_000
    """Utterances asked to pre-train on; the paper asks 160,000."""
    rl_steps: int = 400
    """Updates of REINFORCE; the paper does not say how many."""
    rl_batch: int = 16
    rl_samples: int = 8
    targets: int = 200
    """Of each list and length."""
    beams: tuple[int, ...] = (50, 200)
    equal_beam: int = 50
    """N of the trained generator where searches are compared at equal queries."""
    mal_queries: int = 20_000
    mal_targets: int = 100
    judge: bool = True
    """Whether the sentence transformer scores those findings too."""

    @property
    def rl_queries(self) -> int:
        """At most: equal inputs are asked once."""
        return self.rl_steps * self.rl_batch * self.rl_samples

    def limited(self, limit: int) -> Size:
        return replace(self, targets=limit, mal_targets=limit) if limit else self


SIZES = {
    "paper": Size(),
    "small": Size(
        victim_layers=2, victim_hidden=256, victim_embedding=128, victim_vocabulary=5000, victim_epochs=4,
        victim_batch=64, victim_lr=0.001, layers=1, hidden=256, embedding=128, epochs=6, batch=32, pairs=4000,
        rl_steps=30, targets=30, beams=(10, 50),
        equal_beam=10, mal_queries=4000, mal_targets=20,
    ),
    "mini": Size(
        victim_layers=1, victim_hidden=16, victim_embedding=16, victim_vocabulary=300, victim_epochs=1,
        victim_batch=64, victim_lr=0.001, layers=1, hidden=16, embedding=16, epochs=1, batch=32, pairs=120,
        rl_steps=2, rl_batch=4, rl_samples=2,
        targets=4, beams=(2, 4), equal_beam=2, mal_queries=240, mal_targets=4, judge=False,
    ),
}  # fmt: skip
