"""Data: corpora, words, vocabularies, pairs and target lists."""
