"""Models that are only asked: endpoints, Python functions, sealed models; and the budget of queries."""
