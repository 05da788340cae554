"""The numbers of He & Glass, "Detecting egregious responses in neural sequence-to-sequence models" (2019).

Percentages stand as the paper prints them. None: the paper gives no number, or its text is damaged there.
"""

from __future__ import annotations

CORPORA = ("ubuntu", "switchboard", "opensubtitles")
ARCHS = ("last-h", "attention")
TITLES = {"ubuntu": "Ubuntu", "switchboard": "Switchboard", "opensubtitles": "OpenSubtitles"}

TABLE_1 = {
    ("embedding", "normal"): 95.0,
    ("embedding", "mal"): 7.2,
    ("one-hot", "normal"): 63.4,
    ("one-hot", "mal"): 1.7,
    ("one-hot-project", "normal"): 0.0,
    ("one-hot-project", "mal"): 0.0,
}
"""Relaxation on the Ubuntu attention model: (what is optimised, list) -> targets hit by greedy decoding."""

TABLE_2 = {
    ("ubuntu", "lm"): (61.68, 4.12),
    ("ubuntu", "last-h"): (52.14, 3.95),
    ("ubuntu", "attention"): (50.95, 3.93),
    ("switchboard", "lm"): (42.0, 3.73),
    ("switchboard", "last-h"): (40.3, 3.69),
    ("switchboard", "attention"): (40.65, 3.70),
    ("opensubtitles", "lm"): (48.24, 3.87),
    ("opensubtitles", "last-h"): (40.66, 3.70),
    ("opensubtitles", "attention"): (40.45, 3.70),
}
"""(corpus, model) -> test perplexity and negative log-likelihood."""

NORMAL_HIT = {
    "ubuntu": "o-greedy",
    "switchboard": "o-sample-min-k1",
    "opensubtitles": "o-sample-min-k1",
}
"""The hit that Table 3 reports on the normal list."""

TABLE_3_NORMAL = {
    ("ubuntu", "last-h"): 65.0,
    ("ubuntu", "attention"): 82.8,
    ("switchboard", "last-h"): 99.4,
    ("switchboard", "attention"): 100.0,
    ("opensubtitles", "last-h"): 99.4,
    ("opensubtitles", "attention"): 100.0,
}

MAL_HITS = (
    "o-greedy",
    "o-sample-min-k1",
    "o-sample-min-k2",
    "o-sample-avg-k1",
    "o-sample-avg-k2",
    "io-sample-min-k1",
    "io-sample-min-k2",
    "io-sample-avg-k1",
    "io-sample-avg-k2",
)

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

TABLE_3_RANDOM = 0.0
"""Random lists, every model and every hit, even with k = 2."""

CHARACTER_LISTS = ("normal", "reverse", "random", "mal")
CHARACTER_LIST_SIZES = {"normal": 10_000, "reverse": 7_000, "random": 18_000, "mal": 500}

TABLE_5 = {
    ("last-h", "normal"): 22.3,
    ("last-h", "reverse"): 0.0298,
    ("last-h", "random"): 0.0,
    ("last-h", "mal"): 0.0,
    ("last-h", "outside"): 19.81,
    ("attention", "normal"): 9.06,
    ("attention", "reverse"): 0.0149,
    ("attention", "random"): 0.0,
    ("attention", "mal"): 0.0,
    ("attention", "outside"): 50.72,
}
"""Enumeration: (model, list) -> targets that some input gives; outside: inputs whose output is no word."""

TABLE_5_OUTSIDE_MILLIONS = {"last-h": 2.5, "attention": 6.5}
"""2.5 million are 19.81% of 12.6 million inputs and 6.5 million 50.72% of 12.8 million, not of 33^6."""

TABLE_5_PERPLEXITY: dict[str, float | None] = {"last-h": None, "attention": 2.82}

TABLE_6 = {
    ("last-h", "normal"): 29.33,
    ("last-h", "reverse"): 0.507,
    ("last-h", "random"): 0.054,
    ("last-h", "mal"): 0.36,
    ("attention", "normal"): 13.78,
    ("attention", "reverse"): 0.11,
    ("attention", "random"): 0.0054,
    ("attention", "mal"): 0.0,
}
"""The same with a target counted where it is a substring of an output."""

FOOTNOTE_8_ABSENT = 70.0
"""More than this share of the Ubuntu io-sample-min-k1 targets stands nowhere in the training text."""

FIGURE_4A_SWEEPS = 12
"""The search has converged after about so many sweeps."""
FIGURE_4B_TRIES = (1, 2, 5, 25, 125)
FIGURE_4B_SATURATES = 60.0
"""The o-greedy rate on the Ubuntu normal list levels off at about this, in G and in restarts."""

AVG_OVER_MIN = 5.0
IO_OVER_O = 0.8
NORMAL_AT_LEAST = 99.0
"""What the study checks of the paper's findings: o-avg hits at least 5 times the o-min hits, io-avg at
least 0.8 of o-avg, and the normal list hit to at least 99% by o-sample-min."""
