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
    "These rows are of a baseline that was trained without the published weight decay, and measured by a "
    "search for the average of all words; with both as published it is 30.8% of test targets for o and "
    "22.6% for io (LOG.md). Targets with words that the model lacks are left out"
)
_PASSES = (
    "There is more to train away than in the paper, and there are fewer passes than its 20, the same number "
    "for all rows (see How it was run): with the published step nearly every batch of targets uses up its 20 "
    "rounds while some are still hit"
)
_FREQUENT = (
    "Two thirds of a pass over the training pairs, and another baseline; the paper goes over them 20 times. "
    "Losses are summed over words here, so a step is some six times that of the public code"
)
_COST = (
    "Losses are averaged over words and over the whole batch, as in the public code; averaged over the hits "
    "that are left alone, perplexity rises by 28%. What else the paper's smaller rise comes from is "
    "*unexplained*, but for the hits: we have more of them to remove"
)

NOTES: dict[str, str] = {
    "*/ubuntu/*": _SLICE,
    "table-3/*/baseline/t*": _SEARCH,
    "table-3/*/train": _PASSES,
    "table-3/*/test": _PASSES,
    "table-3/*/rise": _COST,
    "table-4/*/negative-*": _FREQUENT,
    "table-4/*/gan/*": _FREQUENT,
}
