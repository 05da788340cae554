"""`make bench-peers`: searches of ours and nanoGCG on the same model and targets, for equal time or FLOPs."""
