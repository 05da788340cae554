"""One hardening: lists, iterations of search and updates, selection, proof, cost, for every subject."""
