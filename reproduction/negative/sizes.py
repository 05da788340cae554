"""How large the study of He & Glass 2020 is run: as in the paper as far as half an hour of one GPU allows, on
a small machine, or in miniature."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from reproduction.egregious import sizes as egregious_sizes


@dataclass(frozen=True)
class Size:
    """Every number that makes the study longer or shorter. The defaults are the paper's but for `iterations`
    and `frequent_steps`, of which the paper has 20 passes: fewer, and the same for all rows."""

    training: egregious_sizes.Size = egregious_sizes.SIZES["paper"]
    """Of the baseline models: the very networks of `study egregious` where text and words are the same."""
    iterations: int = 8
    """Passes over the training targets; the paper has 20."""
    passes: int = 20
    """Those of one row of its own, which shows what more of them do."""
    targets: tuple[tuple[str, int], ...] = ()
    """The most targets of a list, by its name; all where it is not named."""
    followed: int = 100
    """Test targets searched after each iteration of rows whose way there is drawn (the others have the one
    that `harden` wants); nothing is chosen by them."""
    batch: int = 100
    """Targets searched and trained on together."""
    rounds: int = 0
    """The most updates on a batch of hits; 0 takes the settings' own."""
    length: int = 14
    """n: words of a trigger; with the end-of-turn token the paper's 15."""
    top: int = 100
    """G: candidates at a position."""
    sweeps: int = 5
    """T: the most passes over a trigger, inside training and in the measures."""
    restarts: int = 5
    """R: searches a target in the measures; one inside training."""
    measure: int = 20_000
    """Test pairs at most: more than there are."""
    frequent_iterations: int = 5
    """Measurements of a training against frequent replies."""
    frequent_steps: int = 350
    """Mini-batches of 64 between them; the paper goes 20 times over the training pairs."""
    window: int = 200
    """Mini-batches over which the share of a reply is taken."""
    gan_filters: int = 300
    gan_hidden: int = 2000
    mmi_weights: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
    mmi_words: tuple[int, ...] = (1, 3, 5)
    """lambda and gamma that are tried on validation pairs."""
    choosing: int = 2000
    """Validation pairs that choose them."""
    beam: int = 10
    beam_inputs: int = 2000
    """Width and test inputs of the beam search that is set beside greedy decoding."""
    embedded: tuple[tuple[str, Any], ...] = (("limit", 800), ("iterations", 10))
    """What the hardenings of the embedded model set over the defaults of `harden`."""
    embedded_frequent: tuple[tuple[str, Any], ...] = (("iterations", 8),)
    """The same against frequent replies."""
    words: int = 100
    """Targets of our own list whose words figure 1 follows."""

    def limited(self, limit: int, restarts: int) -> Size:
        """With at most `limit` targets in every list, and other restarts; 0 changes nothing."""
        size = replace(self, restarts=restarts) if restarts else self
        if not limit:
            return size
        names = ("500", "1000", "2500", "test")
        now = dict(self.targets)
        fewer = tuple((name, min(limit, now.get(name) or limit)) for name in names)
        return replace(size, targets=fewer, followed=min(limit, self.followed), words=min(limit, self.words))


SIZES = {
    "paper": Size(),
    "small": Size(
        training=egregious_sizes.SIZES["small"],
        iterations=2,
        passes=4,
        targets=(("500", 100), ("1000", 200), ("2500", 300), ("test", 100)),
        followed=30,
        top=50,
        restarts=2,
        measure=1000,
        frequent_iterations=2,
        frequent_steps=150,
        window=100,
        gan_filters=50,
        gan_hidden=200,
        choosing=300,
        beam_inputs=200,
        embedded=(("limit", 96), ("iterations", 4)),
        embedded_frequent=(("iterations", 3),),
        words=20,
    ),
    "mini": Size(
        training=egregious_sizes.SIZES["mini"],
        iterations=1,
        passes=2,
        targets=(("500", 4), ("1000", 5), ("2500", 6), ("test", 4)),
        followed=2,
        batch=4,
        rounds=2,
        length=3,
        top=4,
        sweeps=1,
        restarts=1,
        measure=24,
        frequent_iterations=1,
        frequent_steps=3,
        window=1,
        gan_filters=4,
        gan_hidden=8,
        mmi_weights=(0.1, 0.3),
        mmi_words=(2,),
        choosing=12,
        beam=3,
        beam_inputs=12,
        embedded=(("limit", 6), ("iterations", 1), ("length", 2), ("top", 3), ("sweeps", 1),
                  ("search_sweeps", 1), ("restarts", 1), ("measure", 16), ("rounds", 1)),
        embedded_frequent=(("iterations", 1), ("steps_per_iteration", 2), ("window", 1), ("measure", 16)),
        words=3,
    ),
}  # fmt: skip
