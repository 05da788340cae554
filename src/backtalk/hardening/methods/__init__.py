"""One loss per file. The losses differ in how the gradient fades as a target becomes unlikely."""
