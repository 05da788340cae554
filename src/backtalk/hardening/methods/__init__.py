"""One loss a file. They differ in how the gradient fades as a target becomes unlikely."""
