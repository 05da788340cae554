"""How cases become findings: on weights, by asking, in conversations, and over inputs that are given."""
