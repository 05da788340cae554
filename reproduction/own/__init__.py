"""Studies of our own: no paper stands beside them."""
