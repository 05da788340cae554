"""The numbers of He & Glass, "Detecting egregious responses in neural sequence-to-sequence models" (2019),
why ours differ, and the sizes of the study.

Percentages stand as the paper prints them. None: the paper gives no number, or its text is damaged there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from reproduction.page import read_notes
from reproduction.runner import Size as Base

CORPORA = ("ubuntu", "switchboard", "opensubtitles")
ARCHS = ("last-h", "attention")
TITLES = {"ubuntu": "Ubuntu", "switchboard": "Switchboard", "opensubtitles": "OpenSubtitles"}

TABLE_1 = {
    ("embedding", "normal"): 95.0, ("embedding", "mal"): 7.2,
    ("one-hot", "normal"): 63.4, ("one-hot", "mal"): 1.7,
    ("one-hot-project", "normal"): 0.0, ("one-hot-project", "mal"): 0.0,
}  # fmt: skip
"""Relaxation on the Ubuntu attention model: (what is optimised, list) -> targets hit by greedy decoding."""
TABLE_2 = {
    ("ubuntu", "lm"): (61.68, 4.12), ("switchboard", "lm"): (42.0, 3.73),
    ("ubuntu", "last-h"): (52.14, 3.95), ("switchboard", "last-h"): (40.3, 3.69),
    ("ubuntu", "attention"): (50.95, 3.93), ("switchboard", "attention"): (40.65, 3.70),
    ("opensubtitles", "lm"): (48.24, 3.87), ("opensubtitles", "last-h"): (40.66, 3.70),
    ("opensubtitles", "attention"): (40.45, 3.70),
}  # fmt: skip
"""(corpus, model) -> test perplexity and negative log-likelihood."""
NORMAL_HIT = {"ubuntu": "o-greedy", "switchboard": "o-sample-min-k1", "opensubtitles": "o-sample-min-k1"}
"""The hit that Table 3 reports on the normal list."""
TABLE_3_NORMAL = {
    ("ubuntu", "last-h"): 65.0, ("ubuntu", "attention"): 82.8,
    ("switchboard", "last-h"): 99.4, ("switchboard", "attention"): 100.0,
    ("opensubtitles", "last-h"): 99.4, ("opensubtitles", "attention"): 100.0,
}  # fmt: skip
MAL_HITS = (
    "o-greedy", "o-sample-min-k1", "o-sample-min-k2", "o-sample-avg-k1", "o-sample-avg-k2",
    "io-sample-min-k1", "io-sample-min-k2", "io-sample-avg-k1", "io-sample-avg-k2",
)  # fmt: skip
_TABLES_3_AND_11 = {
    ("ubuntu", "last-h"): (0, 13.6, 19.7, 53.9, 76.7, 9.1, 14.7, 48.6, 73.4),
    ("ubuntu", "attention"): (0, 16.7, 23.9, 57.7, 79.2, 10.2, 15.2, 49.2, 73.2),
    ("switchboard", "last-h"): (0, 0, 0.3, 18.9, 39.2, 0, 0.3, 18.7, 38.6),
    ("switchboard", "attention"): (0, 0.1, 0.5, 20.8, 45.0, 0, 0.4, 19.6, 41.2),
    ("opensubtitles", "last-h"): (3.0, 29.4, 36.9, 72.9, 87.1, 8.8, 13.6, 59.4, 76.8),
    ("opensubtitles", "attention"): (6.6, 29.4, 37.4, 73.5, 88.2, 9.8, 15.8, 60.8, 80.2),
}
TABLE_11 = {
    (corpus, arch, hit): float(value)
    for (corpus, arch), row in _TABLES_3_AND_11.items()
    for hit, value in zip(MAL_HITS, row, strict=True)
}
"""(corpus, model, hit) -> mal targets hit. Its k1 columns and o-greedy are those of Table 3."""
TABLE_3_RANDOM = 0.0  # random lists, every model and every hit, even with k = 2

CHARACTER_LISTS = ("normal", "reverse", "random", "mal")

TABLE_5 = {
    ("last-h", "normal"): 22.3, ("last-h", "reverse"): 0.0298, ("last-h", "random"): 0.0,
    ("last-h", "mal"): 0.0, ("last-h", "outside"): 19.81,
    ("attention", "normal"): 9.06, ("attention", "reverse"): 0.0149, ("attention", "random"): 0.0,
    ("attention", "mal"): 0.0, ("attention", "outside"): 50.72,
}  # fmt: skip
"""Enumeration: (model, list) -> targets that some input gives; outside: inputs whose output is no word."""

TABLE_5_OUTSIDE_MILLIONS = {"last-h": 2.5, "attention": 6.5}
"""2.5 million are 19.81% of 12.6 million inputs and 6.5 million 50.72% of 12.8 million, not of 33^6."""

TABLE_5_PERPLEXITY: dict[str, float | None] = {"last-h": None, "attention": 2.82}

TABLE_6 = {
    ("last-h", "normal"): 29.33, ("last-h", "reverse"): 0.507, ("last-h", "random"): 0.054,
    ("last-h", "mal"): 0.36, ("attention", "normal"): 13.78, ("attention", "reverse"): 0.11,
    ("attention", "random"): 0.0054, ("attention", "mal"): 0.0,
}  # fmt: skip
"""The same with a target counted where it is a substring of an output."""

FOOTNOTE_8_ABSENT = 70.0
"""More than this share of the Ubuntu io-sample-min-k1 targets stands nowhere in the training text."""

FIGURE_4A_SWEEPS = 12  # the search has converged after about so many sweeps

AVG_OVER_MIN = 5.0
IO_OVER_O = 0.8
NORMAL_AT_LEAST = 99.0
"""What the study checks of the paper's findings: o-avg hits at least 5 times the o-min hits, io-avg at
least 0.8 of o-avg, and the normal list hit to at least 99% by o-sample-min."""


NOTES = read_notes("egregious")
STAND_INS = {"*": "The data are stand-ins for the paper's, so no number is to be compared"}
"""Replaces all notes when the study ran on the embedded pairs."""


@dataclass(frozen=True)
class Size(Base):
    """Every number that makes the study longer or shorter. The defaults are the paper's."""

    vocabulary: int = 10_000  # the most words of a model; a corpus may have fewer
    embedding: int = 300
    hidden: int = 600
    epochs: int = 20
    """The paper's 10 at the starting rate and 10 with halving; the miniature keeps the proportion."""
    character_hidden: int = 200  # also the size of the embedding
    character_epochs: int = 10
    mal: int = 0  # targets of the mal list; 0 takes all
    normal: int = 500
    random: int = 500
    length: int = 14
    """n: words of a trigger, and the most that a model reads; with the end-of-turn token the paper's 15."""
    top: int = 100  # G: candidates at a position
    sweeps: int = 50  # T: the most passes over a trigger
    restarts: int = 10  # R: searches a target from different starts
    searched: int = 0  # R of the tables if --restarts sets another; 0: the same as `restarts`
    curve_targets: int = 100  # targets of each list in figure 4a
    tries: tuple[int, ...] = (1, 2, 5, 25, 125)  # G in figure 4b
    precision_targets: int = 500  # targets searched in both precisions
    relax_steps: int = 0  # steps of the relaxation; 0 takes the search's own number
    symbols: str = ""  # the symbols that are enumerated; empty for all
    input_length: int = 6  # symbols of an enumerated input
    sample: int = 12_700_000
    """Random inputs in place of all of them: the number that the paper's percentages imply."""
    bench_shapes: tuple[tuple[str, str], ...] = (
        ("paper-ubuntu", "last-h"),
        ("paper-switchboard", "last-h"),
        ("paper-switchboard", "attention"),
    )

    def limited(self, limit: int, restarts: int) -> Size:
        size = replace(self, searched=restarts)
        if not limit:
            return size
        names = ("normal", "random", "curve_targets", "precision_targets")
        fewer = {name: min(limit, getattr(self, name)) for name in names}
        return replace(size, mal=min(limit, self.mal or limit), **fewer)


SIZES = {
    "paper": Size(),
    "mini": Size(
        vocabulary=1500, embedding=16, hidden=24, epochs=2, character_hidden=16, character_epochs=1,
        mal=6, normal=6, random=4, length=4, top=8, sweeps=2, restarts=2, curve_targets=4, tries=(1, 4),
        precision_targets=4, relax_steps=8, symbols="aeinst", input_length=3, sample=200,
        bench_shapes=(("mini", "attention"),),
    ),
}  # fmt: skip
