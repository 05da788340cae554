"""Blind pairwise judgement of two models' replies (section 4.3 and Table 6 of He & Glass 2020), in steps."""
