"""The numbers of He & Glass, "Negative training for neural dialogue response generation" (2020).

Percentages stand as the paper prints them. Only the two corpora that the study runs are here: Switchboard,
and Ubuntu, of which ours is a slice.
"""

from __future__ import annotations

CORPORA = ("switchboard", "ubuntu")
TITLES = {"switchboard": "Switchboard", "ubuntu": "Ubuntu"}

TABLE_8 = {
    ("ubuntu", "lm"): (66.29, 4.19),
    ("ubuntu", "attention"): (59.49, 4.08),
    ("switchboard", "lm"): (44.37, 3.79),
    ("switchboard", "attention"): (42.81, 3.75),
}
"""(corpus, model) -> test perplexity and negative log-likelihood."""

HITS = {
    "switchboard": ("o-sample-avg-k1", "io-sample-avg-k1"),
    "ubuntu": ("o-sample-min-k1", "io-sample-min-k1"),
}
"""The hits of Table 3."""
BASELINE = "baseline"
LISTS = ("500", "1000", "2500")
"""Training targets: as written, with one paraphrase each, with four."""

TABLE_3 = {
    ("switchboard", "o-sample-avg-k1", BASELINE): (27.8, 27.6, 42.81),
    ("switchboard", "o-sample-avg-k1", "500"): (3.8, 13.4, 42.91),
    ("switchboard", "o-sample-avg-k1", "1000"): (2.4, 5.0, 42.96),
    ("switchboard", "o-sample-avg-k1", "2500"): (1.3, 2.6, 43.51),
    ("switchboard", "io-sample-avg-k1", BASELINE): (19.6, 21.0, 42.81),
    ("switchboard", "io-sample-avg-k1", "500"): (2.2, 9.4, 42.7),
    ("switchboard", "io-sample-avg-k1", "1000"): (2.1, 4.0, 42.76),
    ("switchboard", "io-sample-avg-k1", "2500"): (1.5, 1.6, 43.24),
    ("ubuntu", "o-sample-min-k1", BASELINE): (16.4, 12.6, 59.49),
    ("ubuntu", "o-sample-min-k1", "500"): (0.0, 2.0, 60.42),
    ("ubuntu", "o-sample-min-k1", "1000"): (0.1, 1.4, 60.72),
    ("ubuntu", "o-sample-min-k1", "2500"): (0.04, 0.0, 62.11),
    ("ubuntu", "io-sample-min-k1", BASELINE): (7.8, 5.2, 59.49),
    ("ubuntu", "io-sample-min-k1", "500"): (0.2, 1.4, 59.97),
    ("ubuntu", "io-sample-min-k1", "1000"): (0.1, 1.0, 60.21),
    ("ubuntu", "io-sample-min-k1", "2500"): (0.2, 0.0, 63.37),
}
"""(corpus, hit, training list) -> training targets hit, test targets hit, test perplexity. The paper counts
the training list that was trained on; we count its 500 written targets in every row."""

R_THRES = {"switchboard": ("10%", "1%"), "ubuntu": ("1%", "0.1%")}
"""A reply with a larger share of all replies is discouraged."""
ALPHA_G = ("0.01", "0.001", "0.0001")
"""Rates of the GAN's generator; the best is reported."""
EOS_SCALES = ("0", "0.1", "1")
"""0.1 is the paper's; it says of the others what they do, without numbers."""

Row4 = tuple[float | None, float, float, float]
TABLE_4: dict[tuple[str, str], Row4] = {
    ("switchboard", "test set"): (None, 10.0, 8.61, 9.65),
    ("switchboard", BASELINE): (42.81, 37.4, 2.71, 2.42),
    ("switchboard", "gan"): (42.69, 49.0, 2.66, 2.35),
    ("switchboard", "mmi"): (None, 23.0, 5.48, 6.23),
    ("switchboard", "negative-10"): (42.84, 12.4, 3.86, 4.00),
    ("switchboard", "negative-1"): (44.32, 9.8, 5.48, 6.03),
    ("ubuntu", "test set"): (None, 1.1, 10.09, 11.32),
    ("ubuntu", BASELINE): (59.49, 4.4, 5.33, 5.92),
    ("ubuntu", "gan"): (59.43, 4.7, 5.30, 5.87),
    ("ubuntu", "mmi"): (None, 4.5, 5.34, 5.93),
    ("ubuntu", "negative-1"): (59.76, 1.2, 5.74, 6.52),
    ("ubuntu", "negative-0.1"): (60.06, 1.3, 6.44, 7.55),
}
"""(corpus, row) -> perplexity, max-ratio in percent, Ent-2, Ent-3; negative-10 is r_thres 10%."""

TABLE_9 = {
    ("switchboard", BASELINE): 0.476,
    ("switchboard", "negative-1"): 0.475,
    ("ubuntu", BASELINE): 0.443,
    ("ubuntu", "negative-0.1"): 0.464,
}
"""(corpus, row) -> BLEU-4. Its scale is not said; sacrebleu's goes to 100."""

TRAINED_BELOW = 5.0
"""Section 4.2: the training list is hit to less than this, in percent."""
PPL_WITHIN = 3.0
"""How far perplexity may rise, in percent, to count as "little or no degradation": the most that Table 3 has
for Switchboard is 1.6%."""
OVERLAP_ABOVE = 90.0
"""Of the 10-best lists before and after, in percent."""
