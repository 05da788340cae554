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
    "Eq. 7 as printed finds more than the search of 2019, where a word that is likely enough counts no more; "
    "in the public code such a word has a hundredth of its weight, which is nearly the latter. By that "
    "search the same models have 37.2 and 34.8% hit (the table below it), and 31.0 and 28.8% where dropout "
    "stays on while hits are counted, as it does in the public code. Targets with words that the model lacks "
    "are left out"
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
    "The same models searched as in 2019 (see the baseline's) have 3.6 and 12.3% hit with 500 targets, o, "
    "near the paper's 3.8 and 13.4%, and 1.7 and 7.1% with 1,000 (2.4 and 5.0): by eq. 7 there is twice as "
    "much to train away and more to find afterwards. That there are fewer passes than the paper's 20 matters "
    "less: after 8 14.3 and 23.4% are hit by eq. 7, after 20 11.8 and 24.3%; io 5.8 and 12.3%, 3.0 and "
    "12.7%"
)
_OLDER = (
    "Counted without dropout, which the public code leaves on; with it the baseline's rates are 31.0 and "
    "28.8%, and 5.8% of the test list after 1,000 targets. The row with 20 passes was trained on the "
    "triggers of the stronger search"
)
_FREQUENT = (
    "Two thirds of a pass over the training pairs; the paper goes over them 20 times. Losses are summed over "
    "words here, so a step is some six times that of the public code, and the baseline says more different "
    "things than the paper's to begin with"
)
_COST = (
    "Losses are averaged over words and over the whole batch, as in the public code; averaged over the hits "
    "that are left, perplexity rises by 62% and the model is left with one reply. The rise is largest after "
    "the first pass (+6.8% with 500 targets, o) and shrinks with every other one (+2.5% after 8, +1.7% after "
    "the paper's 20), and there are twice the hits to train away; what else there is, is *unexplained*"
)

NOTES: dict[str, str] = {
    "*/ubuntu/*": _SLICE,
    "table-3/*/baseline/t*": _SEARCH,
    "as-2019/*": _OLDER,
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
