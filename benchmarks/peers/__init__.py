"""`make bench-peers`: searches of ours and nanoGCG on the same model, prompt, targets and time, by turns."""
