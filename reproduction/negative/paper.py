"""The numbers of He & Glass, "Negative training for neural dialogue response generation" (2020), why ours
differ, and the sizes of the study.

Percentages stand as the paper prints them. Only the two corpora that the study runs are here: Switchboard,
and Ubuntu, of which ours is a slice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from reproduction.egregious import paper as egregious
from reproduction.page import read_notes
from reproduction.runner import Size as Base

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
LISTS = ("500", "1000", "2500")  # training targets: as written, with one paraphrase each, with four

_TABLE_3 = {
    BASELINE: ((27.8, 27.6, 42.81), (19.6, 21.0, 42.81), (16.4, 12.6, 59.49), (7.8, 5.2, 59.49)),
    "500": ((3.8, 13.4, 42.91), (2.2, 9.4, 42.7), (0.0, 2.0, 60.42), (0.2, 1.4, 59.97)),
    "1000": ((2.4, 5.0, 42.96), (2.1, 4.0, 42.76), (0.1, 1.4, 60.72), (0.1, 1.0, 60.21)),
    "2500": ((1.3, 2.6, 43.51), (1.5, 1.6, 43.24), (0.04, 0.0, 62.11), (0.2, 0.0, 63.37)),
}
"""Switchboard by the two hits, then Ubuntu."""
TABLE_3 = {
    (corpus, hit, row): one
    for row, printed in _TABLE_3.items()
    for (corpus, hit), one in zip(((c, h) for c in CORPORA for h in HITS[c]), printed, strict=True)
}
"""(corpus, hit, training list) -> training targets hit, test targets hit, test perplexity. The paper counts
the training list that was trained on; we count its 500 written targets in every row."""

R_THRES = {"switchboard": ("10%", "1%"), "ubuntu": ("1%", "0.1%")}
"""A reply with a larger share of all replies is discouraged."""
ALPHA_G = ("0.01", "0.001", "0.0001")  # rates of the GAN's generator; the best is reported
EOS_SCALES = ("0", "1")  # beside the paper's 0.1; it says what they do, without numbers

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

TRAINED_BELOW = 5.0  # section 4.2: the training list is hit to less than this, in percent
PPL_WITHIN = 3.0
"""How far perplexity may rise, in percent, to count as "little or no degradation": the most that Table 3 has
for Switchboard is 1.6%."""
OVERLAP_ABOVE = 90.0  # of the 10-best lists before and after, in percent


NOTES = {"*/ubuntu/*": egregious.NOTES["*/ubuntu/*"], **read_notes("negative")}


@dataclass(frozen=True)
class Size(Base):
    """Every number that makes the study longer or shorter. The defaults are the paper's but for `iterations`
    and `frequent_steps`, of which the paper has 20 passes: fewer, and the same for all rows."""

    training: egregious.Size = egregious.SIZES["paper"]
    """Sizes of the baseline models, which are those of the study egregious."""
    iterations: int = 8  # passes over the training targets; the paper has 20
    passes: int = 20  # passes of one more row, which shows their effect
    targets: tuple[tuple[str, int], ...] = ()
    """The most targets of a list, by its name; all where it is not named."""
    followed: int = 100
    """Test targets searched after each iteration in the rows of the figure; the other rows have one. Nothing
    is chosen by them."""
    batch: int = 100  # targets searched and trained on together
    rounds: int = 0  # the most updates on a batch of hits; 0 takes the settings' own
    length: int = 14  # n: words of a trigger; with the end-of-turn token the paper's 15
    top: int = 100  # G: candidates at a position
    sweeps: int = 5  # T: the most passes over a trigger, inside training and in the measures
    restarts: int = 5  # R: searches a target in the measures; one inside training
    measure: int = 20_000  # test pairs at most: more than there are
    frequent_iterations: int = 5  # measurements of a training against frequent replies
    frequent_steps: int = 350
    """Mini-batches of 64 between them; the paper goes 20 times over the training pairs."""
    window: int = 200  # mini-batches over which the share of a reply is taken
    gan_filters: int = 300
    gan_hidden: int = 2000
    mmi_weights: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)
    mmi_words: tuple[int, ...] = (1, 3, 5)  # lambda and gamma that are tried on validation pairs
    choosing: int = 2000  # validation pairs that choose them
    beam: int = 10
    beam_inputs: int = 2000  # width and test inputs of the beam search that is set beside greedy decoding
    embedded: tuple[tuple[str, Any], ...] = (("limit", 800), ("iterations", 10))
    """Settings of the embedded model's hardenings that differ from the defaults."""
    embedded_frequent: tuple[tuple[str, Any], ...] = (("iterations", 8),)  # the same against frequent replies
    words: int = 100  # targets of our own list whose words figure 1 follows

    def limited(self, limit: int, restarts: int) -> Size:
        size = replace(self, restarts=restarts) if restarts else self
        if not limit:
            return size
        names = ("500", "1000", "2500", "test")
        now = dict(self.targets)
        fewer = tuple((name, min(limit, now.get(name) or limit)) for name in names)
        return replace(size, targets=fewer, followed=min(limit, self.followed), words=min(limit, self.words))


SIZES = {
    "paper": Size(),
    "mini": Size(
        training=egregious.SIZES["mini"], iterations=1, passes=2,
        targets=(("500", 4), ("1000", 5), ("2500", 6), ("test", 4)),
        followed=2, batch=4, rounds=2, length=3, top=4, sweeps=1, restarts=1, measure=24,
        frequent_iterations=1, frequent_steps=3, window=1, gan_filters=4, gan_hidden=8,
        mmi_weights=(0.1, 0.3), mmi_words=(2,), choosing=12, beam=3, beam_inputs=12,
        embedded=(("limit", 6), ("iterations", 1), ("length", 2), ("top", 3), ("sweeps", 1),
                  ("search_sweeps", 1), ("restarts", 1), ("measure", 16), ("rounds", 1)),
        embedded_frequent=(("iterations", 1), ("steps_per_iteration", 2), ("window", 1), ("measure", 16)),
        words=3,
    ),
}  # fmt: skip
