"""How often a model says what it must not say: risk over a distribution of inputs, with bounds that hold."""
