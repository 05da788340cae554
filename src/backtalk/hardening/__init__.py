"""The parts of a hardening: lists, pairs, the search inside training, what is kept, the cost."""
