"""How large the study of He & Glass 2019 is run: as in the paper, on a small machine, or in miniature."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Size:
    """Every number that makes the study longer or shorter. The defaults are the paper's."""

    vocabulary: int = 10_000
    """The most words of a model; a corpus may have fewer."""
    embedding: int = 300
    hidden: int = 600
    epochs: int = 20
    """The paper's 10 at the starting rate and 10 with halving; the smaller sizes keep the proportion."""
    character_hidden: int = 200
    """Also the size of the embedding."""
    character_epochs: int = 10
    mal: int = 0
    """Targets of the mal list; 0 takes all."""
    normal: int = 500
    random: int = 500
    length: int = 14
    """n: words of a trigger, and the most that a model reads; with the end-of-turn token the paper's 15."""
    top: int = 100
    """G: candidates at a position."""
    sweeps: int = 50
    """T: the most passes over a trigger."""
    restarts: int = 10
    """R: searches a target from different starts."""
    curve_targets: int = 100
    """Targets of each list in figure 4a."""
    tries: tuple[int, ...] = (1, 2, 5, 25, 125)
    """G in figure 4b."""
    precision_targets: int = 500
    """Targets searched in both precisions."""
    relax_steps: int = 0
    """Steps of the relaxation; 0 takes the search's own number."""
    symbols: str = ""
    """The symbols that are enumerated; empty for all."""
    input_length: int = 6
    """Symbols of an enumerated input."""
    sample: int = 12_700_000
    """Random inputs in place of all of them: the number that the paper's percentages imply."""
    bench_shapes: tuple[tuple[str, str], ...] = (
        ("paper-ubuntu", "last-h"),
        ("paper-switchboard", "last-h"),
        ("paper-switchboard", "attention"),
    )

    def limited(self, limit: int) -> Size:
        """With at most `limit` targets in every list; 0 sets no limit."""
        if not limit:
            return self
        names = ("normal", "random", "curve_targets", "precision_targets")
        fewer = {name: min(limit, getattr(self, name)) for name in names}
        return replace(self, mal=min(limit, self.mal or limit), **fewer)


SIZES = {
    "paper": Size(),
    "small": Size(
        vocabulary=5000,
        embedding=100,
        hidden=200,
        epochs=8,
        character_hidden=100,
        character_epochs=2,
        mal=200,
        normal=100,
        random=100,
        top=50,
        sweeps=10,
        restarts=2,
        curve_targets=50,
        tries=(1, 5, 25),
        precision_targets=100,
        relax_steps=200,
        input_length=4,
        sample=200_000,
        bench_shapes=(("embedded", "attention"),),
    ),
    "mini": Size(
        vocabulary=1500,
        embedding=16,
        hidden=24,
        epochs=2,
        character_hidden=16,
        character_epochs=1,
        mal=6,
        normal=6,
        random=4,
        length=4,
        top=8,
        sweeps=2,
        restarts=2,
        curve_targets=4,
        tries=(1, 4),
        precision_targets=4,
        relax_steps=8,
        symbols="aeinst",
        input_length=3,
        sample=200,
        bench_shapes=(("mini", "attention"),),
    ),
}
