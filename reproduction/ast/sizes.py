"""How large the study of Hardy et al. 2024 is run: the paper's steps and openings, those of a small machine,
or a miniature."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Size:
    """Every number that makes the study longer or shorter; the defaults are the paper's where it has any."""

    steps: int = 10_000
    """Of the main row."""
    short_steps: int = 2048
    """Of baselines and ablations, and of the main row when it is compared with them: 32 whole epochs."""
    experience: int = 512
    depth: int = 3
    turns: int = 3
    turn_tokens: int = 24
    dev_every: int = 5
    """The paper measures every 10 epochs and chooses nothing by it."""
    test: int = 0
    """Test openings at most; 0 takes all."""
    tune_lr: float = 0.0
    iterations: int = 6
    """Of the hardening."""
    played: int = 64
    """Trees that are played batched and one by one, to compare the speed."""

    def limited(self, limit: int) -> Size:
        return replace(self, test=limit) if limit else self


SIZES = {
    "paper": Size(),
    "small": Size(steps=100, short_steps=50, experience=64, dev_every=4, test=20, iterations=2, played=4),
    "mini": Size(
        steps=8, short_steps=4, experience=16, depth=1, turns=2, turn_tokens=6, dev_every=1, test=6,
        tune_lr=0.003, iterations=1, played=2,
    ),
}  # fmt: skip
