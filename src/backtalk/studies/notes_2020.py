"""Why numbers of the study differ from those of He & Glass 2020, where that is known.

Keys are globs over a cell's key, table/row/column; the first that fits counts. A cell that differs and fits
none is marked unexplained on the page.
"""

from __future__ import annotations

_SLICE = (
    "Another and much smaller text: the paper's corpus is not at hand, ours is a slice of one like it, so "
    "only the pattern of a row is to be compared, not its numbers"
)
_SEARCH = (
    "Eq. 7 as printed finds more than the search of 2019, where a word that is likely enough counts no more: "
    "with one start 47.5 against 30.8% of the test list (LOG.md, o-sample-avg-k1). The public code is nearer "
    "to the latter, such a word has a hundredth of the weight there, and it never turns dropout off, not "
    "even where it counts hits: the columns with dropout count so, after our search. Targets with words that "
    "the model lacks are left out"
)
_BASELINE = (
    "With the optimizer of the public code our models end a little below the paper's perplexity; on the 50 "
    "dialogues of the paper of 2019, which hold these 25, it is lower by 5% in both papers"
)
_ONE = (
    "One training each, and how common the commonest reply is goes with it: a baseline without weight "
    "decay said it to 48% of the inputs here. That ours has more different pairs of words is *unexplained*"
)
_MMI = (
    "The paper says neither which lambda and gamma it takes nor how they were chosen; how ours were is said "
    "under the table. The baseline below them is another one, too"
)
_PASSES = (
    "By eq. 7 there is twice as much to train away, and there are fewer passes than the paper's 20, the same "
    "number for all rows (see How it was run): with the published step nearly every batch of targets uses up "
    "its 20 rounds while some are still hit, and fewer are found in each pass than in the one before"
)
_FREQUENT = (
    "Two thirds of a pass over the training pairs; the paper goes over them 20 times. Losses are summed over "
    "words here, so a step is some six times that of the public code, and the baseline says more different "
    "things than the paper's to begin with"
)
_COST = (
    "Losses are averaged over words and over the whole batch, as in the public code; averaged over the hits "
    "that are left, perplexity rises by 62% and the model is left with one reply. The rise is largest after "
    "the first pass (+6.8% with 500 targets, o) and shrinks with every other one (+2.5% after 8), so that "
    "fewer passes than the paper's cost more, as do twice the hits; what else there is, is *unexplained*"
)

NOTES: dict[str, str] = {
    "*/ubuntu/*": _SLICE,
    "table-3/*/baseline/t*": _SEARCH,
    "table-3/*/train": _PASSES,
    "table-3/*/test": _PASSES,
    "table-3/*/rise": _COST,
    "table-8/*": _BASELINE,
    "table-3/*/ppl": _BASELINE,
    "table-4/*/negative-*": _FREQUENT,
    "table-4/*/gan/*": _FREQUENT,
    "table-4/*/baseline/*": _ONE,
    "table-4/*/mmi/*": _MMI,
}
