"""`backtalk serve`: the reports of a folder, live, on this machine alone."""
