"""Studies: a paper's tables and figures, reproduced side by side with the paper's numbers."""
