"""Toxicity scorers: how abusive a text is, 0 to 1; `registry.SCORERS` names them."""
