"""Toxicity scorers: how abusive a text is, 0 to 1. Each file is one family; `registry.SCORERS` names them."""
